"""Whether a value can come to an end: a list that must hold itself cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.harmony import jsonvalue as j

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.harmony.jsontext import Node


def can_end(root: Node) -> bool:
    """Whether the schema allows a value of finite length: a list that must hold itself does not."""
    nodes, ending = list(_reachable(root)), set[int]()
    growing = True
    while growing:
        growing = False
        for node in nodes:
            if id(node) not in ending and all(_any_ends(need, ending) for need in _needs(node)):
                ending.add(id(node))
                growing = True
    return id(root) in ending


def _any_ends(options: list[Node], ending: set[int]) -> bool:
    return any(id(option) in ending for option in options)


def _needs(node: Node) -> list[list[Node]]:
    """What must end for the node to end: one of each list."""
    match node:
        case j.Union():
            return [node.options]
        case j.Object():
            return [[node.members[name]] for name in node.needed]
        case j.Array():
            elements = (node.element(place) for place in range(node.least))
            return [[element] for element in elements if element is not None]
        case _:
            return []


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
