"""Recording a server of ours through OpenAI's SDK and Anthropic's, a kill in the middle, and a
replay of what was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest
from anyio.from_thread import start_blocking_portal

from tests.support.serve_command import serve
from tests.support.serving import serving
from trt_responses import Settings, create_app
from trt_responses.features.cassette import convert
from trt_responses.features.cassette.exchanges import read
from trt_responses.testing import responses_server as responses_server  # the fixture itself

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.testing import ResponsesServer

KEY = "sk-abcdefghij0123456789"


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)


def told(url: str) -> list[Any]:
    """What clients of each API get."""
    from anthropic import Anthropic

    with client_of(url) as client, Anthropic(base_url=url, api_key=KEY) as other:
        plain = client.responses.create(model="any", input="One")
        with client.responses.stream(model="any", input="Two") as stream:
            last = stream.get_final_response()
        ask: Any = {"model": "any", "messages": [{"role": "user", "content": "Three"}]}
        chat = client.chat.completions.create(**ask)
        with other.messages.stream(max_tokens=99, **ask) as blocks:
            message = blocks.get_final_message()
        with pytest.raises(openai.BadRequestError) as wrong:
            client.responses.create(model="any", input="Four", temperature=9)
        return [plain, last, chat, message, str(wrong.value)]


@pytest.mark.slow  # starts a server in a process
def test_what_was_recorded_is_replayed_and_a_kill_loses_no_finished_exchange(
    responses_server: ResponsesServer, tmp_path: Path
) -> None:
    responses_server.script(
        {"when": {"text": "slow"}, "say": "Never.", "pace_s": 60}, {"say": "auto"}
    )
    with serve(tmp_path, "--record", responses_server.base_url, "--cassette", "c.jsonl") as records:
        recorded = told(records.url)
        with client_of(records.url) as client:
            stream = client.responses.create(model="any", input="slow", stream=True)
            assert next(iter(stream)).type == "response.created"
            records.kill()
            with pytest.raises(openai.APIConnectionError):
                list(stream)
    assert len(responses_server.requests) == 6
    assert responses_server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert len(read(tmp_path / "c.jsonl")) == 5
    assert KEY not in (tmp_path / "c.jsonl").read_text()

    replaying = Settings(
        engine=f"replay://{tmp_path / 'c.jsonl'}#paced", model="any", store="memory://"
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(create_app(replaying))) as replays,
    ):
        assert told(replays.url) == recorded
        assert told(replays.url) == recorded
        with client_of(replays.url) as client:
            with pytest.raises(openai.BadRequestError, match="`input` differs: recorded"):
                client.responses.create(model="any", input="Five")
            with pytest.raises(openai.BadRequestError, match="it holds no GET /v1/models"):
                client.models.list()
    assert len(responses_server.requests) == 6

    test: dict[str, Any] = {}
    exec(convert.pytest(read(tmp_path / "c.jsonl")), test)
    responses_server.requests.clear()
    test["test_agent"](responses_server)
