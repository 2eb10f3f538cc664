"""What a template reader says of ids, as texts that a test can compare."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.support.template_families import checkpoint, tables
from trt_responses.dialects.templates.read.reader import TemplateReader
from trt_responses.language.fragments import Closed, Opened, Repaired, Scored, Text
from trt_responses.language.messages import FunctionTool
from trt_responses.language.reader import ReaderOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trt_responses.dialects.templates.read.reader import Begins
    from trt_responses.language.fragments import Fragment

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "warm": {"type": "boolean"},
        "list": {"type": "array"},
        "ratio": {"type": "number"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "object": {"$ref": "#/$defs/thing"},
    },
    "$defs": {"thing": {"type": "object"}},
}
TOOLS = (FunctionTool("get_weather", "", WEATHER),)

STRUCTURE = {
    *("name", "arguments", "parameters", "function", "parameter", "tool_call", "functions", "json"),
    *("True", "False", "None", "null", "arg_key", "arg_value", "call"),
}


def ids_of(name: str, text: str) -> list[int]:
    """Text with control strings spelled out."""
    return checkpoint(name).tokeniser.encode(text)


def reader_of(name: str, begins: Begins = "text", *, call_ends: bool = False) -> TemplateReader:
    options = ReaderOptions(call_ends=call_ends, tools=TOOLS)
    return TemplateReader(tables(name), options, begins=begins)


def merged(fragments: Iterable[Fragment]) -> list[Fragment | str]:
    """Fragments with all text that stands together as one, as people read it."""
    out: list[Fragment | str] = []
    for fragment in fragments:
        if isinstance(fragment, Text | Scored):
            text = json.loads(b'"%b"' % b"".join(fragment.pieces))
            if out and isinstance(out[-1], str):
                text = out.pop() + text
            out.append(text)
        else:
            out.append(fragment)
    return out


def read(
    name: str, chunks: Iterable[Sequence[int]], begins: Begins = "text", *, stopped: bool = True
) -> list[Fragment | str]:
    reader = reader_of(name, begins)
    fragments: list[Fragment] = []
    for chunk in chunks:
        fragments += reader.feed(chunk)
    fragments += reader.finish(stopped=stopped)
    check_spans(reader)
    return merged(fragments)


def check_spans(reader: TemplateReader) -> None:
    """Messages stand one behind another in what was kept."""
    at = 0
    for span in reader.messages:
        assert at == span.start <= span.body_start <= span.end <= len(reader.kept)
        at = span.end


def short(fragments: Iterable[Fragment | str]) -> list[str]:
    """One line for each message: `analysis: text`, `get_weather: {…}`, with `…` where it was cut;
    and one for each repair."""
    lines: list[str] = []
    head, text = "", ""
    for fragment in fragments:
        match fragment:
            case Opened(channel=channel, recipient=recipient):
                head, text = (recipient or channel or "").removeprefix("functions."), ""
            case str():
                text += fragment
            case Closed(whole=whole):
                lines.append(f"{head}: {text}{'' if whole else '…'}")
            case Repaired(kind=kind):
                lines.append(f"!{kind}")
    return lines


def lost_words(name: str, kept: Sequence[int], fragments: Sequence[Fragment | str]) -> list[str]:
    """Written words that are in no fragment and in no mark, if nothing was repaired."""
    if any(isinstance(fragment, Repaired) for fragment in fragments):
        return []
    tokeniser = checkpoint(name).tokeniser
    space = tokeniser.encode(" ")
    written = tokeniser.text(
        [i for one in kept for i in (space if one in tokeniser.controls else [one])]
    )
    shown = "".join(
        one if isinstance(one, str) else one.recipient or "" if isinstance(one, Opened) else ""
        for one in fragments
    )
    words = set(re.findall(r"[^\W\d_]{2,}", written)) - STRUCTURE
    return [word for word in words if word not in shown and word not in "function parameter"]
