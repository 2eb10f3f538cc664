"""The process that reads one document, in its box, and ends: `python -c` of `reading.py` begins it.

The first line of its input is JSON, the rest the document; its answer is one line of JSON. It can
open no file and no socket, and its memory and its time are bounded.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from codecs import lookup

from trt_responses.children import die_with
from trt_responses.tools import box
from trt_responses.tools.browser import extract

HTML = ("text/html", "application/xhtml+xml")
DECLARED_BYTES = 2048
"""Where a document may say its own charset."""


def main() -> None:
    """Be shut in, read, answer, end."""
    asked = json.loads(sys.argv[1])
    source = sys.stdin.buffer
    if asked["boxed"]:
        die_with(asked["parent"])
    os.nice(5)
    seconds = asked["seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    document, body = json.loads(source.readline()), source.read()
    charset = charset_of(document["charset"], body)
    extract.of_html("<p>a", "http://a/")  # what is loaded late is loaded now
    try:
        if asked["boxed"]:
            box.shut(os.devnull, (), box.Limits(asked["memory_bytes"], 0))
        else:
            resource.setrlimit(resource.RLIMIT_AS, (asked["memory_bytes"],) * 2)
    except box.NoBox as fault:
        _tell({"why": str(fault)})
        return
    try:
        read = _read(document, body.decode(charset, "replace"))
    except MemoryError:
        _tell({"why": "it takes too much memory"})
        return
    _tell(read._asdict())


def _read(document: dict[str, str], text: str) -> extract.Extracted:
    kind, url = document["kind"], document["url"]
    return extract.of_html(text, url) if kind in HTML else extract.of_text(text, url)


def charset_of(told: str | None, body: bytes) -> str:
    """The codec that the header names, or the document's own beginning, or UTF-8."""
    for mark, name in MARKS.items():
        if body.startswith(mark):
            return lookup(name).name
    declared = DECLARED.search(body[:DECLARED_BYTES])
    for name in (told or "", declared[1].decode() if declared else ""):
        try:
            known = lookup(name).name
        except (LookupError, ValueError):
            continue
        if known in TEXTUAL:
            # A page that calls itself Latin-1 means Windows' superset, as browsers have it.
            return lookup("cp1252").name if known in ("iso8859-1", "ascii") else known
    return "utf-8"


DECLARED = re.compile(rb"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
CHARSETS = """ascii big5 big5hkscs cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258
cp874 cp932 cp949 euc_jp euc_kr gb18030 gb2312 gbk iso2022_jp iso8859-1 iso8859-2 iso8859-3
iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 iso8859-13 iso8859-15 koi8-r koi8-u
shift_jis utf-8 utf-8-sig utf-16 utf-16-le utf-16-be"""
TEXTUAL = frozenset(CHARSETS.split())
"""Other codecs of Python's are no charsets: `zlib` is one."""


def _tell(value: object) -> None:
    sys.stdout.buffer.write(json.dumps(value).encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
