"""What of a prompt the cache should keep longest: instructions, and conversations whose calls run.

Both can be read from a Harmony prompt's ids. Without this the cache drops what was used longest
ago, and a conversation that waits for a tool is that. A bound in time keeps what is never used
again from staying.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from trt_responses.engines.trtllm.api import Package
from trt_responses.tokens.control import CONTROL

USER = 1428
"""The token `user`: the author behind `<|start|>` of a user's message."""
USUAL = 35
"""The package's own priority, of 0 to 100."""
INSTRUCTIONS, CALLING = 70, 55
INSTRUCTIONS_FOR, CALLING_FOR = timedelta(minutes=30), timedelta(minutes=2)


class Kept(NamedTuple):
    """The first ids of a prompt that are instructions, and whether calls were made since the last
    message of the user."""

    instructions: int
    calling: bool


def kept_of(ids: Sequence[int]) -> Kept:
    """What a prompt's ids say of the use of its cache."""
    users = list(_users(ids))
    if not users:
        return Kept(0, calling=False)
    return Kept(users[0], CONTROL.call in ids[users[-1] :])


def _users(ids: Sequence[int]) -> Iterator[int]:
    """The places at which messages of the user begin."""
    place = -1
    with suppress(ValueError):  # there is no further message
        while True:
            place = ids.index(CONTROL.start, place + 1)
            if place + 1 < len(ids) and ids[place + 1] == USER:
                yield place


def retention(prompt_ids: Sequence[int], package: Package) -> object | None:
    """The retention of a request, or None where it is the usual one, or the version has none."""
    config = package.retention_config
    if config is None or not (kept := kept_of(prompt_ids)).instructions:
        return None
    part = config.TokenRangeRetentionConfig
    rest = CALLING if kept.calling else USUAL
    limit = CALLING_FOR if kept.calling else None
    return config(
        token_range_retention_configs=[
            part(0, kept.instructions, INSTRUCTIONS, INSTRUCTIONS_FOR),
            part(kept.instructions, None, rest, limit),
        ],
        decode_retention_priority=rest,
        decode_duration_ms=limit,
    )
