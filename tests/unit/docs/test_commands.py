"""What `make docs-check` runs of the pages, and that it can fail."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from scripts.docs_blocks import PAGES, REASONS, RUN, SHOWN, CommandFailed, blocks, is_in_order
from scripts.docs_check import Reader
from scripts.docs_session import WAIT, waiting

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_fence_says_what_it_is_and_why_it_is_not_run(page: Path) -> None:
    found = list(blocks(page))
    assert len(found) * 2 == len(re.findall(r"^```", page.read_text("utf-8"), re.M))
    assert {block.language for block in found} <= {*RUN, *SHOWN}
    assert {block.marked for block in found if block.mark == "not run"} <= {*REASONS}
    assert not [str(block) for block in found if block.reason and block.language not in RUN]
    assert is_in_order(page) or not [str(b) for b in found if b.mark in ("file", "prints")]


def test_no_command_hides_in_an_indented_block() -> None:
    command = re.compile(r"^ {4,}(?:make|trt-responses|curl|python|pip|docker) ", re.M)
    for page in PAGES:
        outside = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
        assert command.findall(outside) == [], page


def test_most_commands_are_run() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.language in RUN]
    by_a_test = [block for block in found if (block.reason or "").endswith(" does")]
    assert sum(block.is_run for block in found) + len(by_a_test) > len(found) / 2


def test_a_command_that_does_not_work_is_told_with_what_it_printed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho before\nfalse | true\necho behind\n```\n```python\n1 / 1\n```\n")
    broken, whole = blocks(page)
    reader = Reader(tmp_path / "home")
    with pytest.raises(CommandFailed, match=r"page.md:1: status 1\nbefore\n$"):
        reader.run(broken, tmp_path)
    reader.run(whole, tmp_path)


def test_a_server_is_waited_for_and_stopped() -> None:
    typed = "export A=1\nB=2 trt-responses serve --engine gpt &\ntrt-responses engine list\n"
    lines = waiting(typed).splitlines()
    assert lines[1] == "B=2 trt-responses serve --engine gpt &"
    assert lines[2] == f"{WAIT} #"
    assert lines[3] == "trt-responses engine list"
    assert lines[-1].startswith("kill %%")
    assert waiting("make serve ENGINE=a   # why\n").splitlines()[0] == "make serve ENGINE=a &"


def test_a_session_keeps_what_was_typed_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- typed in order -->\n"
        "<!-- file: one/two.py -->\n```python\nprint('saved on 8000')\n```\n"
        "```sh\ncd one\nexport A=127.0.0.1:8000\n```\n"
        "```sh\npython two.py\necho $A 127.0.0.1:8000 /etc/x\n```\n"
        "<!-- prints -->\n```text\nsaved on…\n127.0.0.1:8000 127.0.0.1:8000 /etc/x\n```\n"
        "<!-- needs: no-such-program -->\n```sh\nfalse\n```\n<!-- prints -->\n```text\nno\n```\n"
        "<!-- prints -->\n```text\nno\n```\n```sh\nfalse\n```\n"
    )
    assert is_in_order(page)
    *fine, wrong = blocks(page)
    with closing(Reader(tmp_path / "home").session(tmp_path / "reader")) as session:
        for block in fine:
            session.run(block)
        with pytest.raises(CommandFailed, match=r"page.md:\d+: failed"):
            session.run(wrong)


def test_other_lines_than_the_page_shows_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho one; echo two\n```\n<!-- prints -->\n```text\ntwo\none\n```\n")
    typed, shown = blocks(page)
    with closing(Reader(tmp_path / "home").session(tmp_path / "reader")) as session:
        session.run(typed)
        with pytest.raises(CommandFailed, match="no line 'one' in:\none\ntwo"):
            session.run(shown)
