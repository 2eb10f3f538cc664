"""Which test runs in which suite, and how much memory a process of a suite may take.

`fast` is `make test`: all unit and protocol tests but those marked slow, and the end-to-end tests
that `tests/fast_e2e.txt` lists. `rest` is what `fast` leaves out. `all` is both. `python -m
tests.suites` lists what is slow, and why. Knows nothing of pytest: `tests/conftest.py` applies it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
MAY_BE_SLOW = re.compile(r"mark\.slow|\bsampled\(")
REASON = re.compile(r"  # (\S.*)")
FAST, REST, ALL = SUITES = ("fast", "rest", "all")
PEAK_MB = {FAST: 650, REST: 1250, ALL: 1500}
"""The most memory of one process; the goals are 600 and 1000. `all` is for a person who runs both
in one process."""


def fast_e2e() -> dict[str, str]:
    """The end-to-end tests of the fast suite, as `file::test`, each with its reason."""
    lines = (TESTS / "fast_e2e.txt").read_text("utf-8").splitlines()
    entries = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return dict(entries)


class Suite:
    """The tests of one suite, and of one room if one is given."""

    def __init__(self, name: str, room: str | None = None) -> None:
        self._name, self._room = name, room
        self._listed = fast_e2e()
        self._files = {entry.partition("::")[0] for entry in self._listed}

    @property
    def keeps_files_whole(self) -> bool:
        """Whether one process runs all tests of a file: what a file's tests share is made once,
        and the processes exchange a message for a file and not for each of thousands of tests.
        The other suites have files of minutes, which processes share."""
        return self._name == FAST

    def has_file(self, path: Path) -> bool:
        """Whether a file may hold a test of the suite; a file that holds none is not imported."""
        part = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
        if path.suffix != ".py" or part not in ("unit", "protocol", "e2e"):
            return True
        if self._room is not None and not is_about(path, self._room):
            return False
        if self._name == FAST:
            return part != "e2e" or path.name in self._files
        if self._name == REST:
            return part == "e2e" or bool(MAY_BE_SLOW.search(path.read_text("utf-8")))
        return True

    def has_test(self, path: Path, test: str, *, slow: bool) -> bool:
        if self._name == ALL:
            return True
        is_e2e = (TESTS / "e2e") in path.parents
        is_fast = not slow and (not is_e2e or f"{path.name}::{test}" in self._listed)
        return is_fast == (self._name == FAST)


def is_about(path: Path, room: str) -> bool:
    """Whether a file tests a room: it stands in the room's folder, has the room's name in its own
    or imports the room."""
    folder = TESTS / "unit" / room
    if TESTS / "unit" in path.parents:
        return folder in path.parents
    imported = rf"\btrt_responses\.{room.replace('/', '.')}\b"
    return room in path.stem.split("_") or bool(re.search(imported, path.read_text("utf-8")))


class Slow(NamedTuple):
    """A test or the name of a mark, the line that makes it slow, and why."""

    line: int
    name: str
    reason: str


def slow_tests() -> Iterator[tuple[Path, Slow]]:
    """What all files leave to the rest."""
    for part in ("unit", "protocol"):
        for path in sorted((TESTS / part).rglob("test_*.py")):
            source = path.read_text("utf-8")
            if MAY_BE_SLOW.search(source):
                yield from ((path, slow) for slow in slow_in(source))


def slow_in(source: str) -> list[Slow]:
    """What one file leaves to the rest: whole tests, and cases of which the others are a sample."""
    lines = source.splitlines()
    marks = [
        (mark, name)
        for mark, name in _marks(ast.parse(source))
        if MAY_BE_SLOW.search("\n".join(lines[mark.lineno - 1 : mark.end_lineno]))
    ]
    return [
        Slow(mark.lineno, name, "; ".join(REASON.findall("\n".join(_of(lines, mark)))))
        for mark, name in marks
    ]


def _of(lines: list[str], node: ast.expr) -> list[str]:
    """Only lines that are slow where single cases are marked; else all lines of the node."""
    found = lines[node.lineno - 1 : node.end_lineno]
    marked = [line for line in found if "mark.slow" in line]
    return marked or found


def _marks(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """What stands above functions and classes, or has a name in the module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.value, node.targets[0].id
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from ((mark, each.name) for mark in each.decorator_list)


def main() -> None:
    for path, slow in slow_tests():
        print(f"{path.relative_to(TESTS)}:{slow.line}: {slow.name}: {slow.reason}")


if __name__ == "__main__":
    main()
