"""What a response holds: its object, usage, formats, calls, limits and reasoning."""

from __future__ import annotations

import json

from responses_conformance.checks.base import Failure, NotJudged, NotOffered, check, expect
from responses_conformance.checks.kit import (
    CALL,
    CALLS,
    CITY,
    FACTS,
    FORMAT,
    PLACE,
    PLAIN,
    TOOLS,
    Kit,
    function,
    items,
    text_of,
)
from responses_conformance.checks.types import fault_of
from responses_conformance.client import Json
from responses_conformance.schema import departure

REFERENCE = "API reference, Responses"
CALLING = "Guide, Function calling"
STATELESS: Json = {"store": False, "include": ["reasoning.encrypted_content"]}
"""The server keeps nothing, and the client has all that the next request needs."""
WEATHER, TIME = map(function, TOOLS)
KEYS = (
    *("id", "object", "created_at", "status", "model", "output", "error", "incomplete_details"),
    *("instructions", "metadata", "parallel_tool_calls", "temperature", "tool_choice", "tools"),
    *("top_p", "usage"),
)
MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")


@check("responses.object", f"{REFERENCE}: The response object")
def whole(kit: Kit) -> None:
    """A response is the SDK's type, has all its keys, and says `object: response`."""
    found = kit.create()
    missing = [name for name in KEYS if name not in found]
    expect(not missing, f"it has no {', '.join(missing)}")
    expect(found["object"] == "response", f"`object` is {found['object']}")
    expect(found["status"] == "completed", f"its status is {found['status']}")
    fault = fault_of("response", found)
    expect(fault is None, str(fault))


@check("responses.echo", f"{REFERENCE}: The response object")
def echo(kit: Kit) -> None:
    """A response repeats the settings of its request."""
    sent: Json = {"temperature": 0.5, "top_p": 0.9, "metadata": {"kit": "yes"}}
    sent |= {"instructions": "Be brief.", "max_output_tokens": 4096, "tool_choice": "auto"}
    found = kit.create(*sent, **sent)
    for name, value in sent.items():
        expect(found.get(name) == value, f"`{name}` is {found.get(name)}, and {value} was sent")


@check("responses.usage", f"{REFERENCE}: usage")
def usage(kit: Kit) -> None:
    """Total tokens are input and output, details are parts of them, and reasoning is counted."""
    for run in kit.runs():
        found = run.last["usage"]
        total = found["input_tokens"] + found["output_tokens"]
        run.expect(found["input_tokens"] > 0, "no input tokens")
        run.expect(found["output_tokens"] > 0, "no output tokens")
        run.expect(found["total_tokens"] == total, f"total {found['total_tokens']}, sum {total}")
        thought = found["output_tokens_details"]["reasoning_tokens"]
        run.expect(thought <= found["output_tokens"], "more reasoning than output tokens")
        cached = found["input_tokens_details"]["cached_tokens"]
        run.expect(cached <= found["input_tokens"], "more cached than input tokens")
        shown = any(item.get("content") for item in items(run.last, "reasoning"))
        run.expect(thought or not shown, "it has reasoning, and `reasoning_tokens` is 0")


@check("responses.limit", f"{REFERENCE}: max_output_tokens, incomplete_details")
def limit(kit: Kit) -> None:
    """`max_output_tokens` ends a response as `incomplete` with its reason, within the limit."""
    last = kit.run("cut").last
    expect(
        last["status"] == "incomplete", f"its status is {last['status']}", kit.run("cut").exchange
    )
    reason = (last["incomplete_details"] or {}).get("reason")
    expect(reason == "max_output_tokens", f"its reason is {reason}", kit.run("cut").exchange)
    used = last["usage"]["output_tokens"]
    expect(used <= 24, f"{used} output tokens, limit 24", kit.run("cut").exchange)


# --- structured output ---------------------------------------------------------------------------


@check("responses.format.schema", "Guide, Structured outputs: schema adherence", by_model=True)
def schema(kit: Kit) -> None:
    """With a strict `json_schema` the text is JSON that follows it."""
    run = kit.run("schema")
    why = departure(_parsed(text_of(run.last)), PLACE)
    run.expect(why is None, f"it departs from the schema: {why}")


@check("responses.format.object", "Guide, Structured outputs: JSON mode", by_model=True)
def json_object(kit: Kit) -> None:
    """With `json_object` the text is a JSON object."""
    fields = {"input": f"{FACTS} Answer in JSON.", "text": {"format": {"type": "json_object"}}}
    made = kit.create("json_object", "format", **fields)
    if made["status"] == "incomplete":
        raise NotJudged("the model did not end its object within the limit")
    expect(isinstance(_parsed(text_of(made)), dict), "it is no JSON object")


