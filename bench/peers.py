"""Other servers' own code over our script, where it can be imported: none of it is here.

Each peer is asked by its public entry point for an ASGI app over an engine that plays the script,
one id a step. Its stream is read by its text alone, for peers name and end things differently.
`python -m bench peers --peers gptoss,vllm,trtllm` has those that are absent said by name.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from rich.table import Table

from bench.asgi import living, post, stream_of
from bench.asks import BODY
from bench.floor import floor
from bench.inprocess import interleaved
from bench.script import script
from bench.timing import Repeats, ratio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import ASGIApp

    from bench.script import Script
    from trt_responses.tokens.vocabulary import Vocabulary

    Make = Callable[[Script], ASGIApp]


@dataclass(frozen=True, slots=True)
class Row:
    """One length, one id a step; in `peers` each one that was asked for, or why it is not there."""

    length: int
    floor: Repeats
    ours: Repeats
    peers: dict[str, Repeats | str]


def gptoss(words: Script) -> ASGIApp:
    """The reference server of the package `gpt-oss`, whose engine is a function."""
    from gpt_oss.responses_api.api_server import create_api_server
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    said = iter(words.token_ids)

    def next_token(_: Sequence[int], temperature: float = 0.0, new_request: bool = False) -> int:
        nonlocal said
        if new_request:
            said = iter(words.token_ids)
        return next(said)

    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    app: ASGIApp = create_api_server(next_token, encoding)
    return app


PEERS: dict[str, Make] = {"gptoss": gptoss}


async def rows(
    vocabulary: Vocabulary,
    ours: Make,
    lengths: Sequence[int],
    names: Sequence[str],
    repeats: int,
) -> list[Row]:
    """Each length; `ours` is our app, which is up, over an engine that plays a script."""
    return [await _row(vocabulary, ours, length, names, repeats) for length in lengths]


async def _row(
    vocabulary: Vocabulary, ours: Make, length: int, names: Sequence[str], repeats: int
) -> Row:
    words = script(vocabulary, length)
    apps: dict[str, ASGIApp] = {"floor": floor(vocabulary, words, 1), "ours": ours(words)}
    missing: dict[str, Repeats | str] = {}
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))  # a peer may print much
        for name in names:
            if name not in PEERS:
                missing[name] = "absent (it is not known here how to ask it)"
                continue
            try:
                app = PEERS[name](words)
            except ImportError as fault:
                missing[name] = f"absent ({fault})"
                continue
            await stack.enter_async_context(living(app))
            if (why := told_otherwise(await stream_of(app, BODY), words)) is None:
                apps[name] = app
            else:
                missing[name] = f"void: {why}"
        contenders = {name: _once(app) for name, app in apps.items()}
        times = await interleaved(contenders, len(words), repeats)
    told = {name: Repeats(tuple(us)) for name, us in times.items()}
    return Row(length, told.pop("floor"), told.pop("ours"), {**missing, **told})


def _once(app: ASGIApp) -> Callable[[], Awaitable[object]]:
    return lambda: post(app, BODY, len)


def told_otherwise(stream: bytes, words: Script) -> str | None:
    """Why a peer's deltas do not say what the script says; None if they do."""
    told = {"reasoning": "", "output": ""}
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            event: dict[str, Any] = orjson.loads(line.removeprefix(b"data: "))
            kind = event.get("type", "")
            for name in told:
                if kind == f"response.{name}_text.delta":
                    told[name] += event["delta"]
    for name, text in (("reasoning", words.reasoning), ("output", words.answer)):
        if told[name] != text:
            return f"its {name} deltas have {len(told[name])} characters, the script {len(text)}"
    return None


def table(told: list[Row]) -> Table:
    """The rows, for people."""
    shown = Table(title="Peers, in process, one id a step: CPU µs for each token, median")
    for name in ("answer", "who", "µs", "× floor", "× ours"):
        shown.add_column(name, justify="right" if name != "who" else "left")
    for row in told:
        for name, peer in {"floor": row.floor, "ours": row.ours, **row.peers}.items():
            if isinstance(peer, str):
                shown.add_row(f"{row.length:,}", f"{name}: {peer}", "", "", "")
                continue
            shown.add_row(
                *(f"{row.length:,}", name, f"{peer.median:.2f}"),
                *(f"{ratio(peer, base):.1f}" for base in (row.floor, row.ours)),
            )
    return shown
