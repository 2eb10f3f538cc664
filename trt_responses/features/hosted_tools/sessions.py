"""Opens the tools that a request offers and the server runs, and shows what they offer.

Knows the seam of tools, and blocks by their items; knows no run and no concrete tool.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace as replace_slots
from functools import partial
from itertools import chain
from operator import is_
from typing import Any, NamedTuple, TypeVar

import orjson

from trt_responses.accept.accepted import Accepted, BuiltInTool, ToolChoice
from trt_responses.accept.accepted import Tool as OfferedTool
from trt_responses.dialect import Lexicon
from trt_responses.errors import InvalidRequest, unsupported_value
from trt_responses.features.hosted_tools.citations import CitationText, CitedText, FileCitations
from trt_responses.features.hosted_tools.used import Both, Opened, UsedTools, function_of
from trt_responses.frozen import replace
from trt_responses.language.messages import FUNCTIONS
from trt_responses.log.item_events import Callee
from trt_responses.schema.closed import closed
from trt_responses.store import Block
from trt_responses.tasks import give_way
from trt_responses.tool import Opening, Recipient, Session, Tool
from trt_responses.tools.containers import WrittenFile, containers_of
from trt_responses.tools.session import NO_ITEMS, Listing
from trt_responses.wire.known_tools import Known
from trt_responses.wire.output import Phase

Json = dict[str, Any]

logger = logging.getLogger(__name__)

MOST_ANSWERS = 32
"""Earlier answers of a tool that its next session knows."""
AT_ONCE = 256
"""Functions of one session that are read between two pauses."""
KEPT_TOOLS, KEPT_LISTS = 16_384, 64
"""Of servers, that are kept for requests that get the same ones."""
LONG_ITEM, KEPT_BYTES = 4096, 8 << 20
"""Bytes of an item that is worth keeping, and of all that are kept."""
KEPT_SEARCHES = 4096
"""Of long items, for a few bytes in each."""

T = TypeVar("T")


class Offered(NamedTuple):
    """The functions that one session answers, as the model is shown them."""

    tools: Sequence[OfferedTool]
    names: frozenset[str]


class OfferMemory:
    """What came of what servers offered lately. A list that many requests get is known by its
    identity, and nothing in it is looked at again; the longest unused go first."""

    def __init__(self, most: int = KEPT_TOOLS) -> None:
        """`most`: tools of all lists that are kept."""
        self._most = most
        self._items: OrderedDict[bytes, Json] = OrderedDict()
        self._read: list[tuple[Mapping[str, Recipient], str, Offered]] = []
        self._joined: list[tuple[Sequence[OfferedTool], list[Offered], Known[OfferedTool]]] = []

    def item(self, written: bytes) -> Json:
        """An item of a conversation, not to be changed; the very one that was read before, if it is
        long."""
        found = self._items.pop(written, None)
        item: Json = orjson.loads(written) if found is None else found
        if len(written) < LONG_ITEM:
            return item
        self._items[written] = item
        while len(self._items) > 1 and sum(map(len, self._items)) > KEPT_BYTES:
            self._items.popitem(last=False)
        return item

    async def offered(self, recipients: Mapping[str, Recipient], place: str) -> Offered:
        """The functions of a session."""
        for number, (known, where, found) in enumerate(self._read):
            if known is recipients and where == place:
                self._read.append(self._read.pop(number))
                return found
        found = await _offered(recipients, place)
        if found.tools:
            self._read.append((recipients, place, found))
            _keep(self._read, self._most, lambda one: len(one[0]))
        return found

    def joined(self, tools: Sequence[OfferedTool], offered: list[Offered]) -> Known[OfferedTool]:
        """The request's own tools and those; a list that remembers. Raises where two tools have one
        name."""
        for number, (own, others, found) in enumerate(self._joined):
            same = len(others) == len(offered) and all(map(is_, others, offered))
            if same and (own is tools or own == tools):
                self._joined.append(self._joined.pop(number))
                return found
        named = {tool.name: tool for tool in tools}
        for tool in chain.from_iterable(one.tools for one in offered):
            if (other := named.setdefault(tool.name, tool)) is not tool:
                raise _same_name(tool, other)
        found = Known(named.values())
        self._joined.append((tools, offered, found))
        _keep(self._joined, self._most, lambda one: len(one[2]))
        return found


def _keep(entries: list[T], most: int, size: Callable[[T], int]) -> None:
    """Let the first ones go, until the others are no more than that."""
    while len(entries) > 1 and (len(entries) > KEPT_LISTS or sum(map(size, entries)) > most):
        entries.pop(0)


async def _offered(recipients: Mapping[str, Recipient], place: str) -> Offered:
    tools = []
    for number, (name, recipient) in enumerate(recipients.items(), 1):
        if number % AT_ONCE == 0:
            await give_way()
        if (function := recipient.function) is not None:
            label = recipient.facts["server_label"]
            callee = Callee(recipient.facts["name"], label)
            schema = closed(function.parameters)
            bare = name.removeprefix(FUNCTIONS)
            tools.append(
                OfferedTool(bare, place, callee, function.description, schema, server=label)
            )
    return Offered(tools, frozenset(tool.name for tool in tools))


class OpenedTools:
    """The sessions of one response, which it owns. `close` it, whatever came of the response."""

    def __init__(self, memory: OfferMemory) -> None:
        self.used = UsedTools()
        """The tools by the recipients of their calls."""
        self.listings: list[Listing] = []
        self._memory = memory
        self._offered: list[Offered] = []
        self._sessions: list[Session] = []

    def as_functions(self, accepted: Accepted, tools: Mapping[str, Tool]) -> Accepted:
        """The request with its tools among its functions, for a model that is shown nothing
        else."""
        built_in, shown = [], []
        for one in accepted.built_in:
            functions = tools[one.kind].functions
            built_in.append(replace_slots(one, recipients=()) if functions else one)
            self.used.show_as_functions(functions)
            shown += [
                OfferedTool(
                    name := function_of(recipient),
                    one.place,
                    Callee(name),
                    function.description,
                    function.parameters,
                    server=one.kind,
                )
                for recipient, function in functions.items()
            ]
        self._offered = [Offered(shown, frozenset(tool.name for tool in shown))] if shown else []
        return self.shown(replace(accepted, built_in=built_in))

    async def open(
        self,
        one: BuiltInTool,
        tool: Tool,
        opening: Opening,
        functions: Collection[str],
    ) -> None:
        """Open a tool's session. No call of one of these functions is a call of the tool.

        Here and below, the protocols of what a session may have besides are compared by name: to
        Python's own check each costs as much as the rest of the opening."""
        session = await tool.open(opening)
        self._sessions.append(session)
        listing: Listing | None = getattr(session, "listing", None)  # of a `Lists`
        if listing is not None:
            self.listings.append(listing)
        self.used.opened.append(
            Opened(tool, session, one.shows_outputs, NO_ITEMS in one.options, functions)
        )
        offered = await self._memory.offered(session.recipients, one.place)
        if offered.tools:
            self._offered.append(offered)

    def shown(self, accepted: Accepted) -> Accepted:
        """The request, with the functions that these tools answer among its own."""
        offered, self._offered = self._offered, []
        if not offered:
            return accepted
        tools = self._memory.joined(accepted.tools, offered)
        return replace(accepted, tools=tools, choice=_chosen(accepted.choice, offered))

    def cited_text(self, *, of_files: bool) -> Callable[[Phase], CitedText] | None:
        """Makes citations of what the tools have shown and written; None if they do neither."""
        opened = self._sessions
        sources = [one.source for one in opened if hasattr(one, "source")]  # of a `CitedSession`
        writing = [one for one in opened if of_files and hasattr(one, "written")]  # `WritesFiles`
        if not sources and not writing:
            return None

        def files() -> Sequence[WrittenFile]:
            return [file for one in writing for file in one.written]

        def made(phase: Phase) -> CitedText:
            marks = CitationText(sources[0]) if sources else None  # one tool alone has any
            if marks is not None and not writing:
                return CitedText(marks)
            return CitedText(FileCitations(files, marks, phase))

        return made

    async def close(self) -> None:
        """Close each session once, also if another one's end fails or the caller is cancelled."""
        sessions, self._sessions = self._sessions, []
        ends = asyncio.gather(*(one.close() for one in sessions), return_exceptions=True)
        for fault in await asyncio.shield(ends):
            if fault is not None:
                logger.error("failed to close a tool session", exc_info=fault)


