"""The first steps of the server: a response by its id, answers under a schema, a forced call."""

from __future__ import annotations

from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Figures, check
from trt_responses.prove.client import MODEL, Json, calls_of, parsed, text_of

AGREE = "Do you agree? Answer yes."
EXPECTED = {"answer": "yes"}
YES: Json = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "answer", "schema": YES, "strict": True}}
CALL = {"type": "function", "name": "answer", "parameters": YES, "strict": True}


def serve(bench: Bench) -> Figures:
    """The server is ready, and a response can be read by its id the moment its client has it."""
    client = bench.server().client
    models = client.reply("GET", "/v1/models").body.get("data", [])
    made = client.create(input="Say hello.", max_output_tokens=32, temperature=0, store=True)
    path = f"/v1/responses/{made['id']}"
    kept, gone = client.reply("GET", path), client.reply("DELETE", path)
    hot = client.reply("POST", "/v1/responses", {"model": MODEL, "temperature": "hot"})
    unread = kept.status != 200 or kept.body.get("output") != made["output"]
    wrong = {
        "the server lists no model": not models,
        "a stored response cannot be read by its id": unread,
        "a response cannot be deleted": gone.status != 200,
        "a wrong field is not refused with a 400": hot.status != 400,
    }
    return check(wrong, {"models": len(models), "status": made["status"]})


def structured(bench: Bench) -> Figures:
    """An answer under a strict schema, and the arguments of a forced call."""
    client = bench.server().client
    common = {"input": AGREE, "max_output_tokens": 512, "temperature": 0, "store": False}
    answered = client.create(**common, text=FORMAT, reasoning={"effort": "low"})
    forced = {"type": "function", "name": "answer"}
    called = client.create(**common, tools=[CALL], tool_choice=forced)
    arguments = [call["arguments"] for call in calls_of(called)]
    wrong = {
        "the answer does not match its schema": parsed(text_of(answered)) != EXPECTED,
        "the forced call is not made": not arguments,
        "arguments do not match their schema": any(parsed(a) != EXPECTED for a in arguments),
    }
    usage = {"answer": answered["usage"], "call": called["usage"]}
    return check(wrong, {f"{name} tokens": each["output_tokens"] for name, each in usage.items()})
