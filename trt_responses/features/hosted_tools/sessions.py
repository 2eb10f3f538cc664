"""Opens the tools that a request offers and the server runs, and shows what they offer.

Knows the seam of tools, and blocks by their items; knows no run and no concrete tool.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.accept.accepted import Tool as OfferedTool
from trt_responses.errors import InvalidRequest
from trt_responses.features.hosted_tools.hosted_calls import Runner
from trt_responses.features.hosted_tools.loop import UsedTool
from trt_responses.language.messages import FUNCTIONS
from trt_responses.log.item_events import Callee
from trt_responses.schema.closed import closed
from trt_responses.tasks import give_way
from trt_responses.tool import NO_ITEMS, CitedSession, Lists

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted, BuiltInTool, ToolChoice
    from trt_responses.dialect import Lexicon
    from trt_responses.store import Block
    from trt_responses.tool import Function, Listing, Opening, Session, Source, Tool


logger = logging.getLogger(__name__)

MOST_ANSWERS = 32
"""Earlier answers of a tool that its next session knows."""
AT_ONCE = 256
"""Functions of one session that are read between two pauses."""


class OpenedTools:
    """The sessions of one response, which it owns. `close` it, whatever came of the response."""

    def __init__(self) -> None:
        self.used: dict[str, UsedTool] = {}
        """The tools by the recipients of their calls."""
        self.offered: list[OfferedTool] = []
        """The functions that they answer, as the model is shown them."""
        self.listings: list[Listing] = []
        self._functions: dict[str, Function] = {}
        """The functions as which tools are shown that are namespaces elsewhere, by the recipients
        of those."""
        self._sessions: list[Session] = []

    def as_functions(self, accepted: Accepted, tools: Mapping[str, Tool]) -> Accepted:
        """The request with its tools among its functions, for a model that is shown nothing
        else."""
        built_in = []
        for one in accepted.built_in:
            functions = tools[one.kind].functions
            built_in.append(replace(one, recipients=()) if functions else one)
            self._functions |= functions
            self.offered += [
                OfferedTool(
                    name := _function(recipient),
                    one.place,
                    Callee(name),
                    function.description,
                    function.parameters,
                    server=one.kind,
                )
                for recipient, function in functions.items()
            ]
        return self.shown(replace(accepted, built_in=built_in))

    async def open(
        self,
        one: BuiltInTool,
        tool: Tool,
        opening: Opening,
        functions: Collection[str],
    ) -> None:
        """Open a tool's session. The model may call it by each of its names, also with or without
        the namespace of functions, where no function has that name."""
        session = await tool.open(opening)
        self._sessions.append(session)
        if isinstance(session, Lists) and session.listing is not None:
            self.listings.append(session.listing)
        for number, (name, recipient) in enumerate(session.recipients.items(), 1):
            if number % AT_ONCE == 0:
                await give_way()
            runner = Runner(recipient.kind, recipient.facts, one.shows_outputs, recipient.describe)
            runner = runner._replace(shows_text=NO_ITEMS in one.options)
            if (function := self._functions.get(name)) is not None:
                shown_as = _function(name)
                runner = runner._replace(unwraps=function.text)
                used = UsedTool(tool, session, runner, name, shown_as)
                self.used[FUNCTIONS + shown_as] = used
                continue
            used = self.used[name] = UsedTool(tool, session, runner, name, name)
            bare = name.removeprefix(FUNCTIONS)
            other = FUNCTIONS + bare if bare == name else bare
            if other not in functions:
                self.used.setdefault(other, used)
            if recipient.function is not None:
                callee = Callee(recipient.facts["name"], recipient.facts["server_label"])
                self.offered.append(
                    OfferedTool(
                        bare,
                        one.place,
                        callee,
                        recipient.function.description,
                        closed(recipient.function.parameters),
                        server=recipient.facts["server_label"],
                    )
                )

    def shown(self, accepted: Accepted) -> Accepted:
        """The request, with the functions that these tools answer among its own."""
        known = {tool.name: tool for tool in accepted.tools}
        for tool in self.offered:
            if (other := known.setdefault(tool.name, tool)) is not tool:
                raise _same_name(tool, other)
        offered, self.offered = self.offered, []
        if not offered:
            return accepted
        tools = [*accepted.tools, *offered]
        return replace(accepted, tools=tools, choice=_chosen(accepted.choice, offered))

    async def close(self) -> None:
        """Close each session once, also if another one's end fails or the caller is cancelled."""
        sessions, self._sessions = self._sessions, []
        ends = asyncio.gather(*(one.close() for one in sessions), return_exceptions=True)
        for fault in await asyncio.shield(ends):
            if fault is not None:
                logger.error("failed to close a tool session", exc_info=fault)


def _function(recipient: str) -> str:
    """A recipient's name as a function's."""
    return recipient.replace(".", "_")


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


def lists_functions(tool: Tool) -> bool:
    """Whether the prompt shows the functions of its sessions, and not the tool itself."""
    return tool.description is None


def source_of(used: Iterable[UsedTool]) -> Callable[[int, int], Source | None] | None:
    """The source of the lines that can be cited, of the one tool that has any; None without one."""
    for session in {id(one.session): one.session for one in used}.values():
        if isinstance(session, CitedSession):
            return session.source
    return None


def _answers(blocks: Sequence[Block], kind: str, lexicon: Lexicon) -> list[str]:
    """The latest calls of a kind of tool in the conversation, each with the tool's answer."""
    sign, found = _sign(kind), list[str]()
    for block in reversed(blocks):
        if len(found) == MOST_ANSWERS:
            break
        if sign in block.item:
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
        for part in orjson.loads(block.item).get("content") or ()
        for annotation in part.get("annotations") or ()
        if isinstance(annotation.get("url"), str)
    ]


def earlier_of(
    blocks: Sequence[Block], kind: str, lexicon: Lexicon
) -> tuple[Sequence[Mapping[str, Any]], *tuple[Callable[[], Sequence[str]], ...]]:
    """The conversation as an `Opening` has it: its items, answers, messages and citations."""
    answers = partial(_answers, blocks, kind, lexicon)
    return items_of(blocks, kind), answers, partial(_messages, blocks), partial(_cited, blocks)


def items_of(blocks: Sequence[Block], kind: str) -> list[Mapping[str, Any]]:
    """The items of a kind of tool in the conversation, the latest last."""
    sign = _sign(kind)
    return [orjson.loads(block.item) for block in blocks if sign in block.item]


def _sign(kind: str) -> bytes:
    """The bytes that stand in the JSON of each item of a kind of tool."""
    return b'"type":"%b_' % kind.encode()


def items_in(accepted: Accepted, kind: str) -> list[Mapping[str, Any]]:
    """The items of a kind of tool in the request's own input."""
    items = () if isinstance(accepted.input, str) else accepted.input
    mine = f"{kind}_"
    return [
        item.model_dump(exclude_none=True) for item in items if (item.type or "").startswith(mine)
    ]


def _chosen(choice: ToolChoice, offered: Sequence[OfferedTool]) -> ToolChoice:
    """The choice by names, now that it is known which functions answer calls here."""
    chosen = set(choice.names)
    for tool in offered:
        if tool.callee.namespace is None:
            chosen |= {tool.name} if tool.server in choice.built_in else set()
            continue
        if "mcp" not in choice.built_in:
            continue
        if choice.servers is None:
            chosen.add(tool.name)
            continue
        label = tool.callee.namespace
        names = choice.servers.get(label, ())
        if names is None or tool.callee.name in names:
            chosen.add(tool.name)
    return replace(choice, names=frozenset(chosen))
