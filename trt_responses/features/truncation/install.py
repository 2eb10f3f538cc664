"""Chooses which of the oldest turns leave a prompt that is too long (`truncation: auto`).

A turn begins with what a user says. It leaves as a whole, the last one never does, and what the
developer says stays. Knows blocks; knows no request and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.setup.server import Server
from trt_responses.store import Block

ID_BYTES = 4


def overflow(blocks: Sequence[Block], selected: Sequence[bool], room: int) -> frozenset[int]:
    """The places that leave, so that the selected blocks fit into so many tokens."""
    sizes = [
        len(block.ids) // ID_BYTES if keep else 0
        for block, keep in zip(blocks, selected, strict=True)
    ]
    excess = sum(sizes) - room
    return truncated_places(blocks, sizes, excess) if excess > 0 else frozenset()


def truncated_places(blocks: Sequence[Block], sizes: Sequence[int], excess: int) -> frozenset[int]:
    """The places that leave, as few turns as will do; all that may leave, when none will do.

    `sizes` are the blocks' tokens in the prompt, and `excess` is how many of them are too many.
    """
    cut = freed = 0
    splits = _splits(blocks)
    before = 0
    for start in turns(blocks):
        if cut and freed >= excess:
            break
        freed += sum(
            sizes[place] for place in range(before, start) if blocks[place].kind != "developer"
        )
        before = start
        if not splits[start]:
            cut = start
    return frozenset(place for place in range(cut) if blocks[place].kind != "developer")


def turns(blocks: Sequence[Block]) -> list[int]:
    """The places where a turn begins, after the first."""
    starts = []
    answered = False
    for place, block in enumerate(blocks):
        if block.kind == "user":
            if answered:
                starts.append(place)
            answered = False
        elif block.kind != "developer":
            answered = True
    return starts


def _splits(blocks: Sequence[Block]) -> list[int]:
    """For each place, how many results from there on would stay behind without their calls."""
    calls: dict[str, int] = {}
    changes = [0] * (len(blocks) + 1)
    for place, block in enumerate(blocks):
        if block.call_id:
            calls[block.call_id] = place
        elif block.kind == "result":
            call = calls.get(orjson.loads(block.item).get("call_id", ""))
            if call is not None:
                changes[call + 1] += 1
                changes[place + 1] -= 1
    return list(accumulate(changes))


class Truncation:
    """Has no step: prompts are cut where they are made."""

    reads = ("truncates",)

    def accept(self, accepted: Accepted) -> None:
        """Nothing to do."""


def install(server: Server) -> None:
    server.overflow = overflow
    server.features.append(Truncation())
