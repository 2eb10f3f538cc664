"""Errors: their statuses, their shape, and that the server goes on behind them."""

from __future__ import annotations

from responses_conformance.checks.base import NotOffered, check, expect
from responses_conformance.checks.kit import CALL, Kit, function
from responses_conformance.client import Exchange, Json

CODES = "Guide, Error codes; API reference, errors: message, type, param, code"


def shaped(exchange: Exchange, *statuses: int, param: str = "") -> None:
    """A refusal in OpenAI's shape, with one of the statuses, and with the field's name."""
    right = exchange.status in statuses
    expect(right, f"status {exchange.status}, expected {' or '.join(map(str, statuses))}", exchange)
    error = exchange.error
    for name in ("message", "type"):
        expect(isinstance(error.get(name), str), f"the error has no `error.{name}`", exchange)
    if param:
        found = error.get("param") or ""
        expect(param in found, f"`error.param` is {found or 'empty'}, expected {param}", exchange)


@check("responses.errors.value", CODES)
def value(kit: Kit) -> None:
    """A value out of its bounds, or of another type, is a 400 whose `param` names the field."""
    shaped(kit.post(temperature=9), 400, param="temperature")
    shaped(kit.post(top_p="much"), 400, param="top_p")
    shaped(kit.post(max_output_tokens=-1), 400, param="max_output_tokens")


@check("responses.errors.input", CODES)
def input_(kit: Kit) -> None:
    """An input item of an unknown type, or with an unknown role, is a 400 that names the place."""
    shaped(kit.post(input=[{"type": "no_such_item"}]), 400, param="input")
    shaped(kit.post(input=[{"role": "stranger", "content": "Hello"}]), 400, param="input")


@check("responses.errors.missing", "API reference, Responses: input")
def missing(kit: Kit) -> None:
    """A request without its input is a 400."""
    shaped(kit.post(input=None), 400)


@check("responses.errors.tool_choice", "API reference, Responses: tool_choice")
def tool_choice(kit: Kit) -> None:
    """A `tool_choice` of a tool that the request does not have is a 400."""
    choice = {"type": "function", "name": "no_such_tool"}
    found = kit.post(input=CALL, tools=[function("get_weather")], tool_choice=choice)
    shaped(found, 400, param="tool_choice")


@check(
    "responses.errors.orphan",
    "Guide, Function calling: No tool call found for function call output",
)
def orphan(kit: Kit) -> None:
    """The result of a call that was not made is a 400."""
    item = {"type": "function_call_output", "call_id": "call_none", "output": "12"}
    shaped(kit.post(input=[item]), 400, 404)


@check("responses.errors.json", CODES)
def malformed(kit: Kit) -> None:
    """A body that is no JSON is a 400."""
    for body in (b'{"model": "x", ', b"[1, 2]", b"\xff\xfe"):
        shaped(kit.server.call("POST", "/responses", body), 400)


@check("responses.errors.stream", CODES)
def stream(kit: Kit) -> None:
    """An invalid request with `stream` is refused before it streams."""
    found = kit.post(temperature=9, stream=True)
    kind = found.headers.get("content-type", "")
    expect("json" in kind, f"the refusal is {kind}", found)
    shaped(found, 400, param="temperature")


@check("responses.errors.unknown", CODES)
def unknown(kit: Kit) -> None:
    """An unknown id is a 404 in the API's shape."""
    kit.stored()
    shaped(kit.server.call("GET", "/responses/resp_000000000000000000000000"), 404)


@check("responses.errors.method", CODES)
def method(kit: Kit) -> None:
    """A method that the path does not have is a 405, or a 404."""
    found = kit.server.call("PUT", "/responses", {})
    expect(found.status in (404, 405), f"status {found.status} for PUT", found)


@check("responses.errors.model", CODES)
def model(kit: Kit) -> None:
    """An unknown model is a 404, or a 400, with a message."""
    found = kit.post(model="no-such-model")
    if found.status == 200:
        raise NotOffered("the server takes any model's name")
    shaped(found, 404, 400)


@check("responses.errors.key", CODES)
def key(kit: Kit) -> None:
    """Without its key a request is a 401 in the API's shape."""
    found = kit.server.call("POST", "/responses", kit.body(), key=False)
    if found.status == 200:
        raise NotOffered("the server takes requests without a key")
    shaped(found, 401)


@check("responses.errors.long", "Guide, Error codes; API reference, Responses: truncation disabled")
def long(kit: Kit) -> None:
    """An input beyond the context is refused with a 400 or 413, and is no server error."""
    shaped(kit.post(input="many words " * 300_000), 400, 413)


@check("responses.errors.odd", "Guide, Error codes: 5xx are the server's faults")
def odd(kit: Kit) -> None:
    """Odd requests are refused with a 4xx or answered, and are no server error."""
    deep: Json = {"type": "string"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    odd_ones: list[Json] = [
        {"input": []},
        {"input": [{}]},
        {"input": [{"role": "user", "content": []}]},
        {"input": "\ud800"},
        {"input": [{"type": "item_reference", "id": "msg_none"}]},
        {"tools": [{"type": "function", "name": "f", "parameters": {"type": 7}}]},
        {"tools": [{"type": "function", "name": "f", "parameters": deep}]},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"$ref": "#/none"}}}},
        {"metadata": {"a": "x" * 600}},
    ]
    for fields in odd_ones:
        found = kit.post(**fields)
        expect(found.status < 500, f"status {found.status} for {str(fields)[:60]}", found)


@check("responses.errors.null", "API reference, Responses: optional fields are nullable")
def null(kit: Kit) -> None:
    """An explicit `null` means the default."""
    names = ("temperature", "top_p", "instructions", "metadata", "max_output_tokens", "store")
    body = kit.body() | dict.fromkeys((*names, "previous_response_id", "parallel_tool_calls"))
    kit.ok(kit.server.call("POST", "/responses", body))


@check("responses.errors.kept", "RFC 9112, Persistence")
def kept(kit: Kit) -> None:
    """A connection goes on behind an error, and the next request is answered as itself."""
    with kit.server.link() as link:
        for body in (kit.body(temperature=9), kit.body(), {"model": 7}, kit.body()):
            found = link.call("POST", "/responses", body)
        expect(found.status == 200, f"status {found.status} behind an error", found)
        expect(found.json["object"] == "response", "it is the reply to another request", found)
