"""Chat completions and Messages that differ in their messages alone are read once, and alike."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import pytest

from trt_responses.accept.accepted import Accepted
from trt_responses.apis.chat import endpoint as chat
from trt_responses.apis.chat.request import ChatRequest
from trt_responses.apis.chat.shapes import MessageShapes
from trt_responses.apis.messages import accept as messages
from trt_responses.apis.messages.endpoint import shape_of as message_shape
from trt_responses.apis.messages.request import MessagesRequest
from trt_responses.errors import InvalidRequest
from trt_responses.features.shapes.shapes import Shape
from trt_responses.wire.limits import RequestLimits

Sent = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello"}]
TALK = [*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Bye"}]
TOLD = [{"role": "system", "content": "Be brief."}, *HELLO]
FUNCTION = {"name": "tide", "parameters": {"type": "object"}}
LONG = {"role": "user", "content": [{"type": "text", "text": "x"}] * 5_000}
BILLING = {"type": "text", "text": "x-anthropic-billing-header: 1"}


def chats() -> MessageShapes[ChatRequest, Any]:
    return chat.shapes_of(RequestLimits(input=4), chat.NAMES["both"])


def talks() -> MessageShapes[MessagesRequest, Any]:
    reading = partial(message_shape, seals=True)
    return MessageShapes(
        MessagesRequest, RequestLimits(input=4), reading, messages.with_messages, messages.meaning
    )


def read(known: MessageShapes[Any, Any], sent: Sent) -> Shape[Any]:
    reading = known.steps(json.dumps({"model": "demo"} | sent).encode())
    while True:
        try:
            next(reading)
        except StopIteration as end:
            shape: Shape[Any] = end.value
            return shape


THOUGHT = [*HELLO, {"role": "assistant", "content": "Hi.", "reasoning": "They greet."}, *HELLO]
CHATS: list[Sent] = [
    {"messages": HELLO},
    {"messages": THOUGHT},
    {"messages": TALK},
    {"messages": TOLD},
    {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}},
    {"messages": TALK, "tools": [{"type": "function", "function": FUNCTION}]},
    {"messages": HELLO, "include_reasoning": False, "unknown": [1, 1.0, True]},
]
TALKS: list[Sent] = [
    {"max_tokens": 9, "messages": HELLO},
    {"max_tokens": 9, "messages": TALK},
    {"max_tokens": 9, "messages": HELLO, "system": "Be brief."},
    {"max_tokens": 9, "messages": HELLO, "system": [BILLING, {"type": "text", "text": "Hm."}]},
    {"max_tokens": 9, "messages": HELLO, "thinking": {"type": "adaptive"}, "stream": True},
]


@pytest.mark.parametrize(("known", "requests"), [(chats, CHATS), (talks, TALKS)])
def test_a_request_is_read_the_same_whatever_came_before(known: Any, requests: list[Sent]) -> None:
    for first in requests:
        for then in requests:
            shapes = known()
            read(shapes, first)
            read(shapes, then)
            assert read(shapes, then) == read(known(), then)


def test_other_tasks_run_between_a_long_message_and_what_comes_of_it() -> None:
    read_whole: list[bool] = []

    def noted(accepted: Accepted, sent: Sequence[Any]) -> Generator[None, None, Accepted]:
        made = yield from messages.with_messages(accepted, sent)
        read_whole.append(True)
        return made

    known = MessageShapes(
        MessagesRequest, RequestLimits(), partial(message_shape, seals=True), noted
    )
    body = json.dumps({"model": "demo", "max_tokens": 9, "messages": [LONG]}).encode()
    assert [bool(read_whole) for _ in known.steps(body)][-1]


@pytest.mark.parametrize(
    ("known", "first", "then"),
    [
        (chats, CHATS[0], CHATS[2]),
        (chats, CHATS[3], CHATS[0]),
        (talks, TALKS[0], TALKS[1]),
        (talks, TALKS[3], TALKS[3] | {"system": [BILLING | {"text": BILLING["text"] + "2"}]}),
    ],
)
def test_other_messages_are_all_that_is_read_anew(known: Any, first: Sent, then: Sent) -> None:
    shapes = known()
    system = {"system": [*then["system"], first["system"][1]]} if "system" in then else {}
    one, two = read(shapes, first), read(shapes, then | system)
    assert two.accepted.echo is one.accepted.echo


@pytest.mark.parametrize(
    ("known", "usual", "faulty", "param"),
    [
        (chats, CHATS[0], {"messages": []}, "messages"),
        (chats, CHATS[0], {"messages": 1}, "messages"),
        (chats, CHATS[0], {"messages": HELLO * 5}, "messages"),
        (chats, CHATS[0], {"messages": [{"role": "nobody"}]}, "messages[0]"),
        (chats, CHATS[0], {"messages": TOLD[:1]}, "messages"),
        (talks, TALKS[0], {"messages": TALK[:2]}, "messages[1]"),
        (talks, TALKS[0], {"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
    ],
)
def test_faulty_messages_are_refused_by_their_place(
    known: Any, usual: Sent, faulty: Sent, param: str
) -> None:
    shapes = known()
    read(shapes, usual)
    with pytest.raises(InvalidRequest) as refused:
        read(shapes, usual | faulty)
    assert refused.value.param == param


@pytest.mark.parametrize(("known", "sent"), [(chats, CHATS[3]), (talks, TALKS[0])])
def test_a_conversation_is_not_kept(known: Any, sent: Sent) -> None:
    shapes = known()
    text = "secret " * 10_000
    tracemalloc.start()
    try:
        for number in range(20):
            said = [*sent["messages"], {"role": "user", "content": f"{number} {text}"}]
            last = read(shapes, sent | {"messages": said, "user": str(number)})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert text in str(last.accepted.input[-1])
    assert kept < 10 * len(text)
