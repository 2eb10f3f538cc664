"""What `make docs-check` runs of the pages, and that it can fail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts.docs_check import PAGES, REASONS, RUN, SHOWN, CommandFailed, Reader, blocks, waiting

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_fence_says_what_it_is_and_why_it_is_not_run(page: Path) -> None:
    found = list(blocks(page))
    assert len(found) * 2 == len(re.findall(r"^```", page.read_text("utf-8"), re.M))
    assert {block.language for block in found} <= {*RUN, *SHOWN}
    assert {block.reason for block in found} <= {None, *REASONS}
    assert not [str(block) for block in found if block.reason and block.language not in RUN]


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
    assert lines[2].startswith("curl ")
    assert lines[3] == "trt-responses engine list"
    assert lines[-1].startswith("kill %%")
    assert waiting("make serve ENGINE=a   # why\n").splitlines()[0] == "make serve ENGINE=a &"
