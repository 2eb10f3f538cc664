"""How a step ends: with figures, failed or skipped."""

from __future__ import annotations

from collections.abc import Mapping

Figures = dict[str, object]


class Failed(Exception):
    """A claim did not hold: the reason in one sentence, and the figures up to it."""

    def __init__(self, why: str, figures: Figures | None = None) -> None:
        super().__init__(why)
        self.figures = figures or {}


class Skipped(Exception):
    """The step does not apply, with the reason."""


def check(wrong: Mapping[str, object], figures: Figures | None = None) -> Figures:
    """Raise a `Failed` with the sentences whose value is true, else return the figures."""
    if sentences := [sentence for sentence, is_true in wrong.items() if is_true]:
        raise Failed("; ".join(sentences), figures)
    return figures or {}
