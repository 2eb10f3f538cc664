"""One picture of all servers: four panels of lines over the number of streams, as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.pictures import text
from bench.servers.plays import PACED, REQUESTS, SATURATED, STEPS_A_SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.servers.measure import Row

WIDTH, HEIGHT, TOP, GAP_X, GAP_Y, LEFT = 380, 210, 100, 90, 80, 60
COLOURS = ("#1b6e3c", "#6fbf8b", "#d2691e", "#5b3fa0", "#a58fd6", "#b8a300")
GRID = "#dddddd"


@dataclass(frozen=True, slots=True)
class Panel:
    """One number of the rows of one kind of load; `dotted` is a second one beside it."""

    title: str
    kind: str
    number: str
    dotted: str | None = None


PANELS = (
    Panel(f"CPU µs for a token, paced: {STEPS_A_SECOND} a second in each stream", PACED, "cpu_us"),
    Panel("CPU µs for a token, as fast as it can", SATURATED, "cpu_us"),
    Panel("CPU µs for a request of 22 tokens", REQUESTS, "cpu_us"),
    Panel(
        *("First delta of these requests, ms: p50, dotted p99", REQUESTS),
        *("first_p50_ms", "first_p99_ms"),
    ),
)


def svg(rows: Sequence[Row], title: str, subtitle: str) -> str:
    """The picture; a row without a run has no point."""
    names = list(dict.fromkeys(row.who for row in rows))
    whole_x, whole_y = LEFT + 2 * WIDTH + GAP_X + 20, TOP + 2 * HEIGHT + GAP_Y + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole_x}" height="{whole_y}" '
        f'viewBox="0 0 {whole_x} {whole_y}" font-family="sans-serif" font-size="12" role="img">',
        f'<rect width="{whole_x}" height="{whole_y}" fill="#ffffff"/>',
        text(16, 24, title, "start", 'font-size="17" font-weight="bold"'),
        text(16, 43, subtitle, "start", 'fill="#555555"'),
    ]
    for number, name in enumerate(names):
        x = 16 + 290 * (number % 3)
        y = 62 + 17 * (number // 3)
        parts.append(f'<rect x="{x}" y="{y - 9}" width="18" height="9" fill="{COLOURS[number]}"/>')
        parts.append(text(x + 24, y, name, "start"))
    for number, panel in enumerate(PANELS):
        x = LEFT + (WIDTH + GAP_X) * (number % 2)
        y = TOP + 30 + (HEIGHT + GAP_Y) * (number // 2)
        parts += _panel(panel, [row for row in rows if row.kind == panel.kind], names, x, y)
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, rows: list[Row], names: list[str], x: int, y: int) -> list[str]:
    parts = [text(x, y - 10, panel.title, "start", 'font-weight="bold"')]
    ran = [row for row in rows if row.runs]
    if not ran:
        return parts
    numbers = [name for name in (panel.number, panel.dotted) if name]
    values = [value for row in ran for name in numbers for value in row.quartiles(name)]
    scale = Scale(x, y, sorted({row.streams for row in ran}), min(values), max(values))
    for value in scale.lines():
        at = scale.y_of(value)
        parts.append(f'<path d="M{x} {at}H{x + WIDTH}" stroke="{GRID}"/>')
        parts.append(text(x - 6, at + 4, f"{value:,g}", "end"))
    for streams in scale.streams:
        name = f"{streams:,} stream{'s' * (streams > 1)}"
        parts.append(text(scale.x_of(streams), y + HEIGHT + 18, name, "middle"))
    for name in names:
        own = [row for row in ran if row.who == name]
        colour = COLOURS[names.index(name)]
        for number in numbers:
            parts += _line(scale, own, number, colour, dotted=number == panel.dotted)
    return parts


def _line(scale: Scale, rows: list[Row], number: str, colour: str, *, dotted: bool) -> list[str]:
    points, parts = [], []
    for row in rows:
        low, middle, high = (scale.y_of(value) for value in row.quartiles(number))
        at = scale.x_of(row.streams)
        points.append(f"{at} {middle}")
        parts.append(f'<path d="M{at} {low}V{high}" stroke="{colour}" stroke-width="5"/>')
        parts.append(f'<circle cx="{at}" cy="{middle}" r="4" fill="{colour}"/>')
    dash = ' stroke-dasharray="2 4"' if dotted else ""
    if points:
        path = "L".join(points)
        line = f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        parts.append(line)
    return parts


@dataclass(frozen=True, slots=True)
class Scale:
    """The place of a value in a panel: logarithmic, each number of streams a step."""

    x: int
    y: int
    streams: list[int]
    least: float
    most: float

    def x_of(self, streams: int) -> float:
        step = WIDTH / len(self.streams)
        return round(self.x + step * (self.streams.index(streams) + 0.5), 1)

    def y_of(self, value: float) -> float:
        start, end = math.log(self.least / 1.15), math.log(self.most * 1.15)
        return round(self.y + HEIGHT * (end - math.log(value)) / (end - start), 1)

    def lines(self) -> list[float]:
        """Round values on the axis: 1, 2 and 5 of each power of ten."""
        powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        values = [each * 10.0**power for power in powers for each in (1, 2, 5)]
        return [value for value in values if self.least / 1.15 <= value <= self.most * 1.15]
