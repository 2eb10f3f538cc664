"""Renders the texts of the system and developer messages, which precede a conversation.

The result equals openai-harmony's, character for character. Texts only: no token ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from trt_responses.frozen import bytes_of
from trt_responses.harmony.write.typescript import json_of, type_of
from trt_responses.language.messages import (
    Developer,
    Functions,
    FunctionTool,
    ResponseFormat,
    System,
)

CHANNELS = (
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
CALLS = "\nCalls to these tools must go to the commentary channel: 'functions'."


@lru_cache(maxsize=64)
def system_text(system: System) -> str:
    """The text of the system message."""
    top = [system.identity]
    if system.knowledge_cutoff is not None:
        top.append(f"Knowledge cutoff: {system.knowledge_cutoff}")
    if system.date is not None:
        top.append(f"Current date: {system.date}")
    channels = CHANNELS + CALLS if system.has_function_tools else CHANNELS
    tools = [
        f"## {space.name}\n\n{space.description}"
        for space in sorted(system.namespaces, key=lambda space: space.name)
    ]
    sections = ("# Tools", *tools) if tools else ()
    return "\n\n".join(("\n".join(top), f"Reasoning: {system.effort}", *sections, channels))


def content_key(developer: Developer) -> bytes | None:
    """The content of a developer message as bytes, for use as a cache key; None if it is nested
    too deep."""
    tools, form = developer.tools, developer.response_format
    parts = None if form is None else (form.name, form.description, form.schema)
    try:
        rest = bytes_of((developer.instructions, parts))
        return rest + (tools if isinstance(tools, Functions) else Functions(tools)).content
    except ValueError:
        return None


def developer_pieces(developer: Developer) -> Iterator[str]:
    """The pieces of the developer message's text."""
    sections = []
    if developer.instructions is not None:
        sections.append(iter(("# Instructions\n\n", developer.instructions)))
    if developer.tools:
        sections.append(_tools(developer.tools))
    if developer.response_format is not None:
        sections.append(_response_format(developer.response_format))
    for place, section in enumerate(sections):
        if place:
            yield "\n\n"
        yield from section


def _tools(tools: Sequence[FunctionTool]) -> Iterator[str]:
    yield "# Tools\n\n## functions\n\nnamespace functions {\n\n"
    for tool in tools:
        for line in _lines(tool.description):
            yield f"// {line}\n"
        if tool.parameters is None:
            yield f"type {tool.name} = () => any;\n\n"
            continue
        yield f"type {tool.name} = (_: "
        yield from type_of(dict(tool.parameters))
        yield ") => any;\n\n"
    yield "} // namespace functions"


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, separated by LF or CRLF only."""
    *whole, last = text.split("\n")
    for line in whole:
        yield line.removesuffix("\r")
    if last:
        yield last


def _response_format(form: ResponseFormat) -> Iterator[str]:
    yield f"# Response Formats\n\n## {form.name}\n\n"
    for line in _lines(form.description or ""):
        yield f"// {line}\n"
    yield from json_of(dict(form.schema))