def _same_name(tool: OfferedTool, other: OfferedTool) -> InvalidRequest:
    """The fault of an MCP server's tool and a function of the request, or a tool of another server,
    that have one name."""
    if tool.callee.namespace is None:
        return InvalidRequest(
            f"The function '{other.name}' ({other.place}) has the name by which the model knows "
            f"the tool {tool.server} ({tool.place}): give the function another name.",
            param=f"{other.place}.name",
            code="invalid_value",
        )
    if other.server is None:
        what, place = f"The function '{other.name}' ({other.place})", f"{other.place}.name"
        remedy = "give the function or the server another name"
    else:
        what = f"'{other.callee.name}' of the MCP server '{other.server}' ({other.place})"
        place, remedy = f"{tool.place}.server_label", "give one of the servers another label"
    return InvalidRequest(
        f"{what} has the name by which the model knows '{tool.callee.name}' of the MCP server "
        f"'{tool.server}' ({tool.place}): {remedy}.",
        param=place,
        code="invalid_value",
    )


def check_files(one: BuiltInTool, tool: Tool) -> None:
    """Refuse uploaded files for a tool that has no containers."""
    for name in ("container", "environment"):
        wanted = one.options.get(name)
        if isinstance(wanted, dict) and wanted.get("file_ids") and not containers_of([tool]):
            raise unsupported_value(f"{one.place}.{name}.file_ids", "this tool takes no files")


