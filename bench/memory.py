"""What a stored response takes: `python -m bench.memory`, in a process that does nothing else.

Prints MiB of resident memory for 1,000 responses of 64 and 448 tokens in the memory store.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from bench.asgi import living, post
from bench.asks import BODY
from bench.ours import Playing
from bench.script import LENGTHS, ids, script
from trt_responses.tokens import vocabulary as vocabularies
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from bench.script import Script
    from trt_responses.tokens.vocabulary import Vocabulary

WARM_UP = 1000
STORED = 3000
CHUNK = 16


def measured() -> float:
    """MiB for each 1,000 stored responses, from a process of its own."""
    command = [sys.executable, "-m", "bench.memory"]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


async def _mib_for_1000() -> float:
    playing = Playing()
    vocabulary = vocabularies.load()
    words = script(vocabulary, LENGTHS[0])
    before = 0
    async with living(playing.app):
        for number in range(WARM_UP + STORED):
            if number == WARM_UP:
                before = resident_bytes()
            playing.play(_numbered(vocabulary, words, number), CHUNK)
            await post(playing.app, BODY, len)
        return (resident_bytes() - before) / 2**20 / (STORED / 1000)


def _numbered(vocabulary: Vocabulary, words: Script, number: int) -> Script:
    """The same with a number at the head of each message: equal messages would be stored once."""
    own = ids(vocabulary, f"{number} ")
    token_ids = [
        each
        for token_id in words.token_ids
        for each in ((token_id, *own) if token_id == CONTROL.message else (token_id,))
    ]
    return replace(words, token_ids=tuple(token_ids))


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(_mib_for_1000()))
