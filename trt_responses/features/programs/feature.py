"""Programs that the model writes and the server runs, which call the client's tools."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.accept.accepted import Tool
from trt_responses.errors import invalid_value, unsupported_value
from trt_responses.feature import Step
from trt_responses.features.hosted_tools.hosted_calls import Runner
from trt_responses.features.hosted_tools.used import NO_CALLS, Both, NewCalls, UsedTool
from trt_responses.features.programs.box import Programs
from trt_responses.features.programs.calls import PROGRAM
from trt_responses.features.programs.history import found_in
from trt_responses.features.programs.items import NAME, PARAMETERS
from trt_responses.features.programs.loop import ProgramLoop
from trt_responses.features.programs.output import OutputLaterResult
from trt_responses.language.messages import FUNCTIONS
from trt_responses.log.item_events import Callee
from trt_responses.prompt.conversation import ID_PREFIXES, callee_of
from trt_responses.prompt.history import prior_of
from trt_responses.prompt.output_blocks import answer_ids
from trt_responses.store import Block
from trt_responses.wire.past_calls import FolderItem
from trt_responses.wire.response import lasting_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.accept.accepted import Accepted, BuiltInTool
    from trt_responses.features.programs.history import Waiting
    from trt_responses.features.references.sealed import Sealing
    from trt_responses.language.reader import Reader
    from trt_responses.run.draft import Draft
    from trt_responses.run.ending import End
    from trt_responses.run.generation import Generation
    from trt_responses.run.turns import Turn
    from trt_responses.tool import Tool as Hosted
    from trt_responses.wire.response import Response

DESCRIPTION = """\
Runs a program in Python that calls tools, and gives what it prints. Use it to call several tools, \
or to keep long outputs out of the conversation. `await tools.NAME(argument=value)` calls a tool; \
call independent ones at once with `asyncio.gather`. There is no network and no clock. While it \
waits for a tool the program may be run again from its start: with the same outputs it has to make \
the same calls."""
CALLERS = ("direct", "programmatic")


class ProgrammaticTools:
    """Serves requests whose model may write programs."""

    reads = ("built_in",)

    def __init__(self, python: Hosted, signer: Sealing) -> None:
        self.python = python
        self.signer = signer

    def accept(self, accepted: Accepted) -> Step | None:
        for one in accepted.built_in:
            if one.options.get("type") == NAME:
                return ProgramStep(self, one, callers_of(accepted))
        return None


def callers_of(accepted: Accepted) -> Mapping[tuple[str | None, str], Mapping[str, Any]]:
    """The tools that a program may call, as the client has sent them, by namespace and name. Raises
    for one that no program can call here."""
    found = {}
    for number, tool in enumerate(accepted.echo.tools):
        is_space = tool["type"] == "namespace"
        for step, one in enumerate(tool["tools"] if is_space else [tool]):
            place = f"tools[{number}]" + (f".tools[{step}]" if is_space else "")
            callers = one.get("allowed_callers") or ["direct"]
            if not (isinstance(callers, list) and all(each in CALLERS for each in callers)):
                raise invalid_value(f"{place}.allowed_callers", f"should be a list of {CALLERS}")
            if "programmatic" not in callers:
                continue
            if one["type"] not in ("function", "custom"):
                what = "programs call functions and custom tools of the client alone"
                raise unsupported_value(f"{place}.allowed_callers", what)
            found[tool["name"] if is_space else None, one["name"]] = one
    return found


def with_ids(accepted: Accepted, places: Sequence[int]) -> Accepted:
    """The request with ids for these items of its input: one without an id is always shown."""
    if not places or isinstance(accepted.input, str):
        return accepted
    items = list(accepted.input)
    for place in places:
        if (item := items[place]).id is None:
            kind = item.type or ""
            prefix = item.prefix if isinstance(item, FolderItem) else ID_PREFIXES[kind]
            items[place] = item.model_copy(update={"id": f"{prefix}_{os.urandom(12).hex()}"})
    return replace(accepted, input=items)


def _allows(accepted: Accepted, kind: str | None) -> bool:
    """Whether the choice of tools lets the model call one of this type: an accepted choice does not
    tell programs from the Python tool."""
    choice = accepted.echo.tool_choice
    if isinstance(choice, str):
        return choice != "none"
    return any(one["type"] == kind for one in choice.get("tools") or [choice])


class ProgramStep(Step):
    """The programs of one run."""

    order = 25  # before the tools that run here, to which the box does not belong
    moves = False  # what a program has printed is no part of what is kept

    def __init__(
        self,
        feature: ProgrammaticTools,
        place: BuiltInTool,
        sent: Mapping[tuple[str | None, str], Mapping[str, Any]],
    ) -> None:
        self._feature = feature
        self._tool = place
        self._sent = sent
        self._called: Mapping[str, Callee] = {}
        self._waiting: Waiting | None = None
        self._loop: ProgramLoop | None = None
        self._reader: Reader | None = None

    async def offer(self, draft: Draft) -> None:
        """Show the tool with what programs may call, hide what they alone may call, and find the
        program that waits."""
        accepted = draft.accepted
        if draft.prior is None:
            draft.prior = await prior_of(accepted, draft.records, draft.owner)
        found = found_in(accepted, draft.prior.blocks)
        draft.silent = {*draft.silent, *found.silent}
        accepted = with_ids(accepted, found.silent)
        if (waiting := found.waiting) is not None:
            self._check(waiting, draft.owner)
            self._waiting, draft.at_call = waiting, True
        callable_ = [tool for tool in accepted.tools if self._sent_as(tool) is not None]
        self._called = {tool.name: tool.callee for tool in callable_}
        draft.accepted = self._offered(accepted, callable_)

    def _sent_as(self, tool: Tool) -> Mapping[str, Any] | None:
        return self._sent.get((tool.callee.namespace, tool.callee.name))

    def _offered(self, accepted: Accepted, callable_: Sequence[Tool]) -> Accepted:
        """The request with the tool for programs among its functions, and with no others than the
        model may call itself."""
        hidden = {
            tool.name
            for tool in callable_
            if "direct" not in (self._sent_as(tool) or {})["allowed_callers"]
        }
        choice, place = accepted.choice, self._tool
        names = {*choice.names} - hidden | ({NAME} if _allows(accepted, NAME) else set())
        if choice.names and not names and not choice.built_in:
            raise invalid_value("tool_choice", "only programs may call the tools that it names")
        described = "\n".join((DESCRIPTION, *map(self._line, callable_)))
        callee = Callee(NAME, action=NAME)
        own = Tool(NAME, place.place, callee, described, PARAMETERS)
        built_in = [one for one in accepted.built_in if one is not place]
        kinds = set(choice.built_in)
        if not (_allows(accepted, place.kind) and any(one.kind == place.kind for one in built_in)):
            kinds.discard(place.kind)
        return replace(
            accepted,
            tools=[*(tool for tool in accepted.tools if tool.name not in hidden), own],
            built_in=built_in,
            parallel_calls=False,  # a call that is run here ends a turn
            choice=replace(choice, names=names, built_in=kinds),
        )

    def _line(self, tool: Tool) -> str:
        """A tool as the model reads of it."""
        sent = self._sent_as(tool) or {}
        takes = "one text" if tool.callee.custom else json.dumps(tool.parameters or {})
        gives = sent.get("output_schema")
        text = f"tools.{tool.name}: {tool.description}\n  takes {takes}\n  gives "
        return text + (json.dumps(gives) if gives else "a str")

    def _check(self, waiting: Waiting, owner: str) -> None:
        """Refuse a program that this server has not written so for this owner."""
        began_ms, _, signature = waiting.fingerprint.partition(".")
        signed = (PROGRAM, waiting.call_id, began_ms, waiting.code)
        if not (began_ms.isdecimal() and self._feature.signer.has_signed(signature, signed, owner)):
            what = "this server wrote no such program: send the 'program' item as it was given"
            raise invalid_value("input", what)

    async def planned(self, draft: Draft) -> None:
        kinds = {name: self._kind(name) for name in self._called}
        began_ms = int(draft.parts.clock_s() * 1000)
        owner, place = draft.owner, self._tool.place
        programs = Programs(self._feature.python, owner, place, kinds, began_ms)
        runner = Runner(PROGRAM, {"began_ms": str(began_ms)})
        used = UsedTool(programs, programs, runner, NAME, NAME)
        tools = dict.fromkeys((NAME, FUNCTIONS + NAME), used)
        draft.called = {name: one for name, one in draft.called.items() if name not in tools}
        self._loop = ProgramLoop(tools, draft, programs, self._called, self._waiting)
        draft.recipients = Both(draft.recipients, tools)
        draft.tool_names = Both(draft.tool_names, (NAME,))

    def _kind(self, name: str) -> str:
        callee = self._called[name]
        if callee.custom:
            return "custom"
        return "json" if self._sent[callee.namespace, callee.name].get("output_schema") else "text"

    def write(self, draft: Draft) -> None:
        assert self._loop is not None, "it is planned"
        self._reader = draft.reader
        options, sign = draft.machine_options, self._feature.signer.signature
        signed = partial(sign, owner=draft.owner)
        options["runners"] = NewCalls(self._loop.tools, signed, options.get("runners", NO_CALLS))

    async def before(self, generation: Generation) -> Turn | End | None:
        return None if self._loop is None else await self._loop.resume(generation)

    async def after(self, generation: Generation) -> Turn | None:
        return None if self._loop is None else await self._loop.turn(generation)

    def blocks(self, own: list[Block], last: Response) -> None:
        """Keep the calls of programs with their ids, which their outputs name; and the result of an
        earlier program that was ended, which the model has read."""
        for number, block in enumerate(own):
            if block.kind == "preamble" and b'"caller"' in block.item:
                item = orjson.loads(block.item)
                callee = callee_of(item["name"], item.get("namespace"))
                own[number] = replace(block, call_id=item["call_id"], callee=callee)
        first = last.output[0] if last.output else None
        if isinstance(first, OutputLaterResult) and first.status == "incomplete":
            assert self._reader is not None, "it has read the result"
            ids = answer_ids(self._reader.kept, self._reader.messages[0])
            own.insert(0, Block("result", lasting_json(first), ids.tobytes()))
