"""Agents of OpenAI's SDK against a script, over real sockets: the command, and pytest's fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from trt_responses.testing import responses_server as responses_server  # the fixture itself

if TYPE_CHECKING:
    from trt_responses.testing import ResponsesServer

TOOLS: Any = [
    {
        "type": "function",
        "name": name,
        "description": about,
        "parameters": {
            "type": "object",
            "properties": {key: {"type": "string"} for key in keys},
            "required": keys,
        },
    }
    for name, about, keys in (
        ("find_flight", "Find a flight to a city", ["city"]),
        ("book_hotel", "Book a hotel in a city", ["city"]),
        ("send_email", "Send an email to a person", ["to"]),
    )
]


def client_of(server: ResponsesServer, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.base_url, api_key="-", **options)


def agent(client: openai.OpenAI, question: str) -> tuple[list[str], str]:
    """The loop that every agent has: calls until there is an answer."""
    called: list[str] = []
    items: list[Any] = [{"role": "user", "content": question}]
    while True:
        response = client.responses.create(model="any", input=items, tools=TOOLS)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return called, response.output_text
        items += [item.model_dump(exclude_none=True) for item in response.output]
        for call in calls:
            called.append(f"{call.name} {call.arguments}")
            output = f"{call.name} is done"
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": output}
            )


def test_an_agent_of_three_tools_ends_by_itself(responses_server: ResponsesServer) -> None:
    with client_of(responses_server) as client:
        called, answer = agent(client, "Please book a hotel in Bern")
    assert called == ['book_hotel {"city": "Bern"}']
    assert answer == "book_hotel returned: book_hotel is done"
    assert [sent.path for sent in responses_server.requests] == ["/v1/responses"] * 2
    assert responses_server.requests[0].body["input"][0]["content"] == "Please book a hotel in Bern"


def test_a_503_in_the_middle_is_tried_again(responses_server: ResponsesServer) -> None:
    responses_server.script(
        {"when": {"result": False}, "call": {"name": "find_flight"}},
        {"when": {"times": 1}, "refuse": {"status": 503, "retry_after": 0}},
        {"say": "Booked: {result}"},
    )
    with client_of(responses_server, max_retries=2) as client:
        called, answer = agent(client, "To Rome, please")
    assert (len(called), answer) == (1, "Booked: find_flight is done")
    assert len(responses_server.requests) == 3


def test_a_stream_that_is_cut_is_an_error_of_the_connection(
    responses_server: ResponsesServer,
) -> None:
    responses_server.script({"say": "A long answer, of which little arrives.", "cut_after": 1500})
    with client_of(responses_server, max_retries=0) as client:
        stream = client.responses.create(model="any", input="Hello", stream=True)
        with pytest.raises(openai.APIConnectionError):
            list(stream)
