"""A server whose model writes programs, to be killed: `python -m tests.support.program_server
DIRECTORY TURN…` says its port. Its engine writes these turns, and its store is in the directory."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import KEYED, SETTINGS, script
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence


async def main(directory: str, turns: Sequence[str]) -> None:
    settings = Settings(
        **SETTINGS,
        **KEYED,
        data_dir=directory,
        store=f"sqlite:///{directory}/history.db",
        python="boxed",
        lease_s=1.0,
        takeover_s=60.0,
    )
    engine = ScriptedEngine([script(turn) for turn in turns])
    async with serving(create_app(settings, engine=engine)) as address:
        print(address.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