def lists_functions(tool: Tool) -> bool:
    """Whether the prompt shows the functions of its sessions, and not the tool itself."""
    return tool.description is None


def _answers(blocks: Sequence[Block], kind: str, lexicon: Lexicon) -> list[str]:
    """The latest calls of a kind of tool in the conversation, each with the tool's answer."""
    sign, found = _sign(kind), list[str]()
    for block in reversed(blocks):
        if len(found) == MOST_ANSWERS:
            break
        if holds(block, sign):
            ids = array("I", block.ids)
            found.append(lexicon.text([i for i in ids if not lexicon.is_control(i)]))
    return found[::-1]


def _messages(blocks: Sequence[Block]) -> list[str]:
    """The messages of the user."""
    texts: list[str] = []
    for block in blocks:
        if block.kind == "user":
            content = orjson.loads(block.item).get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts += [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return texts


def _cited(blocks: Sequence[Block]) -> list[str]:
    """The URLs that answers cite."""
    return [
        annotation["url"]
        for block in blocks
        if b'"url_citation"' in block.item and block.kind in ("final", "preamble")
        for part in _objects(orjson.loads(block.item).get("content"))
        for annotation in _objects(part.get("annotations"))
        if isinstance(annotation.get("url"), str)
    ]


def _objects(value: object) -> list[Json]:
    """The objects of a list, where a client may have sent anything."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def earlier_of(
    blocks: Sequence[Block], kind: str, lexicon: Lexicon
) -> tuple[Sequence[Json], *tuple[Callable[[], Sequence[str]], ...]]:
    """The conversation as an `Opening` has it: its items, answers, messages and citations."""
    answers = partial(_answers, blocks, kind, lexicon)
    return items_of(blocks, kind), answers, partial(_messages, blocks), partial(_cited, blocks)


def items_of(
    blocks: Sequence[Block], kind: str, read: Callable[[bytes], Json] = orjson.loads
) -> list[Json]:
    """The items of a kind of tool in the conversation, the latest last."""
    sign = _sign(kind)
    return [read(block.item) for block in blocks if holds(block, sign)]


_searched: OrderedDict[tuple[bytes, bytes], bool] = OrderedDict()


def holds(block: Block, sign: bytes) -> bool:
    """Whether these bytes stand in the JSON of a block's item. A long one is searched once: the
    list of a server with many tools is in every request's conversation."""
    if len(block.item) < LONG_ITEM or not block.digest:
        return sign in block.item
    key = block.digest, sign
    if key not in _searched:
        _searched[key] = sign in block.item
        if len(_searched) > KEPT_SEARCHES:
            _searched.popitem(last=False)
    return _searched[key]


def _sign(kind: str) -> bytes:
    """The bytes that stand in the JSON of each item of a kind of tool."""
    return b'"type":"%b_' % kind.encode()


def items_in(accepted: Accepted, kind: str, read: Callable[[bytes], Json]) -> list[Json]:
    """The items of a kind of tool in the request's own input."""
    items = () if isinstance(accepted.input, str) else accepted.input
    mine = f"{kind}_"
    return [
        read(item.model_dump_json(exclude_none=True).encode())
        for item in items
        if (item.type or "").startswith(mine)
    ]


def _chosen(choice: ToolChoice, offered: Sequence[Offered]) -> ToolChoice:
    """The choice by names, now that it is known which functions answer calls here."""
    mcp = "mcp" in choice.built_in
    parts: list[Collection[str]] = [choice.names]
    for one in offered:
        if one.tools[0].callee.namespace is None:  # tools that are shown as functions
            parts.append([tool.name for tool in one.tools if tool.server in choice.built_in])
        elif mcp and choice.servers is None:
            parts.append(one.names)
        elif mcp and choice.servers is not None:
            names = choice.servers.get(one.tools[0].callee.namespace, ())
            chosen = (tool for tool in one.tools if names is None or tool.callee.name in names)
            parts.append([tool.name for tool in chosen])
    return replace_slots(choice, names=Both(*parts))
