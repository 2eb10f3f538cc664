"""What a stored response takes: `python -m bench.memory`, in a process that does nothing else.

Prints MiB of resident memory for 1,000 responses of 64 and 448 tokens in the memory store.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import uvloop

from bench.asgi import living, post
from bench.asks import BODY
from bench.ours import Playing
from bench.script import LENGTHS, script
from trt_responses.harmony import vocabulary as vocabularies

WARM_UP = 1000
STORED = 3000
CHUNK = 16


def measured() -> float:
    """MiB for each 1,000 stored responses, from a process of its own."""
    command = [sys.executable, "-m", "bench.memory"]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


async def _mib_for_1000() -> float:
    playing = Playing()
    playing.play(script(vocabularies.load(), LENGTHS[0]), CHUNK)
    async with living(playing.app):
        for _ in range(WARM_UP):
            await post(playing.app, BODY, len)
        before = _resident_bytes()
        for _ in range(STORED):
            await post(playing.app, BODY, len)
        return (_resident_bytes() - before) / 2**20 / (STORED / 1000)


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(_mib_for_1000()))
