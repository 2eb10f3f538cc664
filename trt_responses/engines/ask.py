"""Small requests of the server's own: does an engine live, do its guides guide, what it ignores.

Knows how to wait with a deadline; knows no concrete engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from trt_responses.engine import Chunk, Gathered, GenerateOptions, Guide, Handle, Sink
from trt_responses.errors import ApiError
from trt_responses.tokens.control import CONTROL

Ask = Callable[[Sequence[int], GenerateOptions], Awaitable[Sequence[int]]]
"""Gives the ids of an answer; none if there is none."""

PROBE_IDS = (CONTROL.start,)
"""The shortest prompt, of a gpt-oss."""
PROBE = GenerateOptions(max_tokens=1, stop_ids=(), temperature=0.0, priority=1.0)
CANARY = GenerateOptions(
    max_tokens=16,
    stop_ids=(),
    temperature=0.0,
    guide=Guide("json_schema", '{"const": "yes, déjà"}'),
)
"""The words that a new engine is made to write: letters beyond ASCII, at which a guide breaks off
when a model lacks its merges."""

REPEATED = (220,) * 62
"""An end of a prompt with which nearly every model goes on. The id is a space in o200k and in most
vocabularies of bytes, and a token in all."""
SHOWN = 24
"""The number of tokens in which an option shows what it does."""
PENALTIES = ("frequency_penalty", "presence_penalty")


async def ignored_options(ask: Ask, prompt: Sequence[int] = PROBE_IDS) -> frozenset[str]:
    """The options of sampling that an engine takes and does nothing with, found by a short prompt.
    Each is given where it must change the answer, or must keep it:

    - a banned id is not the first of an answer whose first it was;
    - the same seed draws the same ids at the highest temperature;
    - of the likeliest id alone (`min_p` 1) nothing but the greedy answer can be drawn;
    - where the greedy answer is one id again and again, a penalty on what is frequent breaks it.
      Presence is penalised by the same code, too weakly to be sure of a change.
    """
    greedy = GenerateOptions(SHOWN, (), temperature=0.0, priority=1.0)
    drawn = replace(greedy, temperature=2.0)
    found: set[str] = set()
    if not (plain := await ask(prompt, greedy)):
        return frozenset()
    banned = await ask(prompt, replace(greedy, banned_ids=(plain[0],)))
    if banned and banned[0] == plain[0]:
        found.add("banned_ids")
    first, second = [await ask(prompt, replace(drawn, seed=7)) for _ in range(2)]
    if first and second and first != second:
        found.add("seed")
    likeliest = await ask(prompt, replace(drawn, min_p=1.0))
    if likeliest and likeliest != plain:
        found.add("min_p")
    repeating = (*prompt, *REPEATED)
    again = await ask(repeating, greedy)
    repeats = len(again) == SHOWN and len(set(again)) == 1
    if repeats and await ask(repeating, replace(greedy, frequency_penalty=2.0)) == again:
        found.update(PENALTIES)
    return frozenset(found)


async def last_chunk(begin: Callable[[Sink], Handle], deadline_s: float | None) -> Chunk:
    """The chunk that ends a small request. A request that is refused or too late ends with an
    error."""
    answer = Gathered()
    try:
        handle = begin(answer)
    except ApiError as error:
        return Chunk(finish="error", error=error.message)
    try:
        async with asyncio.timeout(deadline_s):
            return await answer.last
    except TimeoutError:
        return Chunk(finish="error", error=f"no token within {deadline_s:g} s")
    finally:
        handle.abort()
