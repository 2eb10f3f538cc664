"""Where the words gate looks, and what it lets pass. The budgets of rooms: `test_budgets.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import words

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = '''
"""It is
there, and is not there."""

NOTE = "What clients said"  # nobody is
# there; be
# it so
def tell(told: int) -> str:
    told = told + 1
    self._askedFor = {"asked": f"by {told} HAND, by hand"}
    logger.info("a run was taken over, one taken: %s", (
        "whoever "
        "of ours"
    ))
'''

SCRIPT = r"""
// Asked once,
const told = 'said'; const quote = /["'](?:said)/; /* is
   there */
const text = `heard ${told} of ${asked.heard}`;
told(told);
"""


def found(text: str, suffix: str) -> list[tuple[int, str]]:
    return sorted(words.found_in(text, suffix))


def test_texts_comments_and_names_of_python() -> None:
    assert found(PYTHON, ".py") == [
        (2, "is there"),
        (3, "is not there"),
        (5, "is there"),
        (5, "nobody"),
        (5, "said"),
        (6, "be it"),
        (8, "told"),  # once for a name, however often it is bound
        (10, "asked"),  # the attribute
        (10, "asked"),  # the key
        (10, "by hand"),
        (11, "taken"),
        (12, "whoever"),
        (13, "of ours"),
    ]


def test_texts_comments_and_names_of_a_script() -> None:
    assert found(SCRIPT, ".js") == [
        (2, "asked"),
        (3, "is there"),
        (3, "said"),
        (3, "told"),
        (5, "asked"),
        (5, "heard"),
        (5, "heard"),
    ]


def test_a_page_is_text() -> None:
    assert found("A lot is\nthere.\nNOBODY", ".md") == [(1, "is there"), (1, "lot"), (3, "nobody")]


@pytest.mark.parametrize(
    "text",
    ["slot", "There is one", "a maskedasked", "mistaken", "resumed: taken over", "thereby"],
)
def test_other_words_pass(text: str) -> None:
    assert found(text, ".md") == []
    assert found(f'"""{text}."""', ".py") == []


@pytest.mark.parametrize("name", ["slot", "taken_over", "basket", "unasked", "_heardness"])
def test_other_names_pass(name: str) -> None:
    assert found(f"{name} = 1", ".py") == []


@pytest.mark.parametrize(
    "name", ["told", "_asked", "was_taken", "_TOLD", "LastSaid", "is_there", "HEARDTwice"]
)
def test_a_name_is_read_by_its_words(name: str) -> None:
    for source in (f"{name} = 1", f"class {name}: pass", f"def f({name}): pass", f"a.{name} = 1"):
        assert len(found(source, ".py")) == 1


def test_rooms_are_folders_and_pages(tmp_path: Path) -> None:
    for name, text in {
        "trt_responses/wire/told.py": "",
        "trt_responses/web/page/a.html": "<p>Nobody</p>",
        "docs/decisions/a.md": "asked",
        "README.md": "said, said",
        "tests/test_told.py": "told = 1",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert words.counts(words.places(tmp_path)) == {
        "trt_responses/wire": 1,
        "trt_responses/web/page": 1,
        "docs/decisions/a.md": 1,
        "README.md": 2,
    }
