"""A chat completion beside a response of the same script: what another spelling of a log costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.asgi import CHAT, post, stream_of
from bench.asks import BODY, CHAT_BODY
from bench.check import check_chat
from bench.inprocess import interleaved
from bench.script import script
from bench.timing import Repeats

if TYPE_CHECKING:
    from bench.ours import Playing
    from trt_responses.tokens.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Row:
    """Both streams, one id a step, in µs of CPU time for each token."""

    response: Repeats
    chat: Repeats


async def row(vocabulary: Vocabulary, playing: Playing, length: int, repeats: int) -> Row:
    """Both streams in turns, over an app that is up; `Wrong` when the chat says anything else."""
    words = script(vocabulary, length)
    playing.play(words, 1)
    app = playing.app
    check_chat(await stream_of(app, CHAT_BODY, CHAT), words)
    times = await interleaved(
        {
            "response": lambda: post(app, BODY, len),
            "chat": lambda: post(app, CHAT_BODY, len, CHAT),
        },
        len(words),
        repeats,
    )
    return Row(*(Repeats(tuple(us)) for us in times.values()))
