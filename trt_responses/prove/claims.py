"""How a step ends: with figures, failed or skipped."""

from __future__ import annotations

from collections.abc import Iterable

Figures = dict[str, object]


class Failed(Exception):
    """A claim did not hold: the reason in one sentence, and the figures up to it."""

    def __init__(self, why: str, figures: Figures | None = None) -> None:
        super().__init__(why)
        self.figures = figures or {}


class Skipped(Exception):
    """The step does not apply, with the reason."""


def check(claims: Iterable[tuple[str, object]], figures: Figures | None = None) -> None:
    """Raise a `Failed` with the sentences whose value is true."""
    if wrong := [sentence for sentence, is_wrong in claims if is_wrong]:
        raise Failed("; ".join(wrong), figures)
