"""Maps the API's items to Harmony messages, and messages to blocks that later turns share.

One table of item kinds. Knows the renderer; knows no store, no HTTP and no engine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import assert_never

import orjson
from pydantic import TypeAdapter

from trt_responses.dialect import Entry, Renderer
from trt_responses.errors import InvalidRequest, invalid_value
from trt_responses.frozen import dataclass
from trt_responses.language.messages import FUNCTIONS, Message
from trt_responses.prompt.calls import call_message as call_message
from trt_responses.prompt.calls import result_message
from trt_responses.store import Block, Kind
from trt_responses.wire import items as i
from trt_responses.wire import output as o
from trt_responses.wire.past_calls import Amending, CallText, FolderItem, PastCall
from trt_responses.wire.response import lasting_json
from trt_responses.wire.tools import SEPARATOR

ITEM: TypeAdapter[i.InputItem] = TypeAdapter(i.InputItem)

ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
    "compaction": "cmp",
}

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
"""What would be structure in a header."""
ITEMS_AT_ONCE = 100
"""Items that are written down between two pauses, about 2 ms: not each of them is rendered."""

UNREAD = {
    "input_image": "an image",
    "input_file": "a file",
    "input_audio": "a sound",
    "input_video": "a video",
}

PLAIN = frozenset(("type", "role", "content", "phase"))
"""What most messages set."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An item in Harmony's terms. `message` is None when there is nothing to show the model."""

    kind: Kind
    message: Message | None
    call_id: str | None = None
    callee: str | None = None
    result: Message | None = None
    """Of a call that brings its own result."""


async def input_blocks(
    items: str | Sequence[i.InputItem],
    renderer: Renderer,
    prior: Sequence[Block],
    at_most: int | None,
    *,
    note_media: bool = False,
    places: Sequence[i.ItemPlace] | None = None,
) -> list[Block]:
    """What the request itself brings, in order; a result finds its call there or in `prior`.

    Of several calls with one id, the last is meant. With `note_media`, a line stands for what a
    text model cannot read; without, it is refused.
    """
    if isinstance(items, str):
        return [await text_block(items, renderer, at_most)]
    callees = {b.call_id: b.callee for b in prior if b.call_id and b.callee}
    waiting = _waiting(prior)
    blocks = []
    for number, item in enumerate(items):
        if number % ITEMS_AT_ONCE == ITEMS_AT_ONCE - 1:
            await renderer.pause()
        place = i.ItemPlace(f"input[{number}]") if places is None else places[number]
        if not note_media:
            _refuse_media(item, place)
        if isinstance(item, i.FunctionCallOutput):
            item = _with_call(item, callees, waiting, place)
        shown = _shown(item, callees, place)
        if shown.call_id and shown.callee:
            callees[shown.call_id] = shown.callee
            waiting[shown.call_id] = None
        ids = b""
        for message in filter(None, (shown.message, shown.result)):
            ids += (await renderer.message(message, at_most=at_most)).tobytes()
        blocks.append(Block(shown.kind, _as_json(item, place), ids, shown.call_id, shown.callee))
    return blocks


def entries(blocks: Sequence[Block]) -> list[Entry]:
    """What blocks say, read from their items. What a summary says is in its ids alone."""
    callees = {block.call_id: block.callee for block in blocks if block.call_id and block.callee}
    return [_entry(block, callees) for block in blocks]


def _entry(block: Block, callees: dict[str, str]) -> Entry:
    item = ITEM.validate_json(block.item)
    shown = _shown(item, callees, i.ItemPlace("input"))
    if shown.call_id and shown.callee:
        callees.setdefault(shown.call_id, shown.callee)
    messages = tuple(filter(None, (shown.message, shown.result)))
    call_id = block.call_id or getattr(item, "call_id", None)
    return Entry(block.kind, messages, call_id, block.ids)


