"""What a step works on: the target, the prepared engine, one loaded engine or one server.

Engine and server are started when a step needs them, one at a time: a GPU may not hold both. They
use a copy of the prepared engine, as two versions, so that the user's own stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trt_responses.backends import engines
from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.backends.installed import needed
from trt_responses.engine import Chunk, Engine, Gathered, GenerateOptions
from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass
from trt_responses.prepare import demo
from trt_responses.prepare.checkpoint.open import Checkpoint, open_checkpoint
from trt_responses.prepare.files import GGUF
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.card import CARD, Card, read_card, write_card
from trt_responses.prove.claims import Failed, Skipped
from trt_responses.prove.server import Server
from trt_responses.settings import Settings

T = TypeVar("T")
ANSWER_S, LOAD_LIMIT_S = 300.0, 1800.0
COPIED_BYTES = 64 << 20
"""Larger files of an engine are linked instead of copied."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants proven. `engine` is a name, or a place over gRPC or on Triton."""

    checkpoint: Path | None
    """The checkpoint to build; None for an engine."""
    engine: str
    kind: str
    reference: Path | None = None
    """The checkpoint for our own forward pass, if it is not the engine's."""
    lora: Path | None = None
    quick: bool = False

    @property
    def elsewhere(self) -> bool:
        return "://" in self.engine


class Loaded:
    """An engine that runs on an event loop of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._runner = engine, asyncio.Runner()
        try:
            self.run(engine.start(), LOAD_LIMIT_S)
        except StartupError as error:
            self._runner.close()
            raise Failed(f"the engine does not start: {error}") from None

    def run(self, work: Coroutine[None, None, T], limit_s: float = ANSWER_S) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(limit_s):
                return await work

        try:
            return self._runner.run(bounded())
        except TimeoutError:
            raise Failed(f"the engine did not answer within {limit_s:.0f} s") from None

    async def gathered(self, prompt: Sequence[int], options: GenerateOptions) -> Gathered:
        """One answer to its end."""
        sink = Gathered()
        self.engine.generate(prompt, options, sink)
        await sink.last
        return sink

    def answer(self, prompt: Sequence[int], options: GenerateOptions) -> tuple[Gathered, Chunk]:
        """One answer and its last chunk."""
        sink = self.run(self.gathered(prompt, options))
        return sink, sink.last.result()

    def close(self) -> None:
        with suppress(Failed):  # it is gone, or hangs
            self.run(self.engine.stop(30.0))
        self._runner.close()


class Bench:
    """The parts of one proof."""

    def __init__(
        self,
        wish: Wish,
        settings: Settings,
        folder: Path,
        *,
        load: Callable[[Bench], Loaded] | None = None,
        serve: Callable[[Bench], Server] | None = None,
    ) -> None:
        """`load` and `serve` start the engine and the server; a test passes its own."""
        self.wish, self.settings, self.folder = wish, settings, folder
        self.name, self.kind = wish.engine, wish.kind
        """The engine's name for a server, and its kind."""
        self.stall_s = 8.0 if wish.quick else 30.0
        self.engines_dir = folder / "engines"
        self.card: Card | None = None
        self.secrets: set[str] = set()
        self._load, self._serve = load or _loaded, serve or _served
        self._engine: Loaded | None = None
        self._server: Server | None = None

    def prepared(self) -> Card:
        """Use the prepared engine: the promoted version, or the newest one after a build."""
        label = self.wish.engine
        if self.wish.checkpoint is not None:
            label = shelf.versions_of(self.settings.engines_dir, label)[0].label
        directory = shelf.find(self.settings.engines_dir, label)
        self.card = read_card(directory)
        self.name, self.kind = self.card.name, self.card.kind
        two_versions(directory, self.card, self.engines_dir)
        return self.card

    @property
    def load_s(self) -> float:
        """The estimated seconds of one load."""
        is_slow = self.kind == "trtllm"
        return 120.0 + self.size_bytes / 5e8 if is_slow else 3.0 + self.size_bytes / 1e9

    @property
    def size_bytes(self) -> int:
        """The size of the weights, as far as it is known."""
        if self.card is not None:
            return self.card.limits.memory_bytes
        path = self.wish.checkpoint
        files = [] if path is None else path.glob("*.safetensors") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files)

    def engine(self) -> Loaded:
        """The loaded engine. Stops the server."""
        if self._engine is None:
            self.close()
            self._check_prepared()
            if self.card is not None and self.card.dialect is not None:
                raise Skipped("the prompts of this step are for gpt-oss")
            self._engine = self._load(self)
        return self._engine

    def server(self) -> Server:
        """The running server. Stops the engine."""
        if self._server is None or self._server.has_ended():
            self.close()
            self._check_prepared()
            self._server = self._serve(self)
            self.secrets |= {*self._server.secrets}
            try:
                self._server.wait_ready(LOAD_LIMIT_S)
            except Failed:
                self.close()
                raise
        return self._server

    def close(self) -> None:
        parts, self._engine, self._server = (self._engine, self._server), None, None
        for part in parts:
            if part is not None:
                part.close()

    def reference(self) -> Checkpoint:
        """The checkpoint that our own forward pass reads. Raises a `Skipped` without one."""
        path = self.wish.reference or self.wish.checkpoint
        if path is None and self.wish.engine == shelf.DEMO:
            path = demo.demo_checkpoint(self.settings.engines_dir)
        elif path is None and self.card is not None and self.card.kind == "trtllm":
            directory = shelf.find(self.engines_dir, self.name)
            path = engines.trtllm_start(directory, self.card).checkpoint
        if path is None or path.suffix.lower() == GGUF:
            raise Skipped("no checkpoint in safetensors: give one with --reference")
        return open_checkpoint(path)

    def _check_prepared(self) -> None:
        if self.card is None and not self.wish.elsewhere:
            raise Skipped("no engine is prepared: see the step build")


def two_versions(directory: Path, card: Card, engines_dir: Path) -> None:
    """Write NAME@1 and NAME@2 of the same bytes, and promote the first."""
    home, width = engines_dir / card.name, len(card.version)
    for version in (card.version, f"{int(card.version, 16) ^ 1:0{width}x}"):
        target = home / version
        shutil.copytree(directory, target, copy_function=_link_or_copy)
        (target / CARD).unlink()
        made = replace(card, version=version, number=versions.new_number(home, version))
        write_card(target, made)
        versions.promote_first(home, [made])


def _link_or_copy(source: str, target: str) -> None:
    if os.stat(source).st_size <= COPIED_BYTES:
        shutil.copy2(source, target)
        return
    try:
        os.link(os.path.realpath(source), target)  # onnxruntime refuses the other kind of link
    except OSError:
        os.symlink(os.path.realpath(source), target)


def _loaded(bench: Bench) -> Loaded:
    place = {"engine": bench.name, "engines_dir": bench.engines_dir}
    settings = bench.settings.model_copy(update=place)
    if (elsewhere := elsewhere_in(settings)) is not None:
        return Loaded(engines.engine_elsewhere(elsewhere, settings))
    with needed("The fleet, which runs the engine as a server does,"):
        from trt_responses.fleet.engine_process import engine_of
    return Loaded(engine_of(engines.chosen_engine(settings), settings))


def _served(bench: Bench) -> Server:
    return Server(bench.name, bench.engines_dir, bench.folder / "server", bench.stall_s)
