"""A cassette's file: what stands in it and what does not, where a request departs from it, and what
script it gives."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from trt_responses.errors import UsageError
from trt_responses.features.cassette.convert import rules
from trt_responses.features.cassette.exchanges import (
    Cassette,
    Cleaner,
    Exchange,
    Reply,
    Request,
    read,
)
from trt_responses.features.cassette.layer import Layer
from trt_responses.features.cassette.replay import Replays, departure
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from pathlib import Path

KEYS = (
    "sk-proj-abcdefghij0123456789",
    "sk-ant-api03-abcdefghij0123456789",
    "ghp_abcdefghij0123456789abcd",
    "hf_abcdefghij0123456789abcd",
    "AKIAABCDEFGHIJKLMNOP",
    "xoxb-1234567890-abcdefghij",
    "eyJhbGciOiJub25l.eyJzdWIiOiJhbm4i.c2lnbmF0dXJl",
    "my-own-key",
)


def exchange(text: str = "{}", body: Any = None, path: str = "/v1/responses") -> Exchange:
    reply = Reply(200, {"content-type": "text/event-stream"}, [(0.1, text)])
    return Exchange(Request("POST", path, body), reply)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_stands_nowhere_in_a_cassette(key: str) -> None:
    body = {"input": [{"content": f"My key is {key}."}], "tools": [{"authorization": "anything"}]}
    pieces = [(0.0, f"data: {key[:6]}"), (0.5, f'{key[6:]}, "api_key": "any\\"thing"')]
    reply = Reply(200, {"set-cookie": key, "retry-after": "1"}, pieces)
    whole = Exchange(Request("POST", f"/v1/responses?key=k1&a=2&api-key={key}", body), reply)
    line = Cleaner("my-own-key").exchange(whole).line()
    for secret in (key, "anything", "thing", "k1", "set-cookie"):
        assert secret not in line
    assert "a=2" in line
    assert json.loads(line)["reply"]["headers"] == {"retry-after": "1"}


def test_pieces_without_secrets_are_kept_as_they_came() -> None:
    pieces = [(0.0, "data: ske"), (0.5, "tch-book")]
    whole = Exchange(Request("POST", "/v1/responses", None), Reply(200, {}, pieces))
    assert Cleaner().exchange(whole).reply.pieces == pieces


def test_a_line_that_was_cut_short_is_left_out_and_the_next_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    Cassette(path).add(exchange("one"))
    with path.open("a") as file:
        file.write(exchange("lost").line()[:-9])
    Cassette(path).add(exchange("two"))
    assert [each.reply.text for each in read(path)] == ["one", "two"]


def test_a_line_that_did_not_fit_on_the_disk_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    cassette = Cassette(path)
    cassette.add(exchange("one"))
    with path.open("a") as file:
        file.write(exchange("lost").line()[:-9])
    cassette.add(exchange("two"))
    assert [each.reply.text for each in read(path)] == ["one", "two"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "200"},
        {"status": 0},
        {"headers": []},
        {"headers": {"retry-after": 1}},
        {"headers": {"retry-after": "1\r\nx: y"}},
        {"headers": {"retry-after": "漢"}},
        {"headers": {"openai-a b": "1"}},
        {"pieces": None},
        {"pieces": ["{}"]},
        {"pieces": [[0]]},
        {"pieces": [["0.1", "{}"]]},
        {"pieces": [[0, 1]]},
        {"pieces": [[0, "\ud800"]]},
        {"more": 1},
    ],
)
def test_a_reply_that_was_edited_wrongly_is_named_by_its_line(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    path = tmp_path / "c.jsonl"
    whole = exchange().line()
    edited = json.loads(whole)
    edited["reply"] |= wrong
    path.write_text(whole + json.dumps(edited))
    with pytest.raises(UsageError, match="line 2 is no exchange"):
        read(path)


def test_files_that_are_no_cassettes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match="no whole exchange"):
        read(tmp_path / "empty")
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="no whole exchange"):
        read(tmp_path / "deep")
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be written"):
        Cassette(tmp_path)


@pytest.mark.parametrize(
    ("recorded", "sent", "where"),
    [
        ({"a": 1, "user": "x"}, {"user": "y", "a": 1}, None),
        (
            {"input": [{"content": "a"}]},
            {"input": [{"content": "b"}]},
            "`input[0].content` differs",
        ),
        ({"input": [1, 2]}, {"input": [1]}, "`input` has 1 entries, recorded 2"),
        ({"a": {"b": 1}}, {"a": {}}, "`a.b` is missing"),
        ({}, {"tools": []}, "`tools` is new"),
        ({"n": 1}, {"n": True}, "`n` differs: recorded 1, sent true"),
        ({"a": {"user": 1}}, {"a": {"user": 2}}, "`a.user` differs"),
        (None, "text", "`the body` differs"),
    ],
)
def test_a_departure_is_named_by_its_place(recorded: Any, sent: Any, where: str | None) -> None:
    found = departure(recorded, sent)
    assert (found is None) if where is None else (found or "").startswith(where)


def events(*each: Any) -> str:
    return "".join(f"event: x\ndata: {json.dumps(one)}\n\n" for one in each) + "data: [DONE]\n\n"


ARGUMENTS = '{"city": "Bern"}'
CALL = {"name": "f", "arguments": {"city": "Bern"}}
ITEMS = [
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "message", "content": [{"type": "output_text", "text": "Ask."}]},
    {"type": "function_call", "name": "f", "arguments": ARGUMENTS},
    {"type": "custom_tool_call", "name": "g", "input": "ls"},
]
CALLS = [CALL, {"name": "g", "arguments": "ls"}]


def delta(**parts: Any) -> Any:
    return {"choices": [{"delta": parts}]}


def block(**parts: Any) -> Any:
    return {"type": "content_block_delta", "index": 1, "delta": parts}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (json.dumps({"output": ITEMS}), {"think": "Hm.", "say": "Ask.", "call": CALLS}),
        (
            events(*({"type": "response.output_item.done", "item": item} for item in ITEMS)),
            {"think": "Hm.", "say": "Ask.", "call": CALLS},
        ),
        (
            json.dumps(
                {
                    "choices": [
                        {
                            "message": {
                                "reasoning_content": "Hm.",
                                "content": None,
                                "tool_calls": [{"function": {"name": "f", "arguments": ARGUMENTS}}],
                            }
                        }
                    ]
                }
            ),
            {"think": "Hm.", "call": [CALL]},
        ),
        (
            events(
                delta(content="A"),
                delta(content="sk."),
                delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
                delta(tool_calls=[{"index": 0, "function": {"arguments": ARGUMENTS}}]),
            ),
            {"say": "Ask.", "call": [CALL]},
        ),
        (
            json.dumps(
                {
                    "content": [
                        {"type": "thinking", "thinking": "Hm."},
                        {"type": "tool_use", "name": "f", "input": {"city": "Bern"}},
                    ]
                }
            ),
            {"think": "Hm.", "call": [CALL]},
        ),
        (
            events(
                {"type": "content_block_start", "index": 0, "content_block": {"text": ""}},
                block(text="Ask."),
                {
                    "type": "content_block_start",
                    "index": 1,
                    "content_block": {"type": "tool_use", "name": "f", "input": {}},
                },
                block(partial_json=ARGUMENTS),
            ),
            {"say": "Ask.", "call": [CALL]},
        ),
    ],
    ids=["responses", "events", "chat", "chunks", "messages", "blocks"],
)
def test_a_reply_of_each_api_becomes_a_rule(text: str, rule: Any) -> None:
    assert rules([exchange(text)]) == [{"when": {"request": 1}, **rule}]


def test_refusals_and_broken_replies_become_rules_too() -> None:
    body = '{"error": {"message": "Slowly.", "code": "rate_limit_exceeded", "type": "x"}}'
    refused = Reply(429, {"retry-after": "3"}, [(0.0, body)])
    broken = Reply(200, {}, [(0.0, "data: {}\n\n")], ended=False)
    asked = Request("POST", "/v1/messages", {})
    listed = Exchange(Request("GET", "/v1/models", None), broken)
    refusal = {
        "status": 429,
        "message": "Slowly.",
        "code": "rate_limit_exceeded",
        "retry_after": 3,
    }
    wrong = Reply(400, {}, [(0.0, body)])
    assert rules([listed, *(Exchange(asked, each) for each in (refused, wrong, broken))]) == [
        {"when": {"request": 1}, "refuse": refusal},
        {"when": {"request": 2}, "cut_after": 10},
    ]


@pytest.mark.parametrize(("size", "status"), [(10, 200), (11, 413)])
def test_a_body_has_the_servers_bound(size: int, status: int) -> None:
    sent: list[Any] = []
    pieces = [b" " * (size - 2), b"{}"]

    async def app(*_: Any) -> None:
        raise AssertionError("the layer answers")

    async def receive() -> Any:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    limits = RequestLimits(body_bytes=10)
    replays = Replays([exchange(body={})], paced=False)
    layer = Layer(app, ("*",), limits, replays.answer)
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "query_string": b""}
    asyncio.run(layer(scope | {"headers": []}, receive, send))
    assert sent[0]["status"] == status