def _waiting(prior: Sequence[Block]) -> dict[str, None]:
    """The calls that have no result yet, in their order."""
    waiting: dict[str, None] = {}
    for block in prior:
        if block.call_id:
            waiting[block.call_id] = None
        elif block.kind == "result" and waiting:
            waiting.pop(orjson.loads(block.item).get("call_id"), None)
    return waiting


def _with_call(
    item: i.FunctionCallOutput,
    callees: dict[str, str],
    waiting: dict[str, None],
    place: i.ItemPlace,
) -> i.FunctionCallOutput:
    """The output with the id of its call, which waits no longer."""
    call_id = item.call_id
    if call_id is None:
        named = None if item.name is None else callee_of(item.name, item.namespace)
        meant = (one for one in waiting if named in (None, callees[one]))
        if (call_id := next(meant, None)) is None:
            raise InvalidRequest(
                f"No call{'' if item.name is None else f' of {item.name[:100]!r}'} without an "
                "output stands before this output: send the call too.",
                param=f"{place.item}.{place.call_id}",
                code="unknown_call_id",
            )
        item = item.model_copy(update={"call_id": call_id})
    waiting.pop(call_id, None)
    return item


async def text_block(text: str, renderer: Renderer, at_most: int | None) -> Block:
    """A text alone: a user's message that is written as such, for what most requests bring."""
    ids = await renderer.message(Message("user", text), at_most=at_most)
    return Block("user", _text_json("user", text), ids.tobytes())


def _text_json(role: str, content: object, phase: str | None = None) -> bytes:
    """A message of nothing but a text, as the API gives it back."""
    item = {"type": "message", "role": role, "content": content}
    if phase is not None:
        item["phase"] = phase
    return lasting_json(item | {"id": f"msg_{os.urandom(12).hex()}", "status": "completed"})


def _shown(item: i.InputItem, callees: dict[str, str], place: i.ItemPlace) -> Shown:
    match item:
        case i.InputMessage():
            return _message(item)
        case i.FunctionCall():
            callee = callee_of(item.name, item.namespace)
            return Shown("call", call_message(callee, item.arguments), item.call_id, callee)
        case i.FunctionCallOutput():
            call_id = item.call_id or ""
            return Shown("result", _result(call_id, joined(item.output), callees, place))
        case i.Reasoning():
            parts = item.content or item.summary
            text = "\n".join(part.text for part in parts)
            return Shown("reasoning", reasoning_message(text) if text else None)
        case Amending():
            return Shown("developer", None)
        case i.Compaction():
            return Shown("summary", None)  # its ids are sealed
        case _:
            return _past_call(item.among(callees, place.item), callees, place)


def callee_of(name: str, namespace: str | None = None) -> str:
    """The recipient that stands for a client's tool."""
    return FUNCTIONS + (name if namespace is None else f"{namespace}{SEPARATOR}{name}")


def _past_call(text: CallText, callees: dict[str, str], place: i.ItemPlace) -> Shown:
    if text.message is not None:
        return Shown("user", Message("user", text.message))
    if text.name is None:
        return Shown("result", _result(text.call_id or "", text.result or "", callees, place))
    callee = FUNCTIONS + (text.name if text.as_sent else NOT_IN_NAMES.sub("_", text.name))
    result = None if text.result is None else result_message(callee, text.result)
    call = call_message(callee, text.arguments or "{}")
    return Shown("call" if text.lasts else "reasoning", call, text.call_id, callee, result)


def _refuse_media(item: i.InputItem, place: i.ItemPlace) -> None:
    match item:
        case i.InputMessage(content=list() as parts):
            where = "content"
        case i.FunctionCallOutput(output=list() as parts):
            where = "output"
        case PastCall() if isinstance(output := item.__dict__.get("output"), list):
            where, parts = "output", output
        case _:
            return
    for step, part in enumerate(parts):
        if isinstance(part, i.MediaPart):
            param = place.part(step, where)
            raise invalid_value(
                param,
                f"this model reads text only, and this is {UNREAD[part.type]}. Send its text, or "
                "leave it out",
                code="unsupported_content",
            )


