"""The pages stay short, and so do their sentences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import ROOT, anchors, pages, sentences

if TYPE_CHECKING:
    from pathlib import Path

MOST_WORDS = 25_000
"""Of all pages of `docs/`, tables included; code, decisions and the changelog are counted apart."""
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"\S*\w\S*")
"""A bar of a table and a dash are no words."""
MOST_A_SENTENCE = 18


def test_all_pages_together_stay_short() -> None:
    texts = {page.name: CODE.sub("", page.read_text("utf-8")) for page in pages()}
    counts = {name: len(WORD.findall(text)) for name, text in texts.items()}
    assert sum(counts.values()) <= MOST_WORDS, sorted(counts.items(), key=lambda one: -one[1])


@pytest.mark.parametrize("page", [ROOT / "README.md", *pages()], ids=lambda page: page.name)
def test_sentences_are_short_on_average(page: Path) -> None:
    lengths = [len(one.split()) for one in sentences(page.read_text("utf-8"))]
    assert sum(lengths) / len(lengths) < MOST_A_SENTENCE, round(sum(lengths) / len(lengths), 1)


def test_sentences_and_anchors_are_those_a_reader_sees() -> None:
    text = (
        "# A page, with `code`\n\n<!-- typed -->\nOne two. Three (four)! Five\nsix.\n\n"
        "- seven [eight nine](x.md#y)\n- ten\n\n| no | row |\n|---|---|\n\n```sh\nno code\n```\n"
        "\n## Where [it](z.md) runs\n\n## Where it runs\n"
    )
    assert sentences(text) == ["One two.", "Three (four)!", "Five six.", "seven eight nine", "ten"]
    assert anchors(text) == {"a-page-with-code", "where-it-runs", "where-it-runs-1"}
