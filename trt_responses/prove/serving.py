"""The first steps of the server: a response by its id, answers under a schema, a forced call."""

from __future__ import annotations

import orjson

from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Figures, check
from trt_responses.prove.client import calls_of, text_of

HELLO = "Say hello."
YES = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "answer", "schema": YES, "strict": True}}
CALL = {"type": "function", "name": "answer", "parameters": YES, "strict": True}
AGREE = "Do you agree? Answer yes."
EXPECTED = {"answer": "yes"}


def serve(bench: Bench) -> Figures:
    """The server is ready, and a response can be read by its id the moment its client has it."""
    client = bench.server().client
    models = client.reply("GET", "/v1/models").body.get("data", [])
    check([("the server lists no model", not models)])
    made = client.create(input=HELLO, max_output_tokens=32, temperature=0, store=True)
    kept = client.reply("GET", f"/v1/responses/{made['id']}")
    gone = client.reply("DELETE", f"/v1/responses/{made['id']}")
    live = client.reply("GET", "/health/live")
    unread = kept.status != 200 or kept.body.get("output") != made["output"]
    refused = client.reply("POST", "/v1/responses", {"model": "prove", "temperature": "hot"})
    check(
        [
            ("a stored response cannot be read by its id", unread),
            ("a response cannot be deleted", gone.status != 200),
            ("/health/live is not 200", live.status != 200),
            ("a wrong field is not refused with a 400", refused.status != 400),
        ]
    )
    return {"models": len(models), "status": made["status"], "output tokens": _tokens(made)}


def structured(bench: Bench) -> Figures:
    """An answer under a strict schema, the arguments of a forced call, and log probabilities."""
    client = bench.server().client
    common = {"input": AGREE, "max_output_tokens": 512, "temperature": 0, "store": False}
    answered = client.create(**common, text=FORMAT, reasoning={"effort": "low"})
    forced = {"type": "function", "name": "answer"}
    called = client.create(**common, tools=[CALL], tool_choice=forced)
    calls = calls_of(called)
    check(
        [
            ("the answer does not match its schema", _parsed(text_of(answered)) != EXPECTED),
            ("the forced call is not made", not calls),
            (
                "a call's arguments do not match their schema",
                any(_parsed(call["arguments"]) != EXPECTED for call in calls),
            ),
        ]
    )
    return {"answer tokens": _tokens(answered), "call tokens": _tokens(called)}


def _parsed(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _tokens(response: dict[str, dict[str, int]]) -> int:
    return response["usage"]["output_tokens"]
