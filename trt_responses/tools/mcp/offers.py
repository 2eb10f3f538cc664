"""What one request is offered of a server's list of tools: which tools, by which names, with which
approvals. It is the same for the next request like it, and made once for them all.

Knows no connection and no request of the API.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from trt_responses.frozen import bytes_of
from trt_responses.tool import Function, Recipient
from trt_responses.tools.mcp.limits import Fault
from trt_responses.tools.mcp.words import Listed, description_of, schema_of
from trt_responses.tools.session import DEFERS, Listing, function_name

FUNCTIONS = "functions."
MOST_DEFERRED = 4096
"""Tools of a server whose tools the model reads of only when a search has found them."""
KEPT_CHARACTERS = 16 << 20
"""Of all lists from which something is kept: some 16,000 tools, or one list that is longer."""

T = TypeVar("T")


class Offer(NamedTuple):
    """The tools of one server that a request may call."""

    listing: Listing
    recipients: Mapping[str, Recipient]


class MadeOnce(Generic[T]):
    """Values that were made of a list, by that very list and a key; the longest unused go first."""

    def __init__(self, most: int = KEPT_CHARACTERS) -> None:
        """`most`: characters of all lists and keys that are kept."""
        self._most = most
        self._size = 0
        self._made: OrderedDict[tuple[int, bytes], tuple[Sequence[Any], T, int]] = OrderedDict()

    def of(self, source: Sequence[Any], key: bytes, make: Callable[[], T]) -> T:
        place = (id(source), key)
        if place in self._made:
            self._made.move_to_end(place)
            return self._made[place][1]
        made, size = make(), len(str(source)) + len(key)
        self._made[place] = source, made, size  # which keeps the list, and so its identity
        self._size += size
        while self._size > self._most and len(self._made) > 1:
            _, (_, _, gone) = self._made.popitem(last=False)
            self._size -= gone
        return made


def offer_key(options: Mapping[str, Any], configured: Collection[str] | None) -> bytes:
    """All that an offer depends on but the list."""
    names = (
        *("server_label", "server_description", "allowed_tools", "excluded_tools"),
        *("require_approval", DEFERS),
    )
    wanted = [options.get(name) for name in names]
    return bytes_of([wanted, None if configured is None else sorted(configured)])


def offer_of(
    listed: Sequence[Listed],
    options: Mapping[str, Any],
    configured: Collection[str] | None,
    max_tools: int,
) -> Offer:
    """The offer to a request of these options. `configured`: the tools that the operator allows.
    Raises a `Fault` for too many tools, or for two with the same name for the model."""
    label, about = options["server_label"], options.get("server_description")
    offered = _offered(listed, options, configured)
    most = MOST_DEFERRED if options.get(DEFERS) else max_tools
    if len(offered) > most:
        raise Fault(
            f"The server offers too many tools: {len(offered)}, limit {most}. Name the needed "
            "ones in 'allowed_tools'."
        )
    recipients = {}
    for name, tool in offered.items():
        kind = "mcp_approval" if _waits(tool, options.get("require_approval")) else "mcp"
        facts = {"server_label": label, "name": tool.name}
        function = Function(description_of(tool, about), schema_of(tool))
        about = None  # before the first tool only
        recipients[FUNCTIONS + name] = Recipient(kind, facts, function=function)
    items = orjson.Fragment(orjson.dumps([*map(_as_item, offered.values())]))
    return Offer(Listing(label, items), recipients)


def _offered(
    listed: Sequence[Listed], options: Mapping[str, Any], configured: Collection[str] | None
) -> dict[str, Listed]:
    """The allowed tools, by the model's names."""
    requested, excluded = options.get("allowed_tools"), options.get("excluded_tools", ())
    offered: dict[str, Listed] = {}
    for tool in listed:
        is_barred = configured is not None and tool.name not in configured
        if is_barred or tool.name in excluded or not _allowed(tool, requested):
            continue
        name = function_name(options["server_label"], tool.name)
        other = offered.setdefault(name, tool)
        if other.name != tool.name:  # a tool may be listed twice
            raise Fault(
                f"The server's tools '{other.name:.200}' and '{tool.name:.200}' both have the "
                f"name '{name}' for the model: name one of them in 'allowed_tools'."
            )
    return offered


def _waits(tool: Listed, requested: str | Mapping[str, Any] | None) -> bool:
    """Whether a call needs approval."""
    if requested is None or isinstance(requested, str):
        return requested != "never"
    never, always = requested.get("never"), requested.get("always")
    if always is not None and _matches(tool, always):
        return True
    return never is None or not _matches(tool, never)


def _as_item(tool: Listed) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": description_of(tool, None),
        "input_schema": schema_of(tool),
        "annotations": tool.annotations,
    }


def _allowed(tool: Listed, requested: Collection[str] | Mapping[str, Any] | None) -> bool:
    if requested is None:
        return True
    return _matches(tool, requested) if isinstance(requested, dict) else tool.name in requested


def _matches(tool: Listed, requested: Mapping[str, Any]) -> bool:
    """Whether a filter matches the tool, by name, by read-only hint, or by both."""
    names, read_only = requested.get("tool_names"), requested.get("read_only")
    if names is not None and tool.name not in names:
        return False
    return read_only is None or read_only == bool((tool.annotations or {}).get("readOnlyHint"))
