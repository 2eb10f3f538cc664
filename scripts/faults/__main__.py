"""Hurt real servers in every way that one machine can; print what was lost and how long it took.

Each server is a process with a history on disk, under clients that record every reply.
Afterwards every response that was acknowledged is read back and compared; a canary of fixed prompts
gets the same answers all the while; and the log is searched for what must never be there. Moments
come from a seed, so that a run can be repeated. The status is 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.faults import life, surroundings
from scripts.faults.overload import overload
from trt_responses.cli.building import prepare_demo
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.faults.servers import Row

    Act = partial[Row]
    """Called with a folder of its own."""

TERM, KILL, STOP = signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP


def long_acts(times: int, chance: random.Random) -> Sequence[Act]:
    """Acts over the embedded engine, except those that no real engine does on request."""
    return [
        partial(life.stop_a_start, number=TERM, times=times, chance=chance),
        partial(life.stop_a_start, number=KILL, times=times, chance=chance),
        partial(life.stop_under_load, number=TERM, times=times, chance=chance),
        partial(life.stop_under_load, number=KILL, times=times, chance=chance),
        partial(life.connect_through_a_drain),
        partial(life.break_the_engine, number=KILL, times=times),
        partial(life.break_the_engine, number=STOP, times=times),
        partial(life.break_the_engine, number=STOP, times=times, whose="engine's process"),
        partial(life.break_the_engine, number=STOP, times=times, whose="front end"),
        partial(life.freeze_redis, times=times, seconds=5),
        partial(life.say_nonsense, kind="garbage", seconds=10),
        partial(life.say_nonsense, kind="frames", seconds=10),
        partial(surroundings.fill_the_disk, kind="embedded", seconds=120),
        partial(surroundings.jump_in_time, kind="embedded", seconds=30),
        partial(surroundings.talk_over_a_bad_line, kind="embedded", seconds=30),
        partial(surroundings.hold_idle_sockets, kind="embedded", count=2000, seconds=5),
        partial(overload, kind="paced", seconds=60),
    ]


def short_acts(chance: random.Random) -> Sequence[Act]:
    """Over the scripted engine, a second or two of each."""
    return [
        partial(life.stop_under_load, number=KILL, times=1, chance=chance, kind="paced"),
        partial(life.connect_through_a_drain, kind="paced"),
        partial(life.say_nonsense, kind="garbage", seconds=1),
        partial(life.say_nonsense, kind="frames", seconds=1),
        partial(surroundings.fill_the_disk, kind="paced", seconds=60),
        partial(surroundings.jump_in_time, kind="paced", seconds=1.5),
        partial(surroundings.talk_over_a_bad_line, kind="paced", seconds=2),
        partial(surroundings.hold_idle_sockets, kind="paced", count=500, seconds=0.5),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="half a minute, no engine prepared")
    parser.add_argument("--times", type=int, default=5, help="how often each signal is sent")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--only", default="", help="rows whose number is among these: 1,4,9")
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    if not chosen.short:
        prepare_demo(Settings.from_environment())
    acts = short_acts(chance) if chosen.short else long_acts(chosen.times, chance)
    numbers = {int(each) for each in chosen.only.split(",") if each}
    print("      tried acknowledged  lost  longest s  what", flush=True)
    failed, begun_s = False, time.monotonic()
    for number, act in enumerate(acts, 1):
        if numbers and number not in numbers:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = act(Path(folder))
        print(f"{number:4}  {row}", *(f"      LOST {each}" for each in row.lost[:10]), sep="\n")
        sys.stdout.flush()
        failed = failed or bool(row.lost)
    print(f"{time.monotonic() - begun_s:.0f} s in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
