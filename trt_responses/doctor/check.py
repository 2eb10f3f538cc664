"""One finding, and what follows from many. Knows words; looks at nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

State = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding about this machine. A `note` says that something cannot be done here and nothing
    is broken; a `fault` says that something is broken."""

    name: str
    state: State
    found: str
    remedy: str = ""


def exit_status(checks: Iterable[Check]) -> int:
    """The status of the command: 0 when nothing is broken, else 1."""
    return int(any(check.state == "fault" for check in checks))


def as_json(checks: Iterable[Check]) -> str:
    """The checks as one JSON document."""
    found = list(checks)
    body = {"status": exit_status(found), "checks": [asdict(check) for check in found]}
    return json.dumps(body, indent=2)


def lines(checks: Sequence[Check]) -> list[str]:
    """One line per check for a terminal, with its remedy under it."""
    width = max((len(check.name) for check in checks), default=0)
    found = []
    for check in checks:
        found.append(f"{check.state:<5}  {check.name:<{width}}  {check.found}")
        if check.remedy:
            found.append(f"{'':<5}  {'':<{width}}  -> {check.remedy}")
    return found
