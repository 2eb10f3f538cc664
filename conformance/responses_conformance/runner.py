"""Runs checks against a server, one after the other, and notes what each found."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """Run the checks one after the other, each `repeats` times at once."""
    kits = [Kit(server.copy(), profile) for _ in range(repeats)]
    outcomes = []
    with ThreadPoolExecutor(repeats) as threads:
        spread = threads.map if repeats > 1 else map
        for number, check in enumerate(checks):
            seen(number, check)
            began = time.monotonic()
            attempts = list(spread(_attempt, kits, [check] * repeats))
            least = share if check.by_model and profile == "hosted" else 1.0
            outcome = _joined(attempts, least)
            outcome.seconds = time.monotonic() - began
            outcomes.append(outcome)
    return outcomes


def _joined(attempts: Sequence[Outcome], least: float) -> Outcome:
    """One outcome: of the attempts that could be judged, the share that holds decides."""
    failed = [outcome for outcome in attempts if outcome.verdict == "failed"]
    passed = [outcome for outcome in attempts if outcome.verdict == "passed"]
    outcome = (failed or passed or attempts)[0]
    if not failed and not passed:
        return outcome
    outcome.attempts, outcome.held = len(failed) + len(passed), len(passed)
    if outcome.held >= least * outcome.attempts:
        outcome.verdict = "passed"
    return outcome


def _attempt(kit: Kit, check: Check) -> Outcome:
    kit.server.trace, kit.shown = [], None
    outcome = Outcome(check)
    try:
        check.run(kit)
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
    return outcome


def _note(kit: Kit, outcome: Outcome, fault: Failure) -> None:
    trace = kit.server.trace
    exchange = fault.exchange or (trace[-1] if trace else kit.shown)
    alone = fault.alone or exchange not in trace
    outcome.verdict, outcome.why = "failed", str(fault)
    outcome.exchanges = [exchange] if alone and exchange else trace
    outcome.shown = fault.bytes if fault.bytes is not None else exchange.reply if exchange else b""