@check(
    "responses.format.with_tools",
    "Guide, Structured outputs; Guide, Function calling",
    by_model=True,
)
def with_tools(kit: Kit) -> None:
    """A format beside tools gives a call or an answer in the format."""
    found = kit.create("format", "json_schema", input=FACTS, text=FORMAT, tools=[WEATHER])
    if not items(found, "function_call"):
        why = departure(_parsed(text_of(found)), PLACE)
        expect(why is None, f"it departs from the schema: {why}")


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise Failure(f"the text is no JSON: {text[:80]!r}") from None


# --- calls ---------------------------------------------------------------------------------------


@check("responses.tools.required", f"{CALLING}: Tool choice; Strict mode", by_model=True)
def required(kit: Kit) -> None:
    """`tool_choice: required` gives a call, whose arguments follow the strict schema."""
    last = kit.run("call").last
    _calls(kit.run("call").last, 1)
    expect(items(last, "function_call")[0]["name"] == "get_weather", "it calls another tool")


@check("responses.tools.named", f"{CALLING}: Tool choice, forced function", by_model=True)
def forced(kit: Kit) -> None:
    """A tool named in `tool_choice` is called, though another one fits the question."""
    choice = {"type": "function", "name": "get_time"}
    found = kit.create("tool_choice", input=CALL, tools=[WEATHER, TIME], tool_choice=choice)
    _calls(found, 1)
    names = {call["name"] for call in items(found, "function_call")}
    expect(names == {"get_time"}, f"it calls {', '.join(names)}")


@check("responses.tools.none", f"{CALLING}: Tool choice")
def none(kit: Kit) -> None:
    """`tool_choice: none` gives no call."""
    found = kit.create("tool_choice", input=CALL, tools=[WEATHER], tool_choice="none")
    expect(not items(found, "function_call"), "it calls a tool")


@check("responses.tools.allowed", f"{CALLING}: Tool choice, allowed tools", by_model=True)
def allowed(kit: Kit) -> None:
    """`allowed_tools` keeps calls to those it names."""
    choice = {"type": "allowed_tools", "mode": "required"}
    choice["tools"] = [{"type": "function", "name": "get_time"}]  # type: ignore[assignment]
    fields = {"input": CALL, "tools": [WEATHER, TIME], "tool_choice": choice}
    found = kit.create("tool_choice", "allowed_tools", **fields)
    names = {call["name"] for call in items(found, "function_call")}
    expect(names == {"get_time"}, f"it calls {', '.join(names) or 'nothing'}")


@check("responses.tools.parallel", f"{CALLING}: Parallel function calling", by_model=True)
def parallel(kit: Kit) -> None:
    """Two calls in one turn have ids of their own and arguments by the schema."""
    last = kit.run("calls").last
    _calls(last, 1)
    if len(items(last, "function_call")) == 1:
        raise NotJudged("the model made one call")
    _calls(last, 2)
    names = {call["call_id"] for call in items(last, "function_call")}
    expect(len(names) == 2, "two calls have one `call_id`", kit.run("calls").exchange)


@check("responses.tools.one", f"{CALLING}: Parallel function calling")
def one(kit: Kit) -> None:
    """`parallel_tool_calls: false` gives no more than one call."""
    fields = {"input": CALLS, "tools": [WEATHER], "parallel_tool_calls": False}
    found = kit.create("parallel_tool_calls", **fields)
    count = len(items(found, "function_call"))
    expect(count <= 1, f"it has {count} calls")


@check("responses.tools.loop", f"{CALLING}: The tool calling flow")
def loop(kit: Kit) -> None:
    """The results of calls, sent with `previous_response_id`, are answered."""
    first = kit.stored(input=CALL, tools=[WEATHER], tool_choice="required")
    fields = {"previous_response_id": first["id"], "tools": [WEATHER], "tool_choice": "none"}
    found = kit.create("previous_response_id", input=_results(first), **fields)
    expect(text_of(found), "there is no text behind the result")


