"""`make cost`: the CPU time of requests to this package beside that of another commit, in turns.

The other commit is HEAD where the package has changes that are not committed, else HEAD's first
parent; `--against` names another. Three processes take turns: the other commit, the other commit
once more, and this package. The other commit beside itself shows how much the machine disturbs: a
row is quiet if its quartiles stay within 3 %.

A quiet row is slower, or faster, where the quartiles of the two ratios do not overlap; another row
only if the gap is as wide as its noise, else it is too noisy to tell. The exit status is 1 if a
quiet row is slower by more than 5 %, or a stored response larger by more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.cost_side import CASES, LONG_IDS, PACKAGE, SHORT_IDS

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
SIDE = Path(__file__).with_name("cost_side.py")
PROCESSES, REPEATS = 3, 7
"""Each side runs in so many processes, one after the other, and each measures so often: where a
process lies in memory makes a difference, too."""
REQUESTS, LONG_REQUESTS = 120, 30
"""In one measurement, about 80 ms: shorter ones differ by 3 % on an idle machine."""
BOUND = 1.05
QUIET = 0.03
"""How far the quartiles of a commit's ratio to itself may lie from 1."""
PATIENCE_S = 120
"""For one line of a process; a guard against a hang."""
REFUSED = 1


class NoCommit(Exception):
    """There is no commit to compare with, or it does not run; the message says why."""


class SideEnded(Exception):
    """A process ended or hangs; what it printed to stderr stands above."""


# --- which commit ---------------------------------------------------------------------------------


def other(root: Path, named: str | None) -> str:
    """The commit to compare with, as a full hash."""
    if _git(root, "rev-parse", "--git-dir") is None:
        raise NoCommit("no git repository, so no commit to compare with")
    name = named or ("HEAD" if differs(root, "HEAD") else "HEAD~1")
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if found is None:
        raise NoCommit(f"{name} is not a commit of this clone (is it shallow, or at its first?)")
    return found.strip()


def differs(root: Path, commit: str) -> bool:
    """Whether the package's files here are not those of the commit."""
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--", PACKAGE)
    return bool(new) or _git(root, "diff", "--quiet", commit, "--", PACKAGE) is None


def unpacked(root: Path, commit: str, folder: Path) -> Path:
    """The package of the commit in a folder."""
    archive = ["git", "-C", str(root), "archive", "--format=tar", commit, PACKAGE]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xf", "-", "-C", str(folder)], input=packed, check=True)
    return folder


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, or None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


# --- measuring ------------------------------------------------------------------------------------


