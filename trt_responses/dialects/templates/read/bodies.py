"""The readers of call bodies, by the body of a form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trt_responses.dialects.templates.families import Calls
from trt_responses.dialects.templates.pieces import is_mark, pieces
from trt_responses.dialects.templates.read.body import Body
from trt_responses.dialects.templates.read.json_body import JsonBody, NamedBody
from trt_responses.dialects.templates.read.literal_body import LiteralBody
from trt_responses.dialects.templates.read.tag_body import TagBody

BODIES: Mapping[str, type[Body]] = {
    "json": JsonBody,
    "named": NamedBody,
    "tags": TagBody,
    "literal": LiteralBody,
}


_TOKEN = re.compile(r"<\|[^<>|]*\|>")
"""A token within a mark of several, as in `<|close|>call<|sep|>`."""


def marks_of(form: Calls) -> Sequence[str]:
    """The marks inside a call that may be one token."""
    texts = [form.open, form.before_name, form.after_name]
    if (tags := form.tags) is not None:
        own = (tags.open, tags.key_end, tags.other, tags.value_end, tags.quotes)
        texts += [*own, form.after_arguments, form.close]
    marks = [one for text in texts for one in pieces(text) if is_mark(one)]
    found = dict.fromkeys(part for one in marks for part in (one, *_TOKEN.findall(one)))
    return [mark for mark in found if mark not in (form.open, form.close) and "{key}" not in mark]
