"""Tools that the server runs in a response: offered, called and answered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trt_responses.feature import Step
from trt_responses.features.hosted_tools.approvals import (
    approved_calls,
    claim,
    has_approvals,
    not_offered,
    silent_places,
)
from trt_responses.features.hosted_tools.loop import ToolLoop
from trt_responses.features.hosted_tools.sessions import (
    OfferMemory,
    OpenedTools,
    check_files,
    earlier_of,
    items_in,
    items_of,
    lists_functions,
)
from trt_responses.features.hosted_tools.used import NO_CALLS, Both, NewCalls
from trt_responses.prompt.history import prior_of
from trt_responses.steering.tools import callees
from trt_responses.stores.whole import Lock
from trt_responses.tool import Opening

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.accept.accepted import Accepted
    from trt_responses.features.hosted_tools.loop import Approved
    from trt_responses.features.references.sealed import Sealing
    from trt_responses.features.tool_items.items import McpApprovalRequest
    from trt_responses.run.draft import Draft
    from trt_responses.run.generation import Generation
    from trt_responses.run.turns import Turn
    from trt_responses.stores.whole import WholeStore
    from trt_responses.tool import Tool


class HostedTools:
    """Runs the tools that the operator has switched on."""

    def __init__(
        self, tools: Mapping[str, Tool], store: WholeStore, signer: Sealing | None
    ) -> None:
        """`tools` by their kinds."""
        # Every request has an input; approvals in it are of MCP calls.
        self.reads = ("built_in", "input") if "mcp" in tools else ("built_in",)
        self.tools = tools
        self.store = store
        self.signer = signer
        self.memory = OfferMemory()

    def accept(self, accepted: Accepted) -> Step | None:
        if accepted.built_in or ("mcp" in self.tools and has_approvals(accepted)):
            return ToolsStep(self, moves=not accepted.built_in)
        return None


class ToolsStep(Step):
    """The tools of one run."""

    order = 30

    def __init__(self, hosted: HostedTools, *, moves: bool) -> None:
        self.moves = moves  # what tools answered is no part of what is kept
        self._hosted = hosted
        self._opened = OpenedTools(hosted.memory)
        self._approved: Sequence[Approved] = ()
        self._loop: ToolLoop | None = None

    async def offer(self, draft: Draft) -> None:
        """Show the functions that servers of tools offer, and find the calls that are approved."""
        opened, tools, accepted = self._opened, self._hosted.tools, draft.accepted
        draft.after_generating(opened.close)
        if not draft.parts.dialect.takes.namespaces:
            accepted = draft.accepted = opened.as_functions(accepted, tools)
        listing = [one for one in accepted.built_in if lists_functions(tools[one.kind])]
        approves = "mcp" in tools and has_approvals(accepted)
        if not (listing or approves) or accepted.compacts:
            draft.silent = {*draft.silent, *silent_places(accepted, ())}
            return
        if draft.prior is None:
            draft.prior = await prior_of(accepted, draft.records, draft.owner)
        prior, functions = draft.prior, callees(accepted.tools)
        for one in listing:
            read = self._hosted.memory.item
            items = [
                *items_of(prior.blocks, one.kind, read),
                *items_in(accepted, one.kind, read),
            ]
            opening = Opening(draft.owner, one.place, one.options, items)
            await opened.open(one, tools[one.kind], opening, functions)
        signed = partial(self._signed, draft.owner)
        approved = self._approved = approved_calls(accepted, prior.blocks, signed)
        for call in approved:
            if call.tool(opened.used) is None:
                raise not_offered(call)
        draft.accepted = opened.shown(accepted)
        ran = {call.request_id for call in approved}
        draft.silent = {*draft.silent, *silent_places(draft.accepted, ran)}
        draft.at_call = draft.at_call or bool(approved)

    def _signed(self, owner: str, request: McpApprovalRequest) -> bool:
        plain, _, signature = (request.id or "").partition(".")
        signed = (plain, request.server_label, request.name, request.arguments)
        signer = self._hosted.signer
        return signer is not None and signer.has_signed(signature, signed, owner)

    async def planned(self, draft: Draft) -> None:
        """Open the other tools, and note the approvals as used."""
        accepted, parts, opened = draft.accepted, draft.parts, self._opened
        for one in accepted.built_in:
            if not lists_functions(tool := self._hosted.tools[one.kind]):
                check_files(one, tool)
                earlier = earlier_of(draft.prompt.blocks, one.kind, parts.dialect.lexicon)
                opening = Opening(draft.owner, one.place, one.options, *earlier)
                await opened.open(one, tool, opening, draft.called)
        if accepted.built_in:
            loop = self._loop = ToolLoop(
                opened.used, draft.turns, parts.clock_ns, opened.listings, self._approved
            )
            draft.recipients = Both(draft.recipients, loop.recipients)
            draft.tool_names = Both(draft.tool_names, opened.used.names())
        await claim(self._approved, self._hosted.store, draft.owner, draft.id)
        if self._approved:
            draft.after_generating(partial(self._give_back, draft))

    async def _give_back(self, draft: Draft) -> None:
        """Approvals of calls that were not begun, such as those of a server that was too busy, are
        good for another request."""
        assert self._loop is not None, "an approved call is of a tool that is offered"
        for one in self._approved[self._loop.begun :]:
            await self._hosted.store.unlock(Lock(one.request_id, draft.owner, draft.id))

    def write(self, draft: Draft) -> None:
        if self._loop is None:
            return
        options = draft.machine_options
        signer = self._hosted.signer
        sign = None if signer is None else partial(signer.signature, owner=draft.owner)
        options["runners"] = NewCalls(self._opened.used, sign, options.get("runners", NO_CALLS))
        accepted = draft.accepted
        cited = self._opened.cited_text(of_files=not accepted.stop)
        if accepted.answer is None and cited is not None:
            options["answer_text"] = cited

    async def before(self, generation: Generation) -> Turn | None:
        return None if self._loop is None else await self._loop.first(generation)

    async def after(self, generation: Generation) -> Turn | None:
        return None if self._loop is None else await self._loop.turn(generation)