class Side:
    """A process that measures one package."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def start(self) -> Any:
        """Wait until it can measure: the bytes of a stored response, and the cases that fail."""
        return json.loads(await self.line())

    async def line(self) -> str:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                line = (await self._process.stdout.readline()).decode()
        except TimeoutError:
            line = ""
        if not line:
            raise SideEnded
        return line

    async def spent_ns(self, case: str) -> float:
        """CPU time of one request."""
        count = LONG_REQUESTS if case == "long" else REQUESTS
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps([case, count])}\n".encode())
        return float(await self.line()) / count


@asynccontextmanager
async def sides(roots: Sequence[Path]) -> AsyncIterator[list[Side]]:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(SIDE)),
            cwd=root,
            env=_environment() | {"PYTHONPATH": str(root), "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for root in roots
    ]
    try:
        yield [Side(process) for process in processes]
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "TRT_RESPONSES_" not in name}


class Measured(NamedTuple):
    """Nanoseconds of CPU by row: before, before again, now. Bytes of a stored response, before and
    now. Cases that the other commit cannot answer."""

    times: dict[str, list[list[float]]]
    stored: tuple[int, int]
    absent: list[str]


async def measured(before: Path, now: Path) -> Measured:
    times: dict[str, list[list[float]]] = {case: [[], [], []] for case in CASES}
    for turn in range(PROCESSES):
        async with sides((before, before, now)) as three:
            before_side, again_side, now_side = three
            new = await now_side.start()
            if new["failed"]:
                raise SystemExit(f"cost: this package does not answer: {new['failed']}")
            try:
                old, _ = await before_side.start(), await again_side.start()
            except SideEnded:
                raise NoCommit("the other commit does not run here, as printed above") from None
            for repeat in range(REPEATS):
                for case in [name for name in CASES if name not in old["failed"]]:
                    for at in range(3):
                        place = (at + turn + repeat) % 3  # none is always the first
                        times[case][place].append(await three[place].spent_ns(case))
    return Measured(with_token(times), (old["stored"], new["stored"]), [*old["failed"]])


def with_token(times: Mapping[str, list[list[float]]]) -> dict[str, list[list[float]]]:
    """The rows, with a token's in the place of the long answer's."""
    rows = {case: row for case, row in times.items() if case != "long"}
    pairs = zip(times["long"], times["streamed, stored"], strict=True)
    rows["a token"] = [
        [(a - b) / (LONG_IDS - SHORT_IDS) for a, b in zip(long, short, strict=True)]
        for long, short in pairs
    ]
    return rows


# --- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quartiles:
    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:#.4g} ({self.low:#.4g} to {self.high:#.4g})"


def quartiles(values: Sequence[float]) -> Quartiles:
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


@dataclass(frozen=True, slots=True)
class Row:
    """One case: times in µs, and the ratios of neighbours in time."""

    before: Quartiles
    now: Quartiles
    itself: Quartiles
    """The other commit by itself."""
    ratio: Quartiles
    """This package by the other commit."""

    @property
    def noise(self) -> float:
        return max(1 - self.itself.low, self.itself.high - 1)

    @property
    def quiet(self) -> bool:
        return self.noise <= QUIET

    @property
    def refused(self) -> bool:
        return self.quiet and self.verdict == "slower" and self.ratio.median > BOUND

    @property
    def verdict(self) -> str:
        gap = 0.0 if self.quiet else self.noise
        if self.ratio.low > self.itself.high + gap:
            return "slower"
        if self.ratio.high < self.itself.low - gap:
            return "faster"
        return "the same" if self.quiet else "too noisy to tell"


def row(before: Sequence[float], again: Sequence[float], now: Sequence[float]) -> Row:
    """From nanoseconds, in the order in which they were measured."""
    return Row(
        quartiles([ns / 1000 for ns in before]),
        quartiles([ns / 1000 for ns in now]),
        quartiles([a / b for a, b in zip(again, before, strict=True)]),
        quartiles([a / b for a, b in zip(now, before, strict=True)]),
    )


def verdict_of(one: Row) -> str:
    return (
        one.verdict
        + ", refused" * one.refused
        + " (noisy)" * (one.verdict in ("slower", "faster") and not one.quiet)
    )


def sized(before: int, now: int) -> str:
    """The verdict on a stored response; its bytes have no noise."""
    if now > before * BOUND:
        return "larger, refused"
    return "larger" if now > before else "smaller" if now < before else "the same"


def report(found: Measured, console: Console) -> int:
    """Print the table; the exit status."""
    table = Table("µs of CPU (quartiles)", "before", "now", "now / before", "before / before", "")
    rows = {name: row(*times) for name, times in found.times.items() if times[0]}
    for name, one in rows.items():
        table.add_row(
            name, *map(str, (one.before, one.now, one.ratio, one.itself)), verdict_of(one)
        )
    for name in found.absent:
        table.add_row(name, "absent")
    before, now = found.stored
    size = sized(before, now)
    table.add_row("bytes stored", str(before), str(now), f"{now / before:.3f}", "exact", size)
    console.print(table)
    refused = [name for name, one in rows.items() if one.refused]
    refused += ["bytes stored"] if "refused" in size else []
    if refused:
        console.print(f"refused, by more than {BOUND - 1:.0%}: {'; '.join(refused)}")
    return REFUSED if refused else 0


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="the other commit (default: see above)")
    named = parser.parse_args(arguments).against
    try:
        return compared(root, other(root, named))
    except NoCommit as error:
        print(f"cost: {error}")
        return 2 if named else 0
    except SideEnded:
        print("cost: a process ended or hangs; what it printed stands above")
        return 1


def compared(root: Path, commit: str) -> int:
    """Measure and report; the exit status."""
    if not differs(root, commit):
        print(f"cost: the package is that of {commit[:12]}: nothing to compare")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        before = unpacked(root, commit, Path(folder))
        print(f"cost: this package beside that of {commit[:12]}", flush=True)
        found = asyncio.run(measured(before, root))
    return report(found, Console(width=160))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
