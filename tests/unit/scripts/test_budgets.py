"""Every number in `tests/budgets.toml` holds and has not been raised in silence."""

from __future__ import annotations

import ast
import subprocess
from typing import TYPE_CHECKING

import pytest

from scripts.budgets import ledger, measures
from scripts.budgets.__main__ import main
from scripts.budgets.ledger import DECISIONS, FILE, Raise
from scripts.budgets.probe import returns
from tests.support.imports import PACKAGE, ROOT, modules

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / FILE).read_text("utf-8")
BUDGETS = ledger.read(TEXT)


def of_these(measured: dict[str, int]) -> dict[str, int]:
    return {key: count for key, count in BUDGETS.items() if key in measured}


@pytest.mark.xdist_group("sources")  # each file is read once
def test_what_the_source_is_keeps_its_budgets() -> None:
    measured = measures.static(*ledger.rooms(TEXT))
    assert list(ledger.faults(of_these(measured), measured)) == []


def test_what_runs_keeps_its_budgets() -> None:
    measured = measures.dynamic()
    assert list(ledger.faults(of_these(measured), measured)) == []


def test_words_keep_their_budgets() -> None:
    measured = measures.in_rooms()
    budgets = {key: count for key, count in BUDGETS.items() if key.partition(".")[0] == "words"}
    assert list(ledger.faults(budgets, measured)) == []


def test_every_raise_has_a_reason() -> None:
    decisions = (ROOT / DECISIONS).read_text("utf-8")
    assert ledger.unexplained(ledger.raises(ROOT), decisions) == []


def test_every_room_of_the_core_exists() -> None:
    core, libraries = ledger.rooms(TEXT)
    known = modules(PACKAGE)
    assert [name for name in (*core, *libraries) if name not in known] == []


# --- the checks refuse ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "count", "sentence"),
    [
        (1000, 1001, "lines is 1001, budget 1000: make it smaller, or give a reason"),
        (1000, 994, "lines is 994, budget 1000: write 994 in tests/budgets.toml"),
        (64, 63, "lines is 63, budget 64: write 63"),
        (None, 7, "lines is 7 and has no budget"),
        (1, 0, "lines is 0, budget 1: write 0"),
    ],
)
def test_a_number_off_its_budget_is_refused(budget: int | None, count: int, sentence: str) -> None:
    budgets = {} if budget is None else {"lines": budget}
    [fault] = ledger.faults(budgets, {"lines": count})
    assert fault.startswith(sentence)


@pytest.mark.parametrize(("budget", "count"), [(1000, 1000), (1000, 995), (64, 64), (0, 0)])
def test_a_number_at_its_budget_or_a_little_below_is_accepted(budget: int, count: int) -> None:
    assert list(ledger.faults({"lines": budget}, {"lines": count})) == []


def test_a_room_may_fall_a_little_until_it_has_no_word_left() -> None:
    budgets = {"words.a": 9}
    assert list(ledger.faults(budgets, {"words.a": 6})) == []
    assert "write 5" in next(ledger.faults(budgets, {"words.a": 5}))
    assert "write 0" in next(ledger.faults({"words.a": 1}, {}))


def test_writing_only_lowers() -> None:
    budgets, measured = {"a": 10, "b": 10, "gone": 1}, {"a": 9, "b": 11, "new": 3}
    assert ledger.lowered(budgets, measured) == {"a": 9, "b": 10, "new": 3}
    text = ledger.written(TEXT, {"a": 9})
    assert ledger.read(text) == {"a": 9}
    assert ledger.rooms(text) == ledger.rooms(TEXT)


def test_an_upward_import_is_counted() -> None:
    core, libraries = ledger.rooms(TEXT)
    edge = (f"{PACKAGE}.wire.items", f"{PACKAGE}.telemetry.metrics")
    assert measures.upward([edge], core, libraries) == [edge]
    down = [
        (f"{PACKAGE}.response.run.run", f"{PACKAGE}.wire.items"),
        (f"{PACKAGE}.response.steering.steering", f"{PACKAGE}.schema.compile"),
        (f"{PACKAGE}.telemetry.metrics", f"{PACKAGE}.web.kserve.models"),
    ]
    assert measures.upward(down, core, libraries) == []


def test_attributes_and_parameters_are_counted() -> None:
    source = """
class Wide:
    a: int = 1
    b = 2
    def __init__(self, x, /, y, *rest, z=1, **more):
        self.c, self._hidden = x, y
        other.d = 3
    @staticmethod
    def free(x): pass
"""
    [wide] = ast.parse(source).body
    assert isinstance(wide, ast.ClassDef)
    assert measures.width(wide) == 3
    methods = [node for node in wide.body if isinstance(node, ast.FunctionDef)]
    assert [measures.arity(method) for method in methods] == [3, 1]


def test_returns_to_a_file_are_counted() -> None:
    assert returns([*"aabbcab"]) == 2
    assert returns([]) == 0


# --- raises ---------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    for value in (10, 8):
        commit(tmp_path, value)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def write(folder: Path, value: int) -> None:
    (folder / FILE).parent.mkdir(exist_ok=True)
    (folder / FILE).write_text(f'[budgets]\n"lines" = {value}\n')


def commit(folder: Path, value: int) -> None:
    write(folder, value)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", f"{value}")


def test_a_fall_needs_no_reason(repository: Path) -> None:
    write(repository, 7)
    assert ledger.raises(repository) == []


def test_a_raise_in_the_working_tree_is_found(repository: Path) -> None:
    write(repository, 9)
    assert ledger.raises(repository) == [Raise("lines", 8, 9)]


def test_a_raise_is_found_behind_later_commits(repository: Path) -> None:
    commit(repository, 11)
    commit(repository, 6)
    assert ledger.raises(repository) == [Raise("lines", 8, 11)]


def test_a_raise_in_a_merge_is_found(repository: Path) -> None:
    git(repository, "switch", "-q", "-c", "side")
    commit(repository, 12)
    git(repository, "switch", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "side")
    assert ledger.raises(repository) == [Raise("lines", 8, 12)]


def test_a_number_that_was_away_is_compared_with_its_last(repository: Path) -> None:
    (repository / FILE).write_text("[budgets]\n")
    git(repository, "commit", "-q", "-a", "-m", "away")
    write(repository, 9)
    assert ledger.raises(repository) == [Raise("lines", 8, 9)]


def test_sources_without_git_have_no_history(tmp_path: Path) -> None:
    write(tmp_path, 9)
    assert ledger.raises(tmp_path) == []


def test_a_raise_needs_a_row_of_its_own() -> None:
    one = Raise("words.a/b", 8, 9)
    row = ledger.row(one, "moved from\nc")
    assert row == "| `words.a/b` | 8 | 9 | moved from c |\n"
    assert ledger.unexplained([one], row) == []
    assert ledger.unexplained([one], "") == [one]
    assert ledger.unexplained([one, one], row) == [one, one]
    assert ledger.unexplained([one], row.replace("moved from c", " ")) == [one]
    assert ledger.unexplained([one], row.replace("| 9 |", "| 10 |")) == [one]


@pytest.mark.parametrize("reason", ["", "…", "a | b"])
def test_a_row_without_a_reason_is_refused(reason: str) -> None:
    with pytest.raises(ValueError, match="needs words"):
        ledger.row(Raise("a", 1, 2), reason)


def test_the_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "--raise KEY REASON" in capsys.readouterr().out
