"""`make cost`: which commit it compares with, and what it says of given times. Nothing is timed."""

from __future__ import annotations

import asyncio
import io
import subprocess
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bench import cost
from bench.cost import Measured, NoCommit, differs, other, report, row, sized, unpacked
from bench.cost_side import CASES, LONG_IDS, PACKAGE, SHORT_IDS
from tests.support.imports import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BASE = [100.0, 101, 99, 100, 102, 98, 100, 101]
AGAIN = [101.0, 100, 100, 99, 101, 99, 100, 100]
NOISY = [80.0, 120, 99, 130, 90, 120, 75, 101]


def times(factor: float) -> list[float]:
    return [ns * factor for ns in BASE]


# --- the verdict ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("again", "factor", "verdict", "refused"),
    [
        (AGAIN, 1.0, "the same", False),
        (AGAIN, 1.03, "slower", False),
        (AGAIN, 1.07, "slower", True),
        (AGAIN, 0.9, "faster", False),
        (NOISY, 1.07, "too noisy to tell", False),
        (NOISY, 0.9, "too noisy to tell", False),
        (NOISY, 2.0, "slower", False),
        (NOISY, 0.3, "faster", False),
    ],
)
def test_a_row_is_judged_by_the_other_commit_beside_itself(
    again: list[float], factor: float, verdict: str, refused: bool
) -> None:
    found = row(BASE, again, times(factor))
    assert (found.verdict, found.refused) == (verdict, refused)


@pytest.mark.parametrize(
    ("now", "words"),
    [(100, "the same"), (99, "smaller"), (105, "larger"), (106, "larger, refused")],
)
def test_bytes_have_no_noise(now: int, words: str) -> None:
    assert sized(100, now) == words


def reported(factor: float, again: list[float], stored: int = 100) -> tuple[int, str]:
    out = io.StringIO()
    rows: dict[str, list[list[float]]] = {
        "plain": [BASE, again, times(factor)],
        "chat": [[], [], []],
    }
    found = Measured(rows, (100, stored), ["chat"])
    return report(found, Console(file=out, width=140)), out.getvalue()


def test_the_status_is_1_for_what_is_refused_alone() -> None:
    assert reported(1.0, AGAIN)[0] == 0
    assert reported(1.03, AGAIN)[0] == 0
    assert reported(2.0, NOISY)[0] == 0
    status, text = reported(1.07, AGAIN, stored=106)
    assert status == 1
    assert "refused, by more than 5%: plain; bytes stored" in text
    assert "absent" in text


def test_a_token_is_what_more_of_them_cost() -> None:
    count = LONG_IDS - SHORT_IDS
    short, long = [[10.0], [10.0], [20.0]], [[10.0 + count], [10.0 + 2 * count], [20.0]]
    rows = cost.with_token({"long": long, "streamed, stored": short})
    assert rows == {"streamed, stored": short, "a token": [[1.0], [2.0], [0.0]]}


# --- the commit -----------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    command = ["git", *who, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def committed(folder: Path, text: str) -> str:
    (folder / PACKAGE).mkdir(exist_ok=True)
    (folder / PACKAGE / "app.py").write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def test_the_parent_is_compared_with_and_head_where_work_is_not_committed(
    repository: Path, tmp_path: Path
) -> None:
    first, second = committed(repository, "one"), committed(repository, "two")
    assert other(repository, None) == first
    assert other(repository, second[:8]) == second
    assert differs(repository, first)
    assert not differs(repository, second)
    (repository / PACKAGE / "new.py").write_text("three")
    assert other(repository, None) == second
    assert (unpacked(repository, first, tmp_path / "x") / PACKAGE / "app.py").read_text() == "one"


def test_without_a_commit_to_compare_with_it_says_why(repository: Path, tmp_path: Path) -> None:
    committed(repository, "one")
    with pytest.raises(NoCommit, match="HEAD~1 is not a commit of this clone"):
        other(repository, None)
    with pytest.raises(NoCommit, match="nope is not a commit"):
        other(repository, "nope")
    committed(repository, "two")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(NoCommit, match="shallow"):
        other(tmp_path / "shallow", None)
    with pytest.raises(NoCommit, match="no git repository"):
        other(tmp_path, None)


def test_only_a_named_commit_must_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost.main([], tmp_path) == 0
    assert cost.main(["--against", "abc"], tmp_path) == 2
    assert capsys.readouterr().out.count("cost: no git repository") == 2


@pytest.mark.slow  # 4 s: a server under load
def test_this_package_can_be_measured() -> None:
    asyncio.run(_measured())


async def _measured() -> None:
    async with cost.sides([ROOT]) as [side]:
        started = await side.start()
        assert started["failed"] == {}
        assert started["stored"] > 300
        assert all([await side.spent_ns(case) > 0 for case in CASES])
