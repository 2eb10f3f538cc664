"""Other servers' own code beside ours over one script; `peer_apps.py` says how each is called.

A peer's stream is read by its text alone, for peers name and end things differently. Whatever a
peer raises becomes its row, and the others go on.
`python -m bench peers --peers gptoss,vllm` names those that are absent.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from rich.markup import escape
from rich.table import Table

from bench.asgi import living, post, stream_of
from bench.asks import BODY
from bench.check import Wrong
from bench.floor import floor
from bench.inprocess import interleaved
from bench.machine import MOST_SPREAD
from bench.peer_apps import PEERS
from bench.script import script
from bench.timing import Repeats, ratio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from starlette.types import ASGIApp

    from bench.peer_apps import PeerApp
    from bench.script import Script
    from trt_responses.tokens.vocabulary import Vocabulary

    Ours = Callable[[Script], ASGIApp]

HANGS_S = 120
"""A peer's stream that takes longer, of a tenth of a second, never ends."""

LONGEST_REASON = 160
"""Characters of what a peer raised that its row shows."""


@dataclass(frozen=True, slots=True)
class Row:
    """One length, one id a step; in `peers` each requested peer, or why it is absent."""

    length: int
    floor: Repeats
    ours: Repeats
    peers: dict[str, Repeats | str]


async def rows(
    vocabulary: Vocabulary,
    ours: Ours,
    lengths: Sequence[int],
    names: Sequence[str],
    repeats: int,
    known: Mapping[str, PeerApp] = PEERS,
) -> list[Row]:
    """Each length; `ours` is our app, which is up, over an engine that plays a script."""
    wanted = {name: known.get(name) for name in names}
    return [await _row(vocabulary, ours, length, wanted, repeats) for length in lengths]


async def _row(
    vocabulary: Vocabulary,
    ours: Ours,
    length: int,
    wanted: Mapping[str, PeerApp | None],
    repeats: int,
) -> Row:
    words = script(vocabulary, length)
    base = {"floor": floor(vocabulary, words, 1), "ours": ours(words)}
    for app in base.values():
        await _check(app, words)
    apps: dict[str, ASGIApp] = {}
    faults: dict[str, str] = {}
    closing: dict[str, contextlib.AsyncExitStack] = {}
    with contextlib.redirect_stdout(io.StringIO()):  # a peer may print much
        try:
            for name, peer in wanted.items():
                closing[name] = contextlib.AsyncExitStack()
                with _noted(faults, name):
                    apps[name] = await _up(closing[name], peer, words)
            contenders = {name: _once(app) for name, app in base.items()}
            contenders |= {name: _once_noted(app, faults, name) for name, app in apps.items()}
            times = await interleaved(contenders, len(words), repeats)
            for name, app in apps.items():
                with _noted(faults, name):
                    await _check(app, words)
        finally:
            for name in reversed(closing):
                with _noted(faults, name):
                    await closing[name].aclose()
    texts = {name: Repeats(tuple(us)) for name, us in times.items()}
    peers = {name: faults.get(name) or texts[name] for name in wanted}
    return Row(length, texts["floor"], texts["ours"], peers)


async def _up(stack: contextlib.AsyncExitStack, peer: PeerApp | None, words: Script) -> ASGIApp:
    """A peer's app, which is up and says the script."""
    if peer is None:
        raise ImportError("it is not known here how to ask it")
    app = await stack.enter_async_context(peer(words))
    await stack.enter_async_context(living(app))
    await _check(app, words)
    return app


async def _check(app: ASGIApp, words: Script) -> None:
    async with asyncio.timeout(HANGS_S):
        stream = await stream_of(app, BODY)
    if (why := difference(stream, words)) is not None:
        raise Wrong(why)


@contextlib.contextmanager
def _noted(faults: dict[str, str], name: str) -> Iterator[None]:
    """What a peer's code raises is noted as its row; the first fault is the one that counts."""
    try:
        yield
    except (Exception, SystemExit) as raised:  # its parser of arguments may want to leave
        fault: BaseException = raised
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        text = (str(fault).strip().splitlines() or [""])[0][:LONGEST_REASON]
        if isinstance(fault, ImportError):
            why = f"absent ({text})"
        elif isinstance(fault, Wrong):
            why = f"void: {text}"
        else:
            why = f"void: {type(fault).__name__}: {text}"
        faults.setdefault(name, why)


def _once(app: ASGIApp) -> Callable[[], Awaitable[object]]:
    return lambda: post(app, BODY, len)


def _once_noted(app: ASGIApp, faults: dict[str, str], name: str) -> Callable[[], Awaitable[object]]:
    """A peer's turn, which it takes no more after a fault."""

    async def once() -> None:
        if name not in faults:
            with _noted(faults, name):
                await post(app, BODY, len)

    return once


def difference(stream: bytes, words: Script) -> str | None:
    """Why a peer's deltas do not say what the script says; None if they do."""
    texts = {"reasoning": "", "output": ""}
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            event: dict[str, Any] = orjson.loads(line.removeprefix(b"data: "))
            kind = event.get("type", "")
            for name in texts:
                if kind == f"response.{name}_text.delta":
                    texts[name] += event["delta"]
    for name, text in (("reasoning", words.reasoning), ("output", words.answer)):
        if texts[name] != text:
            return f"its {name} deltas have {len(texts[name])} characters, the script {len(text)}"
    return None


def table(texts: list[Row], *, anyway: bool) -> Table:
    """The rows, for people; no ratio to a noisy floor, unless it is wanted anyway."""
    shown = Table(title="Peers, in process, one id a step: CPU µs for each token, median")
    for name in ("answer", "who", "µs", "× floor", "× ours"):
        shown.add_column(name, justify="right" if name != "who" else "left")
    for row in texts:
        for name, peer in {"floor": row.floor, "ours": row.ours, **row.peers}.items():
            if isinstance(peer, str):
                shown.add_row(f"{row.length:,}", escape(f"{name}: {peer}"), "", "", "")
                continue
            shown.add_row(
                *(f"{row.length:,}", name, f"{peer.median:.2f}"),
                *(_ratio(peer, base, row.floor, anyway) for base in (row.floor, row.ours)),
            )
    return shown


def _ratio(peer: Repeats, base: Repeats, floor: Repeats, anyway: bool) -> str:
    noisy = floor.spread > MOST_SPREAD
    if noisy and not anyway:
        return f"noisy (floor {floor.spread:.2f})"
    return f"{ratio(peer, base):.1f}" + (" (noisy)" if noisy else "")
