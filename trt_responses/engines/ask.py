"""The server's own small requests: whether an engine is alive, guides work, and what it ignores.

Waits with a deadline; no concrete engine here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from trt_responses.engine import Chunk, Gathered, GenerateOptions, Guide, Handle, Sink
from trt_responses.errors import ApiError
from trt_responses.tokens.control import CONTROL

Ask = Callable[[Sequence[int], GenerateOptions], Awaitable[Sequence[int]]]
"""Returns the ids of an answer, or none."""

PROBE_IDS = (CONTROL.start,)
"""The shortest prompt for gpt-oss."""
PROBE = GenerateOptions(max_tokens=1, stop_ids=(), temperature=0.0, priority=1.0)
CANARY = GenerateOptions(
    max_tokens=16,
    stop_ids=(),
    temperature=0.0,
    guide=Guide("json_schema", '{"const": "yes, déjà"}'),
)
"""A guided test answer for a new engine. It has non-ASCII letters, at which a guide fails if the
model lacks their merges."""

REPEATED = (220,) * 62
"""An end of a prompt that nearly every model continues. The id is a space in o200k and in most byte
vocabularies, and a token in all."""
SHOWN = 24
"""The number of tokens in which an option's effect shows."""
PENALTIES = ("frequency_penalty", "presence_penalty")


async def ignored_options(ask: Ask, prompt: Sequence[int] = PROBE_IDS) -> frozenset[str]:
    """The sampling options that an engine accepts and ignores, tested with a short prompt.
    Each option is set where it must change the answer, or must keep it:

    - a banned id must not be the first of an answer that began with it;
    - the same seed draws the same ids at the highest temperature;
    - with `min_p` 1 only the likeliest id remains, so the answer is the greedy one;
    - where the greedy answer repeats one id, a frequency penalty breaks the repetition. The same
      code applies the presence penalty, which is too weak for a certain change.
    """
    greedy = GenerateOptions(SHOWN, (), temperature=0.0, priority=1.0)
    drawn = replace(greedy, temperature=2.0)
    ignored: set[str] = set()
    if not (plain := await ask(prompt, greedy)):
        return frozenset()
    banned = await ask(prompt, replace(greedy, banned_ids=(plain[0],)))
    if banned and banned[0] == plain[0]:
        ignored.add("banned_ids")
    first, second = [await ask(prompt, replace(drawn, seed=7)) for _ in range(2)]
    if first and second and first != second:
        ignored.add("seed")
    likeliest = await ask(prompt, replace(drawn, min_p=1.0))
    if likeliest and likeliest != plain:
        ignored.add("min_p")
    repeating = (*prompt, *REPEATED)
    again = await ask(repeating, greedy)
    repeats = len(again) == SHOWN and len(set(again)) == 1
    if repeats and await ask(repeating, replace(greedy, frequency_penalty=2.0)) == again:
        ignored.update(PENALTIES)
    return frozenset(ignored)


async def last_chunk(begin: Callable[[Sink], Handle], deadline_s: float | None) -> Chunk:
    """The last chunk of a small request, with all its ids; an error if it is refused or too
    late."""
    answer = Gathered()
    try:
        handle = begin(answer)
    except ApiError as error:
        return Chunk(finish="error", error=error.message)
    try:
        async with asyncio.timeout(deadline_s):
            return (await answer.last)._replace(token_ids=answer.token_ids)
    except TimeoutError:
        return Chunk(finish="error", error=f"no token within {deadline_s:g} s")
    finally:
        handle.abort()
