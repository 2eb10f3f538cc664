"""Budgets as a file, and the rules by which it may change: down at any time, up with a reason.

`tests/budgets.toml` has a number for each key. Every raise of a number, in any commit of the
first-parent history or in the working tree, needs a row in `docs/decisions/budgets.md`.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = Path("tests/budgets.toml")
DECISIONS = Path("docs/decisions/budgets.md")
SLACK_PARTS = 200
"""A number may lie below its budget by one part of so many, so that few commits write the file."""
ROOM_SLACK = 3
"""The same for a room's words, whose sum has a budget too."""

LINE = re.compile(r'^"(?P<key>[^"]+)" = (?P<value>\d+)$')
ROW = re.compile(r"^\| `(?P<key>[^`]+)` \| \d+ \| (?P<new>\d+) \| [^|]*\w[^|]* \|$")


class Raise(NamedTuple):
    key: str
    old: int
    new: int


def read(text: str) -> dict[str, int]:
    """The numbers in a file of budgets."""
    found = (LINE.match(line) for line in text.splitlines())
    return {match["key"]: int(match["value"]) for match in found if match}


def rooms(text: str) -> tuple[list[str], list[str]]:
    """The modules and folders of the core, and of the libraries that it may import."""
    table = tomllib.loads(text)["core"]
    return table["rooms"], table["libraries"]


def written(text: str, budgets: Mapping[str, int]) -> str:
    """The file with these numbers, its head unchanged."""
    head = text.partition("\n[budgets]\n")[0]
    return f"{head}\n[budgets]\n" + "".join(f'"{key}" = {n}\n' for key, n in budgets.items())


# --- a measure against its budget -----------------------------------------------------------------


def slack(key: str, budget: int) -> int:
    """How far below its budget a number may lie."""
    return ROOM_SLACK if key.startswith("words.") else budget // SLACK_PARTS


def faults(budgets: Mapping[str, int], measured: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with each number, and what to do."""
    for key in [*measured, *(key for key in budgets if key not in measured)]:
        budget, count = budgets.get(key), measured.get(key, 0)
        if budget is None:
            yield f"{key} is {count} and has no budget: run `python -m scripts.budgets --write`"
        elif count > budget:
            yield (
                f"{key} is {count}, budget {budget}: make it smaller, or give a reason with "
                f"`python -m scripts.budgets --raise {key} REASON`"
            )
        elif count < budget - slack(key, budget) or (not count and key not in measured):
            yield (
                f"{key} is {count}, budget {budget}: write {count} in {FILE}, "
                "or run `python -m scripts.budgets --write`"
            )


def lowered(budgets: Mapping[str, int], measured: Mapping[str, int]) -> dict[str, int]:
    """The budgets with every number that has fallen, and with those of new keys."""
    return {key: min(count, budgets.get(key, count)) for key, count in measured.items()}


# --- raises and their reasons ---------------------------------------------------------------------


def raises(root: Path) -> list[Raise]:
    """Every raise since the first number of its key, as far as git has the history here. A key that
    went away keeps its last number."""
    last: dict[str, int] = {}
    found = []
    for version in _versions(root):
        for key, new in version.items():
            if key in last and new > last[key]:
                found.append(Raise(key, last[key], new))
        last |= version
    return found


def _versions(root: Path) -> Iterator[dict[str, int]]:
    """What each commit wrote in the file, oldest first, and the file as it stands."""
    command = ("log", "--first-parent", "-m", "-p", "--reverse", "--unified=0", "--format=%x00")
    whole = ["git", "-C", str(root), *command, "--", FILE.as_posix()]
    try:
        done = subprocess.run(whole, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or the sources of a release
        patches = []
    else:
        patches = done.stdout.split("\0")[1:]
    for patch in patches:
        yield read("\n".join(line[1:] for line in patch.split("\n") if line.startswith("+")))
    yield read((root / FILE).read_text("utf-8"))


def unexplained(found: list[Raise], decisions: str) -> list[Raise]:
    """Raises without a row of their own, which has the key, the new number and a reason."""
    matches = map(ROW.match, decisions.splitlines())
    rows = Counter((match["key"], int(match["new"])) for match in matches if match)
    wanted = Counter((one.key, one.new) for one in found)
    return [one for one in found if wanted[one.key, one.new] > rows[one.key, one.new]]


def row(one: Raise, reason: str) -> str:
    line = f"| `{one.key}` | {one.old} | {one.new} | {' '.join(reason.split())} |"
    if not ROW.match(line):
        raise ValueError("A reason needs words and no '|'.")
    return f"{line}\n"
