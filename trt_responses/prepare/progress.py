"""Progress of long work: a bar on a terminal, plain lines elsewhere.
Counts bytes by phase; does none of the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

LINE_EVERY_S = 5.0


class Progress(Protocol):
    """Receives the beginning of each phase and the bytes done in it. `total_bytes` 0 is unknown."""

    def phase(self, name: str, total_bytes: int = 0) -> None: ...

    def advance(self, size_bytes: int) -> None: ...


class Silent:
    """Shows nothing."""

    def phase(self, name: str, total_bytes: int = 0) -> None: ...

    def advance(self, size_bytes: int) -> None: ...


class Lines:
    """Prints a line when a phase begins, one every few seconds, and one at its last byte."""

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self.phase("")

    def phase(self, name: str, total_bytes: int = 0) -> None:
        self._name, self._total, self._done = name, total_bytes, 0
        self._began = self._printed = self._clock()
        if name:
            size = f", {megabytes(total_bytes)}" if total_bytes else ""
            self._write(f"{name}{size}\n")

    def advance(self, size_bytes: int) -> None:
        self._done += size_bytes
        now = self._clock()
        if now - self._printed >= LINE_EVERY_S or self._done == self._total:
            self._printed = now
            self._write(self._line(now - self._began))

    def _line(self, seconds: float) -> str:
        rate = self._done / max(seconds, 1e-9)
        left = max(self._total - self._done, 0) / max(rate, 1e-9)
        return (
            f"{self._name}: {megabytes(self._done)} of {megabytes(self._total)}, "
            f"{megabytes(rate)}/s, {left:.0f} s left\n"
        )


class Bar:
    """Draws a bar on a terminal, with rich. A phase of unknown length pulses until the next."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=1, visible=False)

    def phase(self, name: str, total_bytes: int = 0) -> None:
        self.done()
        self._task = self._bars.add_task(name, total=float(total_bytes) or None)

    def advance(self, size_bytes: int) -> None:
        self._bars.advance(self._task, size_bytes)

    def done(self) -> None:
        """End the bar: fill one that pulses, leave one that counts bytes."""
        if self._bars.tasks[-1].total is None:
            self._bars.update(self._task, total=1, completed=1)


@contextmanager
def shown_on(stream: TextIO) -> Iterator[Progress]:
    """The progress display for a stream."""
    if not stream.isatty():
        yield Lines(lambda line: (stream.write(line), stream.flush()), time.monotonic)
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(file=stream)) as bars:
        bar = Bar(bars)
        yield bar
        bar.done()


def megabytes(size_bytes: float) -> str:
    """A number of bytes as text, in megabytes."""
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes < 1e9 else f"{size_bytes / 1e9:.2f} GB"
