"""The conformance kit against our own server, over sockets: as it is, and with planted faults."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import responses_conformance
from responses_conformance.checks import CHECKS
from responses_conformance.client import Server
from responses_conformance.runner import judge

from tests.support.planted_faults import FAULTS, Planted
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from responses_conformance.runner import Outcome

SCRIPT = Path(responses_conformance.__file__).with_name("script.yaml")
REFUSED_HERE = {
    "responses.errors.model": "takes any model's name",
    "responses.errors.key": "takes requests without a key",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that plays the kit's script, in a thread; a fault is planted by the path."""
    settings = Settings(
        engine=f"script://{SCRIPT}", store="memory://", model_aliases=("*",), max_calls=16
    )
    found: list[str] = []
    up, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving(Planted(create_app(settings))) as address:
            found.append(address.url)
            up.set()
            await over.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    up.wait()
    yield found[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


def judged(address: str, *names: str) -> tuple[Server, list[Outcome]]:
    server = Server(address, model="any")
    chosen = [check for check in CHECKS if not names or check.name in names]
    return server, judge(server, chosen, "scripted", 1, lambda number, check: None)


def test_our_server_passes_and_offers_everything(url: str) -> None:
    _, outcomes = judged(url)
    found = {o.check.name: f"{o.verdict}: {o.why}" for o in outcomes if o.verdict != "passed"}
    assert found.keys() == REFUSED_HERE.keys(), found
    assert all(why in found[name] for name, why in REFUSED_HERE.items())


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(url: str, name: str) -> None:
    _, [outcome] = judged(f"{url}/{name}/v1", FAULTS[name].found_by)
    assert outcome.verdict == "failed"
    assert outcome.exchanges
