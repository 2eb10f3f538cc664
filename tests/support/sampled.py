"""A sample of a test's cases for `make test`; the whole suite runs them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def sampled(
    names: str,
    cases: Iterable[object],
    *,
    every: int = 4,
    ids: Iterable[str] | Callable[..., str] | None = None,
) -> pytest.MarkDecorator:
    """`parametrize`, where only the first case and each so many behind it are not slow. A tuple has
    a value for each of several names. The line of the decorator says what all cases cost."""
    several = "," in names
    rows = (case if isinstance(case, tuple) and several else (case,) for case in cases)
    sample = [
        pytest.param(*row, marks=() if number % every == 0 else pytest.mark.slow)
        for number, row in enumerate(rows)
    ]
    return pytest.mark.parametrize(names, sample, ids=ids)
