"""A cassette as a script, and as a pytest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pprint import pformat
from typing import Any

import yaml  # type: ignore[import-untyped]  # ships no types

from trt_responses.features.cassette.exchanges import Exchange, Reply, parsed

Json = dict[str, Any]
ANSWERING = ("/v1/responses", "/v1/chat/completions", "/v1/messages")
WRONG = (400, 404, 413, 422)
"""Statuses that this server gives by itself."""
TEST = '''\
"""Written from a cassette: put your agent in the place of `agent`."""

import json
import urllib.error
import urllib.request

RULES = {rules}
REQUESTS = {requests}


def agent(base_url):
    """Send what was recorded."""
    for path, body in REQUESTS:
        url = base_url.removesuffix("/v1") + path
        request = urllib.request.Request(url, json.dumps(body).encode())
        request.add_header("content-type", "application/json")
        try:
            urllib.request.urlopen(request).read()
        except (OSError, urllib.error.HTTPError):
            pass  # as recorded


def test_agent(responses_server):
    responses_server.script(*RULES)
    agent(responses_server.base_url)
    assert [(each.path, each.body) for each in responses_server.requests] == REQUESTS
'''


def script(exchanges: Sequence[Exchange]) -> str:
    """The script that gives the same answers in the same order."""
    text: str = yaml.safe_dump({"rules": rules(exchanges)}, sort_keys=False, allow_unicode=True)
    return text


def pytest(exchanges: Sequence[Exchange]) -> str:
    """A test whose server gives the same answers, and which compares what was sent."""
    requests = [(each.request.path, each.request.body) for each in _answering(exchanges)]
    return TEST.format(
        rules=pformat(rules(exchanges), sort_dicts=False, width=100),
        requests=pformat(requests, sort_dicts=False, width=100),
    )


def rules(exchanges: Sequence[Exchange]) -> list[Json]:
    """A rule for each exchange that asks for an answer, unless the request is wrong in itself."""
    replies = [each.reply for each in _answering(exchanges) if each.reply.status not in WRONG]
    return [{"when": {"request": number}, **_rule(each)} for number, each in enumerate(replies, 1)]


def _answering(exchanges: Sequence[Exchange]) -> list[Exchange]:
    return [
        each
        for each in exchanges
        if each.request.method == "POST" and each.request.path.partition("?")[0] in ANSWERING
    ]


def _rule(reply: Reply) -> Json:
    if reply.status >= 400:
        return {"refuse": _refusal(reply)}
    rule: Json = {}
    for kind, value in _parts(reply):
        if kind == "call":
            rule.setdefault("call", []).append(value)
        elif value:
            rule[kind] = rule.get(kind, "") + value
    if not reply.ended:
        rule["cut_after"] = len(reply.text.encode("utf-8", "surrogateescape"))
    return rule or {"say": ""}


def _refusal(reply: Reply) -> Json:
    body = parsed(reply.text)
    error = body.get("error") if isinstance(body, Mapping) else None
    refusal: Json = {"status": reply.status}
    if isinstance(error, Mapping):
        refusal |= {
            key: error[key] for key in ("message", "code") if isinstance(error.get(key), str)
        }
    if (wait_s := reply.headers.get("retry-after", "")).isdecimal():
        refusal["retry_after"] = int(wait_s)
    return refusal


def _parts(reply: Reply) -> Iterator[tuple[str, Any]]:
    """What a model did, by a rule's keys."""
    body = parsed(reply.text)
    bodies = [body] if isinstance(body, Mapping) else list(_events(reply.text))
    calls: dict[int, Json] = {}
    for each in bodies:
        if each.get("type") == "response.output_item.done":
            yield from _item(each["item"])
        for item in each.get("output") or ():
            yield from _item(item)
        for choice in (each.get("choices") or ())[:1]:
            yield from _chat(choice.get("message") or choice.get("delta") or {}, calls)
        for block in each.get("content") or ():
            yield from _block(block)
        if each.get("type") == "content_block_start":
            yield from _block(each["content_block"], calls, each["index"])
        if each.get("type") == "content_block_delta":
            delta = each["delta"]
            if "partial_json" in delta:
                calls[each["index"]]["arguments"] += delta["partial_json"]
            yield "think", delta.get("thinking", "")
            yield "say", delta.get("text", "")
    for call in calls.values():
        yield _call(call["name"], call["arguments"])


def _events(text: str) -> Iterator[Json]:
    for line in text.splitlines():
        found = parsed(line.removeprefix("data:").strip()) if line.startswith("data:") else None
        if isinstance(found, dict):
            yield found


def _item(item: Json) -> Iterator[tuple[str, Any]]:
    match item.get("type"):
        case "reasoning":
            for part in item.get("content") or item.get("summary") or ():
                yield "think", part.get("text", "")
        case "message":
            for part in item.get("content") or ():
                yield "say", part.get("text") or part.get("refusal") or ""
        case "function_call":
            yield _call(item["name"], item["arguments"])
        case "custom_tool_call":
            yield "call", {"name": item["name"], "arguments": item["input"]}


def _chat(message: Json, calls: dict[int, Json]) -> Iterator[tuple[str, Any]]:
    yield "think", message.get("reasoning_content") or message.get("reasoning") or ""
    yield "say", message.get("content") or ""
    for number, call in enumerate(message.get("tool_calls") or ()):
        made = calls.setdefault(call.get("index", number), {"name": "", "arguments": ""})
        for key in made:
            made[key] += (call.get("function") or {}).get(key) or ""


def _block(
    block: Json, calls: dict[int, Json] | None = None, index: int = 0
) -> Iterator[tuple[str, Any]]:
    yield "think", block.get("thinking", "")
    yield "say", block.get("text", "")
    if block.get("type") == "tool_use":
        if calls is None:
            yield "call", {"name": block["name"], "arguments": block["input"]}
        else:
            calls[index] = {"name": block["name"], "arguments": ""}


def _call(name: str, arguments: str) -> tuple[str, Json]:
    found = parsed(arguments)
    return "call", {"name": name, "arguments": found if isinstance(found, dict) else arguments}
