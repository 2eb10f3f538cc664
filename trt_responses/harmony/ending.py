"""What can be said of a compiled schema as a whole: whether a value can come to an end, for a list
that must hold itself cannot, and how many alternatives one place has."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from trt_responses.harmony import jsonvalue as j
from trt_responses.harmony.whitelist import COUNTED_ALONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.harmony.jsontext import Node


def can_end(root: Node) -> bool:
    """Whether the schema allows a value of finite length. Each node is looked at once per need."""
    missing: dict[int, int] = {}
    waited_for: defaultdict[int, list[tuple[Node, int]]] = defaultdict(list)
    ready: list[Node] = []
    for node in _reachable(root):
        needs = _needs(node)
        missing[id(node)] = len(needs)
        for place, options in enumerate(needs):
            for option in options:
                waited_for[id(option)].append((node, place))
        if not needs:
            ready.append(node)
    met: set[tuple[int, int]] = set()
    while ready:
        for node, place in waited_for.pop(id(ready.pop()), ()):
            if (id(node), place) in met:
                continue
            met.add((id(node), place))
            missing[id(node)] -= 1
            if missing[id(node)] == 0:
                ready.append(node)
    return missing[id(root)] == 0


def widest(root: Node) -> int:
    """How many values that are no alternatives themselves one place may hold; a long pattern counts
    for several, as it takes longer to follow. No alternative leads back to itself."""
    known: dict[int, int] = {}

    def width(node: Node) -> int:
        if not isinstance(node, j.Union):
            pattern = node.pattern if isinstance(node, j.String) else None
            return 1 + (pattern.states // COUNTED_ALONE if pattern else 0)
        if id(node) not in known:
            known[id(node)] = sum(map(width, node.options))
        return known[id(node)]

    return max(map(width, _reachable(root)))


def _needs(node: Node) -> list[list[Node]]:
    """What must end for the node to end: one of each list."""
    match node:
        case j.Union():
            return [node.options]
        case j.Object():
            return [[node.members[name]] for name in node.needed]
        case j.Array():
            return [[element] for element in _elements(node)]
        case _:
            return []


def _elements(node: j.Array) -> Iterator[Node]:
    """Those that every such array has, each kind once."""
    yield from node.first[: node.least]
    if node.least > len(node.first) and node.rest is not None:
        yield node.rest


def _reachable(root: Node) -> Iterator[Node]:
    waiting, seen = [root], {id(root)}
    while waiting:
        yield (node := waiting.pop())
        inner: list[Node] = []
        match node:
            case j.Union():
                inner = node.options
            case j.Object():
                inner = [*node.members.values(), *filter(None, [node.rest])]
            case j.Array():
                inner = [*node.first, *filter(None, [node.rest])]
        for other in inner:
            if id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
