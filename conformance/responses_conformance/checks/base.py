"""What a check is: a small function with a name, what it judges, and the clause it rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from responses_conformance.client import Exchange

if TYPE_CHECKING:
    from responses_conformance.checks.kit import Kit

Profile = Literal["hosted", "scripted", "transcripts"]
CHECKS: list[Check] = []


class Failure(Exception):
    """The server breaks the rule. `bytes_` and `exchange` show it; else the last exchange does.
    `alone`: the exchange needs none of those before it."""

    def __init__(
        self,
        why: str,
        exchange: Exchange | None = None,
        bytes_: bytes | None = None,
        *,
        alone: bool = False,
    ) -> None:
        super().__init__(why)
        self.exchange = exchange
        self.bytes = bytes_
        self.alone = alone


class NotOffered(Exception):
    """The server refuses the feature by its name, or has no such endpoint."""


class NotJudged(Exception):
    """The check cannot be made here; the message says why."""


@dataclass(frozen=True)
class Check:
    """One rule."""

    name: str
    judges: str
    clause: str
    run: Callable[[Kit], None]
    by_model: bool
    """Weights may break it too: a hosted server passes by its share of attempts."""


def check(
    name: str, clause: str, *, by_model: bool = False
) -> Callable[[Callable[[Kit], None]], Callable[[Kit], None]]:
    """Register the function as a check; its docstring says what it judges."""

    def register(run: Callable[[Kit], None]) -> Callable[[Kit], None]:
        judges = " ".join((run.__doc__ or "").split())
        CHECKS.append(Check(name, judges, clause, run, by_model))
        return run

    return register


def expect(
    holds: object, why: str, exchange: Exchange | None = None, bytes_: bytes | None = None
) -> None:
    """Raise a `Failure` unless it holds."""
    if not holds:
        raise Failure(why, exchange, bytes_)
