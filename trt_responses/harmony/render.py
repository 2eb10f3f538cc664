"""Harmony messages to prompt ids, and which messages a prompt holds.

Control ids are written here, at their own places, and nowhere else; whatever a caller says, be it
a text, a name or a schema, goes through the tokeniser, which knows ordinary ids only. Knows no
items of the API, no store and no engine.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Literal

from trt_responses.errors import InvalidRequest
from trt_responses.frozen import dataclass
from trt_responses.harmony.idcache import CACHE_BYTES, IdCache
from trt_responses.harmony.tokenise import refuse_above
from trt_responses.harmony.typescript import json_of, type_of
from trt_responses.harmony.vocabulary import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trt_responses.harmony.idcache import Header
    from trt_responses.harmony.tokenise import Tokeniser
    from trt_responses.harmony.vocabulary import Vocabulary
    from trt_responses.store.base import Kind

Role = Literal["user", "assistant", "developer", "tool"]
Effort = Literal["low", "medium", "high"]

HITS_AT_ONCE = 500
"""Messages taken from the cache between two pauses; about a millisecond."""
PIECES_AT_ONCE = 1000
"""Pieces of a tool's type put together between two pauses; about half a millisecond."""

CHANNELS = (
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
CALLS = "\nCalls to these tools must go to the commentary channel: 'functions'."
CONSTRAIN = "<|constrain|>"


@dataclass(frozen=True, slots=True)
class Message:
    """One message. A tool's `name` is its author; a `recipient` makes an assistant's a call."""

    role: Role
    text: str
    name: str | None = None
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    identity: str
    knowledge_cutoff: str | None
    date: str | None
    effort: Effort
    has_function_tools: bool


@dataclass(frozen=True, slots=True)
class FunctionTool:
    name: str
    description: str
    parameters: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A JSON schema that the answer is to follow, as the model is told of it."""

    name: str
    description: str | None
    schema: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Developer:
    instructions: str | None
    tools: tuple[FunctionTool, ...] = ()
    response_format: ResponseFormat | None = None


class Renderer:
    """Renders messages one by one; a message that was rendered lately is not tokenised again."""

    def __init__(
        self, vocabulary: Vocabulary, tokeniser: Tokeniser, *, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._tokeniser = tokeniser
        self._cache = IdCache(cache_bytes)
        self._hits = 0
        assistant = vocabulary.encoding._inner.encode("assistant", [])
        self.generation_prompt = array("I", [CONTROL.start, *assistant])
        """`<|start|>assistant`: the model goes on from here."""

    async def system(self, system: System) -> array[int]:
        return await self._ids(("system",), system_text(system), CONTROL.end)

    async def developer(self, developer: Developer, at_most: int | None = None) -> array[int]:
        """Empty when there is nothing to tell."""
        pieces = []
        for place, piece in enumerate(_developer_pieces(developer), 1):
            pieces.append(piece)
            if place % PIECES_AT_ONCE == 0:
                await self._tokeniser.pause()
        if not pieces:
            return array("I")
        return await self._ids(("developer",), "".join(pieces), CONTROL.end, at_most)

    async def message(self, message: Message, at_most: int | None = None) -> array[int]:
        """A whole message, from `<|start|>` to its terminator."""
        called = message.role == "assistant" and message.recipient is not None
        end = CONTROL.call if called else CONTROL.end
        return await self._ids(header(message), message.text, end, at_most)

    def join(
        self,
        system: array[int],
        developer: array[int],
        messages: Iterable[array[int] | bytes],
    ) -> array[int]:
        """A prompt out of its parts and the generation prompt, with nothing done per id."""
        ids: array[int] = array("I")
        ids.frombytes(b"".join((system, developer, *messages, self.generation_prompt)))
        return ids

    async def _ids(
        self, header: Header, text: str, end: int, at_most: int | None = None
    ) -> array[int]:
        key = (header, text, end)
        ids: array[int] = array("I")
        if (known := self._cache.get(key)) is not None:
            ids.frombytes(known)
            refuse_above(at_most, len(ids))
            self._hits += 1
            if self._hits % HITS_AT_ONCE == 0:
                await self._tokeniser.pause()
            return ids
        ids.append(CONTROL.start)
        for part in (*header, CONTROL.message, text):
            if isinstance(part, str):
                ids.extend(await self._tokeniser.encode(part, at_most=at_most))
            else:
                ids.append(part)
        ids.append(end)
        refuse_above(at_most, len(ids))
        self._cache.put(key, ids.tobytes())
        return ids


def header(message: Message) -> Header:
    """Author, recipient, channel and content type, in openai-harmony's order."""
    parts: list[str | int] = []
    if message.role != "tool":
        parts.append(message.role)
        if message.name is not None:
            parts.append(f":{message.name}")
    elif message.name is None:
        raise InvalidRequest("A tool's message needs the tool's name.")
    else:
        parts.append(message.name)
    if message.recipient is not None and message.recipient != "all":
        parts.append(f" to={message.recipient}")
    if message.channel is not None:
        parts += (CONTROL.channel, message.channel)
    if (content_type := message.content_type) is not None:
        constrained = content_type.removeprefix(CONSTRAIN)
        if constrained == content_type:
            parts.append(f" {content_type}")
        else:
            parts += (" ", CONTROL.constrain, constrained)
    return tuple(parts)


def system_text(system: System) -> str:
    top = [system.identity]
    if system.knowledge_cutoff is not None:
        top.append(f"Knowledge cutoff: {system.knowledge_cutoff}")
    if system.date is not None:
        top.append(f"Current date: {system.date}")
    channels = CHANNELS + CALLS if system.has_function_tools else CHANNELS
    return "\n\n".join(("\n".join(top), f"Reasoning: {system.effort}", channels))


def _developer_pieces(developer: Developer) -> Iterator[str]:
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
    """Lines end with LF or CRLF, and with nothing else."""
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


def kept(kinds: Sequence[Kind]) -> list[bool]:
    """Which messages a prompt still holds: all but the reasoning before the last final answer.

    Reasoning after it belongs to the tool loop that is going on, and the model needs it.
    """
    last = max((place for place, kind in enumerate(kinds) if kind == "final"), default=-1)
    return [kind != "reasoning" or place > last for place, kind in enumerate(kinds)]
