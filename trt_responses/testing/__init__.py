"""A pytest fixture: a server of a test's own, whose model says what the test wrote.

def test_agent(responses_server):
    responses_server.script({"say": "Hello"})
    client = OpenAI(base_url=responses_server.base_url, api_key="-")
    assert client.responses.create(model="any", input="Hi").output_text == "Hello"
    assert responses_server.requests[0].body["input"] == "Hi"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trt_responses.testing.world import ResponsesServer, Sent

__all__ = ["ResponsesServer", "Sent", "responses_server"]

HOST = pytest.StashKey[Any]()


@pytest.fixture
def responses_server(request: pytest.FixtureRequest) -> Iterator[ResponsesServer]:
    """A server on a free port of the loopback, which plays `auto` until the test gives rules."""
    from trt_responses.testing.host import Host  # every pytest of this machine imports this module

    stash = request.config.stash
    host: Host | None = stash.get(HOST, None)
    if host is None:
        host = stash[HOST] = Host.begun()
        request.config.add_cleanup(host.end)
    world = host.open()
    try:
        yield world
    finally:
        host.close(world)
