"""Bars with a line, as SVG and as PNG. Knows numbers and their names; knows no benchmark.

The SVG is written here; the PNG is drawn by matplotlib where it is installed.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from pathlib import Path

ROW, TOP, LEFT, WIDTH, RIGHT = 26, 64, 330, 460, 130
GOOD, BAD, PLAIN, LINE = "#2f7d4f", "#b3372f", "#4a6fa5", "#222222"
BEYOND = 1.15
"""The end of the axis by the greatest value that is shown."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One value; `mark` is its goal, where it has one."""

    name: str
    value: float
    text: str
    mark: float | None = None
    good: bool | None = None

    @property
    def colour(self) -> str:
        return PLAIN if self.good is None else GOOD if self.good else BAD


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars from the top to the bottom, and one line through all of them."""

    title: str
    subtitle: str
    bars: tuple[Bar, ...]
    line: float
    line_name: str
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value stands on the axis, from 0 to 1."""
        if self.log:
            start, end = self._least / 2, self.most
            return math.log(max(value, start) / start) / math.log(end / start)
        return value / self.most

    @property
    def _least(self) -> float:
        return min(self.line, *(bar.value for bar in self.bars))

    @property
    def most(self) -> float:
        """The end of the axis."""
        marks = [bar.mark for bar in self.bars if bar.mark is not None]
        return BEYOND * max(self.line, *(bar.value for bar in self.bars), *marks)


def svg(chart: Chart) -> str:
    """The chart as one SVG document, which needs nothing beside it."""
    height = TOP + ROW * len(chart.bars) + 40
    whole = LEFT + WIDTH + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{height}" '
        f'viewBox="0 0 {whole} {height}" font-family="sans-serif" font-size="13" role="img">',
        f'<rect width="{whole}" height="{height}" fill="#ffffff"/>',
        text(16, 26, chart.title, "start", 'font-size="17" font-weight="bold"'),
        text(16, 46, chart.subtitle, "start", 'fill="#555555"'),
    ]
    for number, bar in enumerate(chart.bars):
        parts += _bar(chart, bar, TOP + ROW * number)
    x, end = _x(chart, chart.line), TOP + ROW * len(chart.bars)
    parts += [
        f'<line class="line" x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{end + 6}" '
        f'stroke="{LINE}" stroke-width="2" stroke-dasharray="6 3"/>',
        text(x, end + 24, chart.line_name, "middle"),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _bar(chart: Chart, bar: Bar, y: int) -> list[str]:
    end = _x(chart, bar.value)
    parts = [
        text(LEFT - 10, y + 17, bar.name, "end"),
        f'<rect class="bar" x="{LEFT}" y="{y + 4}" width="{round(end - LEFT, 1)}" '
        f'height="{ROW - 8}" fill="{bar.colour}"/>',
    ]
    last = end
    if bar.mark is not None:
        mark = _x(chart, bar.mark)
        last = max(last, mark)
        parts.append(
            f'<line class="mark" x1="{mark}" x2="{mark}" y1="{y + 1}" y2="{y + ROW - 1}" '
            f'stroke="{LINE}" stroke-width="3"/>'
        )
    return [*parts, text(last + 8, y + 17, bar.text, "start")]


def _x(chart: Chart, value: float) -> float:
    return round(LEFT + WIDTH * chart.place(value), 1)


def text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def has_png() -> bool:
    """Whether a PNG can be drawn here."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_png(chart: Chart, path: Path) -> None:
    """The same chart by matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")  # before pyplot: no window, no display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 1.4 + 0.32 * len(chart.bars)), layout="constrained")
    places = range(len(chart.bars))
    axes.barh(places, [b.value for b in chart.bars], color=[b.colour for b in chart.bars])
    for place, bar in zip(places, chart.bars, strict=True):
        if bar.mark is not None:
            axes.plot([bar.mark] * 2, [place - 0.45, place + 0.45], color=LINE, linewidth=3)
        at = max(bar.value, bar.mark or 0)
        axes.annotate(bar.text, (at, place), (6, 0), textcoords="offset points", va="center")
    axes.axvline(chart.line, color=LINE, linestyle="--", label=chart.line_name)
    axes.set(xscale="log" if chart.log else "linear", title=f"{chart.title}\n{chart.subtitle}")
    axes.set(yticks=places, yticklabels=[bar.name for bar in chart.bars])
    axes.margins(x=0.25)
    axes.invert_yaxis()
    figure.legend(loc="outside lower center")
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