def _message(item: i.InputMessage) -> Shown:
    text = joined(item.content)
    match item.role:
        case "user":
            return Shown("user", Message("user", text))
        case "assistant":
            phase = item.phase or "final_answer"
            kind: Kind = "preamble" if phase == "commentary" else "final"
            return Shown(kind, answer_message(phase, text))
        case "system" | "developer":
            return Shown("developer", Message("developer", f"# Instructions\n\n{text}"))
        case _:
            assert_never(item.role)


def _result(call_id: str, text: str, callees: dict[str, str], place: i.ItemPlace) -> Message:
    callee = callees.get(call_id)
    if callee is None:
        stored = place.call_id == "call_id"  # other APIs have no stored conversations
        raise InvalidRequest(
            f"No call with {place.call_id} {call_id[:100]!r} stands before this output: send "
            f"the call too{', or the previous_response_id of the response that made it' * stored}.",
            param=f"{place.item}.{place.call_id}",
            code="unknown_call_id",
        )
    return result_message(callee, text)


def answer_message(phase: o.Phase, text: str) -> Message:
    """A text of the model's to its user, as a message."""
    channel = "commentary" if phase == "commentary" else "final"
    return Message("assistant", text, channel=channel)


def reasoning_message(text: str) -> Message:
    """A thought of the model's, as a message."""
    return Message("assistant", text, channel="analysis")


def code_message(recipient: str, code: str, channel: str) -> Message:
    """A call of a tool that runs code: its text is the code itself."""
    return Message("assistant", code, channel=channel, recipient=recipient, content_type="code")


def joined(content: str | Iterable[i.TextPart | i.RefusalPart | i.MediaPart]) -> str:
    """A message's parts as one text, a line each: parts are written as separate things."""
    return content if isinstance(content, str) else "\n".join(map(_line, content))


def _line(part: i.TextPart | i.RefusalPart | i.MediaPart) -> str:
    match part:
        case i.TextPart():
            return part.text
        case i.RefusalPart():
            return part.refusal
        case i.MediaPart():
            return f"[Here was {UNREAD[part.type]}, which cannot be read.]"


def _as_json(item: i.InputItem, place: i.ItemPlace) -> bytes:
    """The item as the API gives it back, with an id and a status even if they were absent. Refuses
    what could not be read again, such as a number of a thousand digits under an unknown key."""
    if isinstance(item, i.InputMessage) and (content := _plain_content(item)) is not None:
        return _text_json(item.role, content, item.phase)
    if blank := [name for name in ("id", "status") if item.__dict__.get(name) == ""]:
        item = item.model_copy(update=dict.fromkeys(blank))
    # As bytes at once: the text between takes ten times as long where scripts are mixed.
    text = item.__pydantic_serializer__.to_json(item, exclude_none=True)
    filled = {} if item.id is not None else {"id": _item_id(item)}
    if item.__dict__.get("status", "") is None:
        filled["status"] = "completed"
    if filled:  # at the end, where the store's phrases have them; a copy of the item takes longer
        text = b"%b,%b" % (text[:-1], orjson.dumps(filled)[1:])
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise invalid_value(place.item, f"it cannot be kept as JSON ({error.msg})") from None
    return text


def _plain_content(item: i.InputMessage) -> object:
    """The content of a message that is nothing but texts, as most are: to write it takes a third of
    the time. None for any other one."""
    if not item.model_fields_set <= PLAIN:
        return None
    if isinstance(item.content, str):
        return item.content
    texts = [part for part in item.content if isinstance(part, i.TextPart)]
    if len(texts) < len(item.content) or any(len(part.model_fields_set) > 2 for part in texts):
        return None
    return [{"type": part.type, "text": part.text} for part in texts]


def _item_id(item: i.InputItem) -> str:
    prefix = item.prefix if isinstance(item, FolderItem) else ID_PREFIXES[item.type]
    return f"{prefix}_{os.urandom(12).hex()}"
