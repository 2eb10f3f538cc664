"""Responses that are kept: chains, branches, reading, deleting, listing."""

from __future__ import annotations

from responses_conformance.checks.base import Failure, NotJudged, check, expect
from responses_conformance.checks.kit import ENDS, FACTS, PLAIN, Kit
from responses_conformance.client import Exchange, Json

STATE = "Guide, Conversation state"
REFERENCE = "API reference, Responses"
NEXT = "And of Norway?"


def _chained(kit: Kit, parent: Json, **fields: object) -> Json:
    options = {"input": NEXT, "previous_response_id": parent["id"], **fields}
    return kit.create("previous_response_id", **options)


def _unknown(kit: Kit, exchange: Exchange, what: str) -> None:
    """A reply to an id that names nothing."""
    right = exchange.status in (400, 404)
    expect(right, f"{what}: status {exchange.status} for an id that names nothing", exchange)
    expect("message" in exchange.error, f"{what}: the error has no `error.message`", exchange)


@check("responses.state.read", f"{REFERENCE}: Get a model response")
def read(kit: Kit) -> None:
    """A stored response is read as it was made."""
    made = kit.stored()
    found = kit.ok(kit.server.call("GET", f"/responses/{made['id']}"))
    for name in ("id", "status", "model", "output", "usage", "created_at"):
        expect(found[name] == made[name], f"`{name}` is read otherwise than it was answered")


@check("responses.state.chain", f"{STATE}: Passing context from the previous response")
def chain(kit: Kit) -> None:
    """`previous_response_id` puts the earlier input and output before the new input."""
    parent = kit.stored()
    child, alone = _chained(kit, parent), kit.create(input=NEXT)
    expect(child.get("previous_response_id") == parent["id"], "the reply names another parent")
    grown = child["usage"]["input_tokens"] > alone["usage"]["input_tokens"]
    expect(grown, "the prompt of a continuation is no longer than that of its input alone")


@check(
    "responses.state.instructions",
    f"{REFERENCE}: instructions, when used along with previous_response_id",
)
def instructions(kit: Kit) -> None:
    """Instructions of the earlier response do not apply to the next one."""
    parent = kit.stored(instructions="Answer like the captain of an old ship, in a word. " * 90)
    child = _chained(kit, parent)
    expect(child.get("instructions") is None, "a continuation has its parent's instructions")
    if parent["usage"]["output_tokens"] > 500:
        raise NotJudged("the answer is as long as the instructions")
    shorter = child["usage"]["input_tokens"] < parent["usage"]["input_tokens"]
    expect(shorter, "the prompt of a continuation has the instructions in it")


@check("responses.state.branches", f"{STATE}: Passing context from the previous response")
def branches(kit: Kit) -> None:
    """One response has several continuations, which do not see each other."""
    parent = kit.stored()
    one, other = _chained(kit, parent), _chained(kit, parent)
    expect(one["id"] != other["id"], "two continuations have one id")
    same = one["usage"]["input_tokens"] == other["usage"]["input_tokens"]
    expect(same, "two equal continuations have prompts of different lengths")


@check(
    "responses.state.at_once",
    f"{REFERENCE}: previous_response_id; Streaming events: response.completed",
)
def at_once(kit: Kit) -> None:
    """An id can be read and continued the moment its terminal event is streamed."""
    kit.stored()
    server, body = kit.server, kit.body(stream=True, store=True)
    with server.stream("POST", "/responses", body) as stream:
        for event in stream:
            if event.data != "[DONE]" and event.json["type"] in ENDS:
                name = event.json["response"]["id"]
                child = kit.post(input=NEXT, previous_response_id=name)
                found = server.call("GET", f"/responses/{name}")
                break
        else:
            raise Failure("the stream has no terminal event", stream.exchange)
        list(stream)
    expect(found.status == 200, f"status {found.status} for an id that was streamed", found)
    right = found.json["status"] in ("completed", "incomplete")
    expect(right, f"it is {found.json['status']} when read, behind its terminal event", found)
    kit.ok(child, "previous_response_id")


