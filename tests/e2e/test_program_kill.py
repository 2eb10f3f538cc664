"""A server is killed while a program waits for its client, and while a program runs.

Budget: 30 s on one core: each server loads all that it needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.support.boxed import no_box, processes_in
from tests.support.code_server import begun
from tests.support.server_processes import PATIENCE_S, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openai.types.responses import Response

pytestmark = [
    pytest.mark.slow,  # each server is a process that starts interpreters in their boxes
    pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}"),
]

Json = dict[str, Any]

PAUSES = """\
low = await tools.stock(item="lamp")
print("ordered", await tools.order(item=low))
"""
ENDLESS = "open('begun', 'w').close()\nwhile True: pass"
ANSWER = "<|channel|>final<|message|>It is ordered.<|return|>"
CALLED: Json = {"allowed_callers": ["programmatic"], "parameters": {"type": "object"}}
TOOLS: Any = [
    {"type": "programmatic_tool_calling"},
    {"type": "function", "name": "stock", **CALLED},
    {"type": "function", "name": "order", **CALLED},
]


def program(code: str) -> str:
    return (
        "<|channel|>commentary to=functions.programmatic_tool_calling <|constrain|>json<|message|>"
        f"{json.dumps({'code': code})}<|call|>"
    )


@contextmanager
def killed_at_the_end(directory: Path, *turns: str) -> Iterator[openai.OpenAI]:
    """A client of a server with this directory."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.program_server", str(directory), *turns],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        with openai.OpenAI(base_url=url, api_key="-", max_retries=0) as client:
            yield client
    finally:
        server.kill()
        server.communicate()


def ended(client: openai.OpenAI, response_id: str) -> Response:
    """A response that ends in time."""
    until = time.monotonic() + PATIENCE_S
    while (found := client.responses.retrieve(response_id)).status in ("queued", "in_progress"):
        assert time.monotonic() < until, found
    return found


def output_for(response: Response, output: str) -> Any:
    call = response.output[-1]
    assert call.type == "function_call", response.output
    caller = {"type": "program", "caller_id": call.caller.caller_id}  # type: ignore[union-attr]
    return [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "caller": caller,
            "output": output,
        }
    ]


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_program_that_waits_goes_on_behind_each_death(tmp_path: Path, background: bool) -> None:
    fields: Any = {"model": "demo", "tools": TOOLS, "background": background}

    def made(client: openai.OpenAI, **more: Any) -> Response:
        return ended(client, client.responses.create(**fields, **more).id)

    with killed_at_the_end(tmp_path, program(PAUSES)) as client:
        first = made(client, input="Order what is low.")
        wrote, call = first.output
        assert (wrote.type, call.type, first.status) == ("program", "function_call", "completed")
    with killed_at_the_end(tmp_path, ANSWER) as client:
        assert client.responses.retrieve(first.id) == first
        second = made(client, input=output_for(first, "lamp"), previous_response_id=first.id)
        assert [(one.type, one.name) for one in second.output] == [("function_call", "order")]
    with killed_at_the_end(tmp_path, ANSWER) as client:
        assert client.responses.retrieve(second.id) == second
        third = made(client, input=output_for(second, "yes"), previous_response_id=second.id)
        assert [one.type for one in third.output] == ["program_output", "message"]
        assert third.output[0].result == "ordered yes\n"  # type: ignore[union-attr]
        assert third.output_text == "It is ordered."
        for one in (second, third):
            (item,) = client.responses.input_items.list(one.id)
            assert item.type == "function_call_output", "nothing is doubled"


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_program_that_runs_ends_with_its_server_and_its_response_says_so(
    tmp_path: Path, background: bool
) -> None:
    with killed_at_the_end(tmp_path, program(ENDLESS)) as client:
        stream = client.responses.create(
            model="demo", input="Count!", tools=TOOLS, background=background, stream=True
        )
        with stream:
            response_id = next(iter(stream)).response.id  # type: ignore[union-attr]
            until = time.monotonic() + PATIENCE_S
            while not begun(tmp_path):
                assert time.monotonic() < until
    until = time.monotonic() + PATIENCE_S
    while processes_in(tmp_path):
        assert time.monotonic() < until, "no program outlives its server"
    with killed_at_the_end(tmp_path, ANSWER) as client:
        assert not begun(tmp_path), "what it left is swept"
        if not background:
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(response_id)
        else:
            last = ended(client, response_id)
            assert last.status == "failed", last
            assert last.error is not None
        after = client.responses.create(model="demo", input="And now?", tools=TOOLS)
        assert after.output_text == "It is ordered."