@check(
    "responses.tools.replay",
    f"{CALLING}: The tool calling flow; Guide, Reasoning: keep reasoning items in context",
)
def replay(kit: Kit) -> None:
    """The output of a turn, sent back as it came with the results of its calls, is answered."""
    fields = {"input": CALL, "tools": [WEATHER], "tool_choice": "required", **STATELESS}
    first = kit.create(*STATELESS, **fields)
    sent = [{"role": "user", "content": CALL}, *first["output"], *_results(first)]
    fields = {"input": sent, "tools": [WEATHER], "tool_choice": "none", "store": False}
    expect(text_of(kit.create(**fields)), "there is no text behind the result")


def _results(response: Json) -> list[Json]:
    _calls(response, 1)
    return [
        {"type": "function_call_output", "call_id": call["call_id"], "output": "12 °C, rain"}
        for call in items(response, "function_call")
    ]


def _calls(response: Json, least: int) -> None:
    calls = items(response, "function_call")
    expect(len(calls) >= least, f"{len(calls)} calls, expected {least}")
    for call in calls:
        why = departure(_parsed(call["arguments"]), CITY)
        expect(why is None, f"the arguments depart from the schema: {why}")


# --- reasoning -----------------------------------------------------------------------------------


@check(
    "responses.reasoning.apart",
    "Guide, Reasoning: reasoning items; gpt-oss, Harmony response format: channels",
)
def apart(kit: Kit) -> None:
    """Reasoning and the marks of the model's format are in no message."""
    for run in kit.runs():
        text = text_of(run.last)
        marks = [mark for mark in MARKS if mark in text]
        run.expect(not marks, f"a message has {', '.join(marks)}")
        thoughts = [
            part["text"]
            for item in items(run.last, "reasoning")
            for part in item.get("content") or ()
            if len(part.get("text", "")) > 12
        ]
        run.expect(not any(thought in text for thought in thoughts), "a message has the reasoning")
    if kit.exact:
        last = kit.run("text").last
        expect("Quiet kit" not in text_of(last), "a message has the reasoning of the script")


@check("responses.reasoning.replay", "Guide, Reasoning: keep reasoning items in context")
def replayed(kit: Kit) -> None:
    """Reasoning items are accepted as they came, before a new question."""
    first = kit.create(*STATELESS, **STATELESS)
    sent = [{"role": "user", "content": PLAIN}, *first["output"]]
    kit.create(store=False, input=[*sent, {"role": "user", "content": "And of Norway?"}])


@check("responses.reasoning.encrypted", "Guide, Reasoning: encrypted reasoning items")
def encrypted(kit: Kit) -> None:
    """With `include` reasoning has `encrypted_content`, which stands for it in the next request."""
    include = ["reasoning.encrypted_content"]
    fields = {"input": CALL, "tools": [WEATHER], "tool_choice": "required"}
    first = kit.create("include", "encrypted", store=False, include=include, **fields)
    thoughts = items(first, "reasoning")
    if not thoughts:
        raise NotOffered("the response has no reasoning item")
    sealed = [
        {name: item[name] for name in ("type", "id", "summary", "encrypted_content")}
        if item.get("encrypted_content")
        else None
        for item in thoughts
    ]
    if not all(sealed):
        raise NotOffered("the server ignores `include: reasoning.encrypted_content`")
    rest = [item for item in first["output"] if item["type"] != "reasoning"]
    sent = [{"role": "user", "content": CALL}, *sealed, *rest, *_results(first)]
    fields = {"input": sent, "tools": [WEATHER], "tool_choice": "none"}
    with_it = kit.create(store=False, **fields)
    sent[1 : 1 + len(sealed)] = []
    without = kit.post(store=False, **fields)
    if without.status == 200:  # a server may want the reasoning of its calls
        longer = with_it["usage"]["input_tokens"] > without.json["usage"]["input_tokens"]
        expect(longer, "the prompt is as long as without the reasoning")


@check("responses.reasoning.effort", f"{REFERENCE}: reasoning.effort", by_model=True)
def effort(kit: Kit) -> None:
    """`reasoning.effort` is repeated, and `high` thinks more than `low`."""
    used = {}
    for name in ("low", "high"):
        question = "How many primes lie between 200 and 300?"
        found = kit.create("effort", "reasoning", input=question, reasoning={"effort": name})
        echoed = (found.get("reasoning") or {}).get("effort")
        expect(echoed == name, f"`reasoning.effort` is {echoed}, and {name} was sent")
        used[name] = found["usage"]["output_tokens_details"]["reasoning_tokens"]
    more = used["high"] > used["low"]
    expect(more or kit.exact, f"{used['high']} reasoning tokens with high, {used['low']} with low")
