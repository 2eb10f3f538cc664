"""`python -m scripts.budgets`: each number beside its budget; 1 when one does not hold."""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase

from scripts.budgets import ledger, measures
from scripts.budgets.ledger import DECISIONS, FILE
from tests.support.imports import ROOT


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.budgets", description=__doc__)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--write", action="store_true", help="lower every budget that has fallen")
    change.add_argument(
        "--raise",
        nargs=2,
        metavar=("KEY", "REASON"),
        dest="raised",
        help=f"raise KEY (or every key of a pattern: 'words.*') and note REASON in {DECISIONS}",
    )
    options = parser.parse_args(arguments)
    text = (ROOT / FILE).read_text("utf-8")
    budgets = ledger.read(text)
    measured = measures.everything(*ledger.rooms(text))
    if options.write:
        return _write(text, budgets, ledger.lowered(budgets, measured))
    if options.raised:
        return _raise(text, budgets, measured, *options.raised)
    for key, count in measured.items():
        print(f"{key:48} {count:>10,} {budgets.get(key, 0):>10,}")
    found = list(ledger.faults(budgets, measured))
    print("\n".join(found) or "every budget holds")
    return bool(found)


def _write(text: str, before: dict[str, int], after: dict[str, int]) -> int:
    for key in [*after, *(key for key in before if key not in after)]:
        if before.get(key) != after.get(key):
            print(f"{key}: {before.get(key, 'new')} -> {after.get(key, 'removed')}")
    (ROOT / FILE).write_text(ledger.written(text, after), "utf-8")
    return 0


def _raise(
    text: str, budgets: dict[str, int], measured: dict[str, int], pattern: str, reason: str
) -> int:
    keys = [key for key in budgets if fnmatchcase(key, pattern)]
    raises = [
        ledger.Raise(key, budgets[key], measured[key])
        for key in keys
        if measured.get(key, 0) > budgets[key]
    ]
    if not raises:
        print(f"no number of {pattern!r} is above its budget", file=sys.stderr)
        return 1
    try:
        rows = "".join(ledger.row(one, reason) for one in raises)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    with (ROOT / DECISIONS).open("a", encoding="utf-8") as decisions:
        decisions.write(rows)
    print(rows, end="")
    return _write(text, budgets, budgets | {one.key: one.new for one in raises})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
