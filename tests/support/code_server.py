"""A server that runs code, to be killed: `python -m tests.support.code_server DIRECTORY` says its
port. Its engine writes a call of code that never ends, or, with `shell` behind the directory, of
a command that never ends and has begun another."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import SETTINGS, script
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS = (
    "<|channel|>analysis to=python code<|message|>open('begun', 'w').close()\n"
    "while True: pass<|call|>"
)
ENDLESS_COMMAND = (
    "<|channel|>commentary to=container.exec <|constrain|>json<|message|>"
    '{"cmd": ["bash", "-c", "(while :; do :; done) & echo > begun; while :; do :; done"]}<|call|>'
)


async def main(directory: str, tool: str) -> None:
    settings = Settings(**SETTINGS, data_dir=directory, **{tool: "boxed"})
    written = script(ENDLESS if tool == "python" else ENDLESS_COMMAND)
    async with serving(create_app(settings, engine=ScriptedEngine([written]))) as address:
        print(address.port, flush=True)
        await asyncio.Event().wait()


def begun(data_dir: Path) -> list[Path]:
    """What the endless code has left in its container."""
    return list(data_dir.glob("containers/*/cntr_*/begun"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
