"""Runs checks against a server, one after the other, and notes what each found."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from responses_conformance.checks.base import (
    Check,
    Failure,
    NotJudged,
    NotOffered,
    Profile,
)
from responses_conformance.checks.kit import Kit
from responses_conformance.client import Exchange, Server
from responses_conformance.shares import interval

Verdict = Literal["passed", "failed", "not offered", "not judged"]
SHARE = 0.8
"""Of the attempts, those that must hold where the weights decide too."""


@dataclass
class Outcome:
    """What one check found."""

    check: Check
    verdict: Verdict = "passed"
    why: str = ""
    held: int = 0
    attempts: int = 0
    seconds: float = 0.0
    shown: bytes = b""
    """The bytes that show the failure."""
    exchanges: list[Exchange] = field(default_factory=list)
    """What led to it."""

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share that holds, with 95 % confidence."""
        return interval(self.held, self.attempts)


def judge(
    server: Server,
    checks: Sequence[Check],
    profile: Profile,
    repeats: int,
    seen: Callable[[int, Check], None],
    share: float = SHARE,
) -> list[Outcome]:
    """Run the checks, each `repeats` times."""
    kits = [Kit(server, profile) for _ in range(repeats)]
    outcomes = []
    for number, check in enumerate(checks):
        seen(number, check)
        outcome, began = Outcome(check), time.monotonic()
        for kit in kits:
            _attempt(kit, outcome)
            if outcome.verdict in ("not offered", "not judged"):
                break
        if outcome.verdict == "passed" and outcome.held < outcome.attempts:
            least = share if check.by_model and profile == "hosted" else 1.0
            if outcome.held < least * outcome.attempts:
                outcome.verdict = "failed"
        outcome.seconds = time.monotonic() - began
        outcomes.append(outcome)
    return outcomes


def _attempt(kit: Kit, outcome: Outcome) -> None:
    kit.server.trace, kit.shown = [], None
    outcome.attempts += 1
    try:
        outcome.check.run(kit)
        outcome.held += 1
    except NotOffered as fault:
        outcome.verdict, outcome.why = "not offered", str(fault)
    except NotJudged as fault:
        outcome.verdict, outcome.why = "not judged", str(fault)
    except Failure as fault:
        _note(kit, outcome, fault)
    except (OSError, http.client.HTTPException) as fault:
        _note(kit, outcome, Failure(f"the connection broke: {fault or type(fault).__name__}"))
    except Exception as fault:  # of a reply that no check foresees
        why = f"the reply has another shape ({type(fault).__name__}: {fault})"
        _note(kit, outcome, Failure(why, kit.shown, alone=kit.shown is not None))


def _note(kit: Kit, outcome: Outcome, fault: Failure) -> None:
    """Keep the first failure."""
    if outcome.why:
        return
    trace = kit.server.trace
    exchange = fault.exchange or (trace[-1] if trace else kit.shown)
    alone = fault.alone or exchange not in trace
    outcome.why = str(fault)
    outcome.exchanges = [exchange] if alone and exchange else trace
    outcome.shown = fault.bytes if fault.bytes is not None else exchange.reply if exchange else b""
