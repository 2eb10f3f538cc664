"""What is measured of two versions, and when one is too slow to take the other's place.

Knows times and counts; knows no engine and no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from trt_responses.errors import ApiError
from trt_responses.frozen import dataclass

FIRST_TOKEN_RATIO = 1.5
"""So much longer may a first token take."""
SPEED_RATIO = 0.7
"""So much of the tokens per second must be there."""
UNNOTICED_S, UNNOTICED_TOKEN_S = 0.01, 0.0005
"""A first token that comes so much later, or each of the others, is not noticed, whatever the
ratio."""
LEAST_TOKENS = 4
"""With fewer tokens a speed says nothing."""


@dataclass(frozen=True, slots=True)
class Took:
    """What one version made of one prompt."""

    status: str
    fault: str | None
    token_ids: tuple[int, ...]
    repairs: int
    first_token_s: float
    decode_s: float


class Row(NamedTuple):
    """One prompt, and what both have made of it; the times are the best of each."""

    old: Took
    new: Took

    @property
    def equal(self) -> float:
        """The share of the tokens that are equal, up to the first that is not."""
        old, new = self.old.token_ids, self.new.token_ids
        same = next(
            (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
            min(len(old), len(new)),
        )
        return same / (max(len(old), len(new)) or 1)


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gate has measured, and why it stays shut if it does."""

    prompts: int
    refused: str | None = None
    equal_tokens: float | None = None
    first_token_ratio: float | None = None
    speed_ratio: float | None = None
    repairs: tuple[int, int] | None = None
    """Before, and now."""

    def to_dict(self) -> dict[str, Any]:
        return {
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


def report_of(rows: Sequence[Row], prompts: int) -> GateReport:
    """The totals of the rows; `prompts` is the number of prompts."""
    if not rows:
        return GateReport(prompts)
    tokens = [max(len(row.old.token_ids), len(row.new.token_ids)) for row in rows]
    equal = sum(row.equal * count for row, count in zip(rows, tokens, strict=True))
    speeds = [row for row in rows if min(map(_decoded, row)) >= LEAST_TOKENS]
    return GateReport(
        prompts=prompts,
        equal_tokens=equal / max(1, sum(tokens)),
        first_token_ratio=_ratio(
            sum(row.new.first_token_s for row in rows),
            sum(row.old.first_token_s for row in rows),
        ),
        speed_ratio=_ratio(_speed([r.new for r in speeds]), _speed([r.old for r in speeds])),
        repairs=(sum(row.old.repairs for row in rows), sum(row.new.repairs for row in rows)),
    )


def better(one: Took, other: Took) -> Took:
    """The earlier outcome, with the better of the times. Times of other lengths do not compare."""
    comparable = len(one.token_ids) == len(other.token_ids)
    decode_s = min(one.decode_s, other.decode_s) if comparable else one.decode_s
    first_token_s = min(one.first_token_s, other.first_token_s)
    return replace(one, first_token_s=first_token_s, decode_s=decode_s)


def _decoded(took: Took) -> int:
    return len(took.token_ids) - 1


def _speed(took: Sequence[Took]) -> float:
    """Tokens per second, the first ones left out."""
    return max(1, sum(map(_decoded, took))) / (sum(each.decode_s for each in took) or 1e-9)


def _ratio(new: float, old: float) -> float | None:
    return new / old if old > 0 else None


def slow(report: GateReport, rows: Sequence[Row]) -> str | None:
    """What is too slow, if it is by so much that somebody could notice."""
    first, speed = report.first_token_ratio, report.speed_ratio
    later_s = sum(row.new.first_token_s - row.old.first_token_s for row in rows) / len(rows)
    speeds = [row for row in rows if min(map(_decoded, row)) >= LEAST_TOKENS]
    longer_s = 0.0
    if speeds:
        longer_s = 1 / _speed([r.new for r in speeds]) - 1 / _speed([r.old for r in speeds])
    if first is not None and first > FIRST_TOKEN_RATIO and later_s > UNNOTICED_S:
        return (
            f"its first tokens take {first:.2f} times as long as the promoted version's, and at "
            f"most {FIRST_TOKEN_RATIO:g} times is allowed"
        )
    if speed is not None and speed < SPEED_RATIO and longer_s > UNNOTICED_TOKEN_S:
        return (
            f"it makes {speed:.2f} times the tokens per second of the promoted version, and at "
            f"least {SPEED_RATIO:g} times is required"
        )
    return None


class LoadRefused(ApiError):
    """The version is not served; the one before goes on."""

    status = 409
    type = "invalid_request_error"
    code = "version_refused"

    def __init__(self, message: str, report: GateReport | None = None) -> None:
        super().__init__(message)
        self.report = report
