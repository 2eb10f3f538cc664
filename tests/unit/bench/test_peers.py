"""Peers beside us, played by apps that a test makes: none of theirs is installed. Budget: 3 s."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bench import inprocess, machine, peers
from bench.asgi import stream_of
from bench.floor import floor
from bench.report import Report
from bench.script import script
from bench.timing import Repeats

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bench.peer_apps import PeerApp
    from bench.script import Script
    from trt_responses.tokens.vocabulary import Vocabulary

    Measure = Callable[[dict[str, PeerApp], Sequence[str]], peers.Row]

LENGTH = 64


class Faulty:
    """The floor as a peer, that does something else from one of its calls on."""

    def __init__(
        self, sound: ASGIApp, does: Callable[[], ASGIApp], scope: str = "http", calls: int = 0
    ) -> None:
        self._sound, self._does, self._scope, self._left = sound, does, scope, calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._sound
        if scope["type"] == self._scope:
            if not self._left:
                app = self._does()
            self._left = max(0, self._left - 1)
        await app(scope, receive, send)


def fails(fault: BaseException) -> Callable[[], ASGIApp]:
    def raising() -> ASGIApp:
        raise fault

    return raising


def peer(app: ASGIApp, ups: list[ASGIApp] | None = None) -> PeerApp:
    @asynccontextmanager
    async def made(_: Script) -> AsyncIterator[ASGIApp]:
        if ups is not None:
            ups.append(app)
        yield app

    return made


@asynccontextmanager
async def absent(_: Script) -> AsyncIterator[ASGIApp]:
    import a_package_that_nobody_has  # type: ignore[import-not-found]

    yield a_package_that_nobody_has.app


@asynccontextmanager
async def leaving(_: Script) -> AsyncIterator[ASGIApp]:
    raise SystemExit("unrecognized arguments: [/strange]")
    yield


@pytest.fixture
def measured(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """The row of peers that a test makes, in the place of the known ones."""

    def run(made: dict[str, PeerApp], names: Sequence[str]) -> peers.Row:
        # patched: tokens enough for a measure take a second, and here none is read
        monkeypatch.setattr(inprocess, "TOKENS_A_REPEAT", 1)

        def ours(words: Script) -> ASGIApp:
            return floor(vocabulary, words, 1)

        (told,) = asyncio.run(peers.rows(vocabulary, ours, (LENGTH,), names, 1, made))
        return told

    return run


def test_peers_are_timed_where_they_say_the_script_and_else_named(
    vocabulary: Vocabulary, measured: Measure
) -> None:
    ups: list[ASGIApp] = []
    made = {
        "same": peer(floor(vocabulary, script(vocabulary, LENGTH), 1), ups),
        "other": peer(floor(vocabulary, script(vocabulary, 32), 1)),
        "absent": absent,
    }
    told = measured(made, [*made, "strange", "same"])
    assert list(told.peers) == [*made, "strange"]
    assert isinstance(told.peers["same"], Repeats)
    assert len(ups) == 1, "it is made once, however often it is named"
    assert str(told.peers["other"]).startswith("void: its ")
    assert str(told.peers["absent"]).startswith("absent (No module named")
    assert str(told.peers["strange"]).startswith("absent")
    assert peers.table([told], anyway=True).row_count == 6


def test_whatever_a_peer_raises_is_its_row_and_the_others_are_timed(
    vocabulary: Vocabulary, measured: Measure
) -> None:
    words = script(vocabulary, LENGTH)
    sound = floor(vocabulary, words, 1)
    other = floor(vocabulary, script(vocabulary, 32), 1)
    closed = False

    @asynccontextmanager
    async def unclean(_: Script) -> AsyncIterator[ASGIApp]:
        nonlocal closed
        yield sound
        closed = True
        raise OSError("it does not stop")

    changed = peers.difference(asyncio.run(stream_of(other, b"{}")), words)
    crash = fails(ZeroDivisionError("[/] of a peer\nand more"))
    made: dict[str, PeerApp] = {
        "leaving": leaving,
        "at startup": peer(Faulty(sound, crash, scope="lifespan")),
        "at the first request": peer(Faulty(sound, crash)),
        "in a timed turn": peer(Faulty(sound, crash, calls=2)),
        "late import": peer(Faulty(sound, fails(ImportError("No module named 'kernels'")))),
        "another text in the end": peer(Faulty(sound, lambda: other, calls=3)),
        "at its end": unclean,
        "same": peer(sound),
    }
    told = measured(made, list(made))
    crashed = "void: ZeroDivisionError: [/] of a peer"
    assert {name: why for name, why in told.peers.items() if isinstance(why, str)} == {
        "leaving": "void: SystemExit: unrecognized arguments: [/strange]",
        "at startup": crashed,
        "at the first request": crashed,
        "in a timed turn": crashed,
        "late import": "absent (No module named 'kernels')",
        "another text in the end": f"void: {changed}",
        "at its end": "void: OSError: it does not stop",
    }
    assert isinstance(told.peers["same"], Repeats)
    assert closed
    console = Console(record=True, width=200)
    console.print(peers.table([told], anyway=True))
    assert "[/] of a peer" in console.export_text()


def test_a_ratio_to_a_noisy_floor_is_shown_only_if_it_is_wanted_anyway() -> None:
    even, uneven, peer = Repeats((2.0, 2.0)), Repeats((1.0, 3.0)), Repeats((30.0, 30.0))

    def shown(floor: Repeats, *, anyway: bool) -> str:
        console = Console(record=True, width=200)
        row = peers.Row(LENGTH, floor, Repeats((3.0, 3.0)), {"a peer": peer})
        console.print(peers.table([row], anyway=anyway))
        return next(line for line in console.export_text().splitlines() if "a peer" in line)

    assert "15.0" in shown(even, anyway=False)
    assert "noisy" not in shown(even, anyway=True)
    assert "noisy (floor 3.00)" in shown(uneven, anyway=False)
    assert "20.0 (noisy)" in shown(uneven, anyway=True)
    assert Report({}, 0.0, peers=[peers.Row(LENGTH, uneven, even, {})]).noisy


def test_the_versions_of_peers_are_told_where_they_are_installed() -> None:
    versions = machine.facts(("pytest", "a-package-that-nobody-has"))["versions"]
    assert isinstance(versions, dict)
    assert versions["pytest"] == pytest.__version__
    assert "a-package-that-nobody-has" not in versions
    assert "pytest" not in machine.facts()["versions"]  # type: ignore[operator]
