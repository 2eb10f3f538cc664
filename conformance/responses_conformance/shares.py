"""Shares of attempts, with what is known of them."""

from __future__ import annotations

from math import sqrt

Z = 1.96
"""Of 95 % confidence."""


def interval(held: int, attempts: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    if not attempts:
        return 0.0, 1.0
    share, square = held / attempts, Z * Z / attempts
    middle = (share + square / 2) / (1 + square)
    half = Z / (1 + square) * sqrt(share * (1 - share) / attempts + square / attempts / 4)
    return max(0.0, middle - half), min(1.0, middle + half)
