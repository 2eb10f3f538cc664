"""Calls that wait for the client's approval since an earlier response, and that it has approved.

An approval is good for one run, of the arguments that the model wrote then: the conversation says
so where it holds the call, and a ledger where two requests bring the same approval. Knows items and
blocks; knows no tool and no run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import InvalidRequest, invalid_value
from trt_responses.features.hosted_tools.loop import Approved
from trt_responses.features.tool_items.items import (
    McpApprovalRequest,
    McpApprovalResponse,
    McpCall,
    McpListTools,
)
from trt_responses.store import Block
from trt_responses.stores.whole import Lock, WholeStore
from trt_responses.wire.items import SentItem

REMEMBERED_S = 30 * 86_400.0
"""Seconds for which a used approval is remembered."""


async def claim(
    approved: Sequence[Approved], store: WholeStore, owner: str, response_id: str
) -> None:
    """Note approvals as used: each is good once, on all servers of a store together. A used one
    stays locked for the response that it was for. Raises an `InvalidRequest`, and notes none, when
    one was used before."""
    claimed: list[Lock] = []
    for one in approved:
        lock = Lock(one.request_id, owner, response_id)
        if not await store.lock(lock, REMEMBERED_S):
            for other in claimed:
                await store.unlock(other)
            raise _again(one.place, one.request_id)
        claimed.append(lock)


def approved_calls(
    accepted: Accepted, prior: Sequence[Block], signed: Callable[[McpApprovalRequest], bool]
) -> list[Approved]:
    """The calls that the request approves, of servers that it offers. Raises `InvalidRequest` for
    one of a server that it does not offer. `signed` says of a request for approval whether this
    server has written it as it is: a client can have any stored, and bring any."""
    labels = {one.options["server_label"] for one in accepted.built_in if one.kind == "mcp"}
    items = () if isinstance(accepted.input, str) else accepted.input
    verdicts = [
        (place, item) for place, item in enumerate(items) if isinstance(item, McpApprovalResponse)
    ]
    if not verdicts:
        return []
    stored, calls, spent = _stored(prior)
    requests = _requests(items, stored)
    answered = {x.approval_request_id for x in items if isinstance(x, McpCall)}
    answered |= {x.approval_request_id for x in calls}
    found: list[Approved] = []
    for number, item in verdicts:
        place, name = f"input[{number}].approval_request_id", item.approval_request_id
        request = requests.get(name)
        if request is None:
            continue  # an unknown request, which the prompt refuses
        ours = signed(request)
        if request.server_label not in labels and not ours:
            continue  # another server's, and history here
        if name in answered:
            if name in spent:
                raise _again(place, name)
            continue  # it is history, with what it gave
        if name in spent or any(one.request_id == name for one in found):
            raise _again(place, name)
        if not item.approve:
            continue
        if not ours:
            raise invalid_value(
                place,
                "this server requested no approval of this call with these arguments. Send "
                "the 'mcp_approval_request' item as it was given",
                code="invalid_approval",
            )
        call = Approved(name, request.server_label, request.name, request.arguments, place)
        if request.server_label not in labels:
            raise not_offered(call)
        found.append(call)
    return found


def _requests(
    items: Sequence[SentItem], stored: Mapping[str, McpApprovalRequest]
) -> Mapping[str, McpApprovalRequest]:
    """All requests for approval, stored and sent, by their ids. Raises `InvalidRequest` for one
    that is sent again: the model would read its call twice."""
    found = dict(stored)
    for number, item in enumerate(items):
        if isinstance(item, McpApprovalRequest) and item.id:
            if item.id in found:
                place = f"input[{number}].id"
                raise invalid_value(
                    place,
                    f"'{item.id:.100}' stands in the conversation already: send the approval alone",
                    code="duplicate_item",
                )
            found[item.id] = item
    return found


def has_approvals(accepted: Accepted) -> bool:
    """Whether the request answers a request for approval."""
    items = () if isinstance(accepted.input, str) else accepted.input
    return any(isinstance(item, McpApprovalResponse) for item in items)


def silent_places(accepted: Accepted, ran: Collection[str]) -> list[int]:
    """The places of input items that say nothing to a model whose tools run here: lists of tools,
    which stand among the functions, and approvals whose calls are run now."""
    items = () if isinstance(accepted.input, str) else accepted.input
    labels = {one.options["server_label"] for one in accepted.built_in if one.kind == "mcp"}
    return [
        place
        for place, item in enumerate(items)
        if (isinstance(item, McpListTools) and item.server_label in labels)
        or (
            isinstance(item, McpApprovalResponse)
            and item.approve
            and item.approval_request_id in ran
        )
    ]


def _stored(
    prior: Sequence[Block],
) -> tuple[Mapping[str, McpApprovalRequest], Sequence[McpCall], Collection[str]]:
    """The requests for approval in the conversation, its calls, and which of the requests were
    answered, either way."""
    requests, calls, answered = {}, [], set()
    for block in prior:
        if b'"mcp_' not in block.item:
            continue
        item = orjson.loads(block.item)
        match item.get("type"):
            case "mcp_approval_request":
                requests[item["id"]] = McpApprovalRequest.model_validate(item)
            case "mcp_approval_response":
                answered.add(item["approval_request_id"])
            case "mcp_call":
                calls.append(McpCall.model_validate(item))
    return requests, calls, answered


def not_offered(call: Approved) -> InvalidRequest:
    """The fault of a request that approves a call which it does not offer any more."""
    return invalid_value(
        call.place,
        f"no mcp tool of the request offers '{call.name:.64}' of '{call.label:.64}': send the "
        "tool again, with its authorization",
    )


def _again(place: str, request_id: str) -> InvalidRequest:
    return invalid_value(
        place,
        f"'{request_id:.100}' has been answered before, and an answer is good for one run",
        code="approval_already_used",
    )
