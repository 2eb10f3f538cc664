"""Marks become links with right offsets, however a text is cut; what is no mark stays text."""

from __future__ import annotations

import time

import orjson
import pytest

from trt_responses.features.hosted_tools.citations import (
    MOST_CITED,
    CitationText,
    FileCitations,
    link_to,
)
from trt_responses.features.tool_items.output import ContainerFileCitation
from trt_responses.tokens.pieces import escaped
from trt_responses.tools.containers import WrittenFile
from trt_responses.tools.session import Source
from trt_responses.wire.output import UrlCitation

PAGES = {1: Source("https://www.example.com/a", "A"), 3: Source("http://b.test/x(y) z", "B")}
A = "([example.com](https://www.example.com/a))"
B = "([b.test](http://b.test/x%28y%29%20z))"

TEXTS = {
    "none": ("Plain text, 【, †, 】 and all.", "Plain text, 【, †, 】 and all.", []),
    "one": ("Cats sleep【1†L4】.", f"Cats sleep {A}.", [1]),
    "a range": ("Cats【1†L4-L9】", f"Cats {A}", [1]),
    "a range beyond what was shown": ("Cats【1†L4-L10】", "Cats【1†L4-L10】", []),
    "a line that was not shown": ("Cats【1†L9999】", "Cats【1†L9999】", []),
    "a reversed range": ("Cats【1†L9-L4】", "Cats【1†L9-L4】", []),
    "a range of one L": ("Cats【1†L4-9】", f"Cats {A}", [1]),
    "behind a space": ("Cats 【1†L4】 sleep", f"Cats {A} sleep", [1]),
    "first of all": ("【1†L4】 says so", f"{A} says so", [1]),
    "behind emoji": ("🐈‍⬛🐈【1†L4】ß", f"🐈‍⬛🐈 {A}ß", [1]),
    "two that adjoin": ("x【1†L4】【3†L0】y", f"x {A} {B}y", [1, 3]),
    "one page twice": ("x【1†L4】 y【1†L5】", f"x {A} y {A}", [1, 1]),
    "unknown cursor": ("x【7†L4】y【1†L1】", f"x【7†L4】y {A}", [1]),
    "no line": ("x【1†source】y", "x【1†source】y", []),
    "a link's mark": ("x【1†Title†b.test】y", "x【1†Title†b.test】y", []),
    "open at the end": ("x【1†L4", "x【1†L4", []),
    "open, then text": ("x【1†L4 and on【1†L4】", f"x【1†L4 and on {A}", [1]),
    "open twice": ("【【1†L4】", f"【 {A}", [1]),
    "a bracket at the end": ("x【", "x【", []),
    "a cursor too long": ("x【12345†L4】", "x【12345†L4】", []),
    "quotes and lines": ('"\\\n【1†L4】\t"', f'"\\\n{A}\t"', [1]),
}


def told_of(pieces: list[str]) -> tuple[list[str], list[UrlCitation]]:
    """The texts as they come, and the citations; each is told behind the text that it covers."""
    cited = CitationText(lambda cursor, line: PAGES.get(cursor) if line < 10 else None)
    parts = [part for piece in pieces for part in cited.feed([escaped(piece)])] + cited.finish()
    texts: list[str] = []
    found: list[UrlCitation] = []
    for part in parts:
        if isinstance(part, UrlCitation):
            assert "".join(texts)[part.start_index :].startswith("([")
            assert len("".join(texts)) == part.end_index
            found.append(part)
        else:
            texts.append(plain(part))
    return texts, found


def plain(piece: bytes) -> str:
    text: str = orjson.loads(b'"%b"' % piece)
    return text


@pytest.mark.parametrize(("written", "told", "cursors"), TEXTS.values(), ids=TEXTS)
def test_marks_become_links_however_the_text_is_cut(
    written: str, told: str, cursors: list[int]
) -> None:
    cuts = [[written], list(written)]
    cuts += [[written[:place], written[place:]] for place in range(1, len(written))]
    for pieces in cuts:
        texts, found = told_of(pieces)
        assert "".join(texts) == told
        covered = [told[one.start_index : one.end_index] for one in found]
        assert covered == [link_to(PAGES[cursor].url) for cursor in cursors]
        assert [(one.url, one.title) for one in found] == [PAGES[cursor] for cursor in cursors]


def test_text_is_held_back_only_while_a_mark_may_be_open() -> None:
    cited = CitationText(lambda cursor, line: PAGES.get(cursor))
    held = [not cited.feed([escaped(letter)]) for letter in "ab【1†L4】c【x【"]
    assert held == [False, False, True, True, True, True, True, False, False, True, False, True]
    assert cited.finish() == ["【".encode()]


def test_a_file_is_cited_where_it_is_named_whole_and_thousands_hold_nothing_up() -> None:
    text = b"See /mnt/data/f1.txt.gz, xf1.txt and [it](sandbox:/mnt/data/f1.txt). " * 300
    files = [WrittenFile("cntr_1", f"cfile_{n}", f"f{n}.txt") for n in range(10_000)]
    begin_s = time.process_time()
    citations = FileCitations(lambda: files, None, "final_answer")
    citations.feed([text])
    cited = [one for one in citations.finish() if isinstance(one, ContainerFileCitation)]
    assert time.process_time() - begin_s < 1.0
    assert len(cited) == MOST_CITED
    spans = {one.filename: text[one.start_index : one.end_index] for one in cited[:3]}
    assert spans == {"f0.txt": b"", "f1.txt": b"sandbox:/mnt/data/f1.txt", "f2.txt": b""}
