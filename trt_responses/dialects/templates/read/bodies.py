"""The readers of call bodies, by the body that a family names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.dialects.templates.read.json_body import JsonBody, NamedBody
from trt_responses.dialects.templates.read.pair_body import KeyValueBody, XmlBody

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.dialects.templates.families import Calls
    from trt_responses.dialects.templates.read.body import Body, CallSink

BODIES: Mapping[str, Callable[[Calls, Mapping[str, object], CallSink], Body]] = {
    "json": JsonBody,
    "xml": XmlBody,
    "kv": KeyValueBody,
    "named": NamedBody,
}


def marks_of(form: Calls) -> Sequence[str]:
    """The marks inside a call that may be one token."""
    if form.body == "kv":
        kv = KeyValueBody
        return (kv.KEY, kv.KEY_END, kv.VALUE, kv.VALUE_END)
    return ("<｜tool▁sep｜>",) if "<｜tool▁sep｜>" in form.before_name + form.after_name else ()
