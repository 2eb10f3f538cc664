"""A server whose engine cannot recover ends, so that whoever started it starts it anew."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.scripted.engine import Script, ScriptedEngine
from trt_responses.app import create_app
from trt_responses.serve.server import Server, bound
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def test_a_server_whose_engine_is_lost_ends_and_says_why() -> None:
    engine = ScriptedEngine([Script()])

    class Losing(Server):
        async def on_tick(self, counter: int) -> bool:
            ends = await super().on_tick(counter)
            if app.state.lifecycle.state == "ready":
                engine.kill("its card fell off the bus")
            return ends

    settings = Settings(port=0, log_level="error")
    app = create_app(settings, engine=engine)
    server = Losing(app, settings)
    asyncio.run(asyncio.wait_for(server.serve(sockets=[bound(settings)]), 60))
    assert server.started
    assert server.lost == "its card fell off the bus"


SMALL = """
import asyncio, resource, sys
from pathlib import Path
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.errors import StartupError

resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
engine = LlamaCppEngine(Path(sys.argv[1]), context_tokens=4_000_000, slots=4, threads=1)

async def start():
    try:
        await engine.start()
    except StartupError as error:
        print("refused:", error)
    finally:
        await engine.stop(1.0)

asyncio.run(start())
"""


@pytest.mark.xdist_group("embedded")
def test_a_cache_that_memory_cannot_hold_stops_the_start_with_a_sentence(random_gguf: Path) -> None:
    """Sixteen million tokens of cache, in a process that may have 3 GiB."""
    made = subprocess.run(
        [sys.executable, "-c", SMALL, str(random_gguf)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert made.stdout.startswith("refused: "), made.stderr
    assert "\n" not in made.stdout.strip()