@check("responses.state.unknown", f"{REFERENCE}: previous_response_id")
def unknown(kit: Kit) -> None:
    """An unknown `previous_response_id` is refused, and neither ignored nor a server error."""
    found = kit.post(previous_response_id="resp_000000000000000000000000", input=NEXT)
    _unknown(kit, found, "previous_response_id")


@check("responses.state.unstored", f"{REFERENCE}: store")
def unstored(kit: Kit) -> None:
    """With `store: false` a response can be neither read nor continued."""
    kit.stored()
    made = kit.create(store=False)
    _unknown(kit, kit.server.call("GET", f"/responses/{made['id']}"), "GET")
    _unknown(kit, kit.post(input=NEXT, previous_response_id=made["id"]), "previous_response_id")


@check("responses.state.delete", f"{REFERENCE}: Delete a model response")
def delete(kit: Kit) -> None:
    """A deleted response can be neither read nor continued, and what continued it stays."""
    parent = kit.stored()
    child = _chained(kit, parent)
    gone = kit.server.call("DELETE", f"/responses/{parent['id']}")
    kit.refused(gone)
    expect(gone.status in (200, 204), f"status {gone.status} for DELETE", gone)
    _unknown(kit, kit.server.call("GET", f"/responses/{parent['id']}"), "GET")
    _unknown(kit, kit.post(input=NEXT, previous_response_id=parent["id"]), "a continuation")
    kit.ok(kit.server.call("GET", f"/responses/{child['id']}"))


@check("responses.state.input_items", f"{REFERENCE}: List input items")
def input_items(kit: Kit) -> None:
    """The input items of a response are listed newest first, in pages, each with an id."""
    sent = [{"role": "user", "content": text} for text in (PLAIN, NEXT, FACTS)]
    made = kit.stored(input=sent)
    listed = kit.server.call("GET", f"/responses/{made['id']}/input_items")
    found = kit.ok(listed, "input_items")
    expect(found.get("object") == "list", "the reply is no list", listed)
    texts = [item["content"][0]["text"] for item in found["data"]]
    expect(texts == [FACTS, NEXT, PLAIN], "it is not the input, newest first", listed)
    expect(all(item.get("id") for item in found["data"]), "an item has no id", listed)
    query = f"?order=asc&limit=1&after={found['data'][-1]['id']}"
    page = kit.server.call("GET", f"/responses/{made['id']}/input_items{query}")
    right = [item["id"] for item in kit.ok(page)["data"]] == [found["data"][1]["id"]]
    expect(right, f"the page {query} has other items", page)


@check("responses.state.conversation", "API reference, Conversations: Create, List items, Delete")
def conversation(kit: Kit) -> None:
    """A conversation keeps the items of its responses, and a deleted one is unknown."""
    begun = kit.server.call("POST", "/conversations", {})
    place = f"/conversations/{kit.ok(begun, 'onversation')['id']}"
    name = begun.json["id"]
    kit.create("conversation", conversation=name)
    kit.create("conversation", conversation=name, input=NEXT)
    listed = kit.server.call("GET", f"{place}/items")
    users = [item for item in kit.ok(listed)["data"] if item.get("role") == "user"]
    expect(len(users) == 2, f"it has {len(users)} user messages after two requests", listed)
    kit.ok(kit.server.call("DELETE", place))
    found = kit.post(conversation=name, input=NEXT)
    _unknown(kit, found, "a deleted conversation")


@check("responses.state.input_tokens", f"{REFERENCE}: Get input token counts")
def input_tokens(kit: Kit) -> None:
    """`/responses/input_tokens` counts what `usage.input_tokens` of the same request says."""
    counted = kit.server.call("POST", "/responses/input_tokens", kit.body(input=FACTS))
    found = kit.ok(counted, "input_tokens")["input_tokens"]
    used = kit.create(input=FACTS)["usage"]["input_tokens"]
    expect(found == used, f"{found} were counted, {used} were used", counted)
