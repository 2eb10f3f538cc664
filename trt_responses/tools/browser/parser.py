"""The sandboxed process that parses one document and exits; `reading.py` starts it.

The first line of its input is JSON, the rest the document; its output is one line of JSON. It can
open no file and no socket, and its memory and time are limited.
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
"""The part of a document that is searched for its charset."""


def main() -> None:
    """Enter the sandbox, parse the document, write the result."""
    request = json.loads(sys.argv[1])
    source = sys.stdin.buffer
    if request["boxed"]:
        die_with(request["parent"])
    os.nice(5)
    seconds = request["seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    document, body = json.loads(source.readline()), source.read()
    charset = charset_of(document["charset"], body)
    extract.of_html("<p>a", "http://a/")  # loads lazily imported modules before the sandbox
    try:
        if request["boxed"]:
            box.shut(os.devnull, (), box.Limits(request["memory_bytes"], 0))
        else:
            resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"],) * 2)
    except box.NoBox as fault:
        _write({"why": str(fault)})
        return
    try:
        text, url = body.decode(charset, "replace"), document["url"]
        of = extract.of_html if document["kind"] in HTML else extract.of_text
        read = of(text, url)
    except MemoryError:
        _write({"why": "it needs too much memory"})
        return
    _write(read._asdict())


def charset_of(declared_charset: str | None, body: bytes) -> str:
    """The codec from the header, else from the document's beginning, else UTF-8."""
    for mark, name in MARKS.items():
        if body.startswith(mark):
            return lookup(name).name
    declared = DECLARED.search(body[:DECLARED_BYTES])
    for name in (declared_charset or "", declared[1].decode() if declared else ""):
        try:
            codec = lookup(name).name
        except (LookupError, ValueError):
            continue
        if codec in TEXTUAL:
            # Like browsers, read Latin-1 as its superset cp1252.
            return lookup("cp1252").name if codec in ("iso8859-1", "ascii") else codec
    return "utf-8"


DECLARED = re.compile(rb"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
CHARSETS = """ascii big5 big5hkscs cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258
cp874 cp932 cp949 euc_jp euc_kr gb18030 gb2312 gbk iso2022_jp iso8859-1 iso8859-2 iso8859-3
iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 iso8859-13 iso8859-15 koi8-r koi8-u
shift_jis utf-8 utf-8-sig utf-16 utf-16-le utf-16-be"""
TEXTUAL = frozenset(CHARSETS.split())
"""Charsets among Python's codecs, which include others such as `zlib`."""


def _write(value: object) -> None:
    sys.stdout.buffer.write(json.dumps(value).encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
