"""The result of one check, and the exit status and output for many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Literal

from trt_responses.frozen import dataclass

State = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding about this machine. `note`: something is unavailable here, but not broken;
    `fault`: something is broken."""

    name: str
    state: State
    found: str
    remedy: str = ""


def exit_status(checks: Iterable[Check]) -> int:
    """The exit status of the command: 1 if there is a fault, else 0."""
    return int(any(check.state == "fault" for check in checks))


def as_json(checks: Iterable[Check]) -> str:
    """The checks as one JSON document."""
    every = list(checks)
    body = {"status": exit_status(every), "checks": [asdict(check) for check in every]}
    return json.dumps(body, indent=2)


def lines(checks: Sequence[Check]) -> list[str]:
    """One line per check for a terminal, each followed by its remedy."""
    width = max((len(check.name) for check in checks), default=0)
    printed = []
    for check in checks:
        printed.append(f"{check.state:<5}  {check.name:<{width}}  {check.found}")
        if check.remedy:
            printed.append(f"{'':<5}  {'':<{width}}  -> {check.remedy}")
    return printed
