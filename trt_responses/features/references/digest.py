"""A digest of what an item says, by which one that comes back is known as one that was written."""

from __future__ import annotations

from hashlib import blake2b

from trt_responses.wire import items as i
from trt_responses.wire import output as o
from trt_responses.wire.past_calls import KINDS, canonical

DIGEST_BYTES = 16

Texts = tuple[str, ...]


def digest(item: i.InputItem | o.OutputItem) -> bytes | None:
    """The digest of an item's content, whatever its id; None for items that no model writes."""
    texts = _content(item)
    if texts is None:
        return None
    hasher = blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        hasher.update(len(raw).to_bytes(8, "little"))
        hasher.update(raw)
    return hasher.digest()


def _content(item: i.InputItem | o.OutputItem) -> Texts | None:
    match item:
        case i.Reasoning() | o.OutputReasoning():
            return ("reasoning", *(part.text for part in item.content or item.summary))
        case i.FunctionCall() | o.OutputFunctionCall():
            return ("function_call", item.call_id, item.name, canonical(item.arguments))
        case o.OutputMessage():
            return ("message", item.phase, *(part.text for part in item.content))
        case i.InputMessage(role="assistant"):
            texts = _texts(item)
            return None if texts is None else ("message", item.phase or "final_answer", *texts)
        case _:
            kind = KINDS.get(item.type)
            return None if kind is None else kind.digested(item)


def _texts(item: i.InputMessage) -> Texts | None:
    if isinstance(item.content, str):
        return (item.content,)
    texts = tuple(part.text for part in item.content if isinstance(part, i.TextPart))
    return texts if len(texts) == len(item.content) else None
