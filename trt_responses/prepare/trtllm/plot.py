"""A plot of one line through a few points, as a small SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 20, 40, 50
LINE = "#3b6fb6"


def line_plot(
    points: Sequence[tuple[float, float]], *, title: str, x_name: str, y_name: str
) -> str:
    """The SVG of a line through points sorted by x. Both axes run from 0 to the largest value."""
    x_most = max((x for x, _ in points), default=0.0) or 1.0
    y_most = max((y for _, y in points), default=0.0) or 1.0
    placed = [(_x(x / x_most), _y(y / y_most)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{LINE}"/>' for x, y in placed)
    labels = "".join(_label(x, x_most) for x in sorted({x for x, _ in points})[-6:])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="{WIDTH / 2}" y="22" font-size="14">{escape(title)}</text>'
        f'<path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}" fill="none" stroke="#444"/>'
        f'<text x="{LEFT - 8}" y="{TOP + 4}" text-anchor="end">{y_most:,.0f}</text>'
        f'<text x="{LEFT - 8}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{TOP - 8}" text-anchor="start">{escape(y_name)}</text>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}">{escape(x_name)}</text>{labels}'
        f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>{dots}</svg>\n'
    )


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _label(x: float, x_most: float) -> str:
    return f'<text x="{_x(x / x_most):.1f}" y="{HEIGHT - BOTTOM + 18}">{x:g}</text>'
