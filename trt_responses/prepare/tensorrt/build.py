"""From a checkpoint to compiled TensorRT plans, or to the bare graph; no GPU is needed.

    validate   every header and byte of the source      leaves engines/<name>/digests.json
    graph      the chain of ONNX files                  leaves <version>/graph/
    compile    a plan per file and family of targets    leaves <version>/<targets>/*.plan
    verify     a bare graph answers a fixed prompt
    card       last of all                              leaves <version>/card.json

A killed run leaves `made.json`, and the next one repeats no file that is whole. Knows the order;
graph, compiler and the engine that verifies are named elsewhere or handed in.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trt_responses.prepare import card as cards
from trt_responses.prepare.card import Card, Limits
from trt_responses.prepare.chain import GRAPH, Chain
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.digests import digested
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.graph import expert_file
from trt_responses.prepare.hardware import free_memory_bytes, gpu_facts
from trt_responses.prepare.llamacpp.build import Built
from trt_responses.prepare.progress import Silent
from trt_responses.prepare.shelf import checked_name, locked
from trt_responses.prepare.tensorrt.binding import REMEDY, binding
from trt_responses.prepare.tensorrt.eta import Pace
from trt_responses.prepare.tensorrt.finished import MADE, Made, MadePlan, keep, links_of, made_in
from trt_responses.prepare.tensorrt.job import Job, Result, compiled
from trt_responses.prepare.tensorrt.options import check_room, intended
from trt_responses.prepare.tensorrt.size import plan_bytes
from trt_responses.prepare.tensorrt.targets import check_present
from trt_responses.prepare.verify import answered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.engine.base import Engine
    from trt_responses.prepare.card import Source
    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.progress import Progress
    from trt_responses.prepare.tensorrt.binding import Binding
    from trt_responses.prepare.tensorrt.options import Intent, Wish
    from trt_responses.prepare.tensorrt.targets import Family
    from trt_responses.tokens.vocabulary import Vocabulary

DIGESTS = "digests.json"


def present_target() -> str | None:
    """The compute capability of the first GPU that is seen here."""
    sm = gpu_facts().get("sm")
    return f"sm{sm}" if sm else None


@dataclass(frozen=True, slots=True)
class Means:
    """What a preparation needs beside its input; a test hands in its own machine and clock."""

    vocabulary: Vocabulary
    progress: Progress = field(default_factory=Silent)
    engine_for: Callable[[Path], Engine] | None = None
    """Makes an engine over the directory of a bare graph; without one the card says built."""
    binding: Callable[[], Binding] = binding
    compiled: Callable[[Job], Result] = compiled
    present: Callable[[], str | None] = present_target
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], datetime] = lambda: datetime.now(UTC)
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    free_memory_bytes: Callable[[], int] = free_memory_bytes


def prepare(
    source: Path, engines_dir: Path, name: str, means: Means, wish: Wish, *, wait: bool = False
) -> Built:
    """Prepare an engine, or find it prepared; `wait` for another build of it, or be refused."""
    checked_name(name)
    found = means.binding() if wish.kind == "tensorrt" else None
    _check_onnx()
    checkpoint = open_checkpoint(source)
    intent = intended(
        wish,
        checkpoint,
        memory_bytes=means.free_memory_bytes(),
        present=means.present() if found else None,
    )
    if found and found.flavour == "enterprise":
        check_present([name for f in intent.families for name in f.targets], means.present())
    intent.plan(checkpoint)  # refuses numbers that no graph can have
    home = engines_dir / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with locked(home, wait=wait):
            return _Preparation(checkpoint, home, means, intent, found).run()
    except OSError as error:
        raise PrepareError(f"{home}: writing stopped ({error.strerror}); make room.") from None


def _check_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise PrepareError(f"onnx: found no such package, expected it; {REMEDY}.") from None


class _Preparation:
    """One run over the phases of one engine, under its lock."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        home: Path,
        means: Means,
        intent: Intent,
        found: Binding | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._home = home
        self._means = means
        self._intent = intent
        self._plan = intent.plan(checkpoint)
        self._binding = found
        self._made = Made()
        self._done: list[str] = []

    def run(self) -> Built:
        source = digested(
            self._checkpoint, self._home / DIGESTS, self._begin, self._means.progress.advance
        )
        release = f"{self._binding.flavour} {self._binding.version}" if self._binding else "none"
        directory = self._home / self._intent.version(source, release)
        if card := self._finished(directory):
            return Built(directory, card, tuple(self._done))
        directory.mkdir(exist_ok=True)
        self._made = made_in(directory)
        self._check_room(directory)
        (directory / cards.CARD).unlink(missing_ok=True)
        self._graph(directory)
        for family in self._intent.families:
            self._family(directory, family)
        card = self._card(directory, source)
        cards.write_card(directory, card)
        if self._means.engine_for and not self._intent.families:
            card = self._verified(directory, card, self._means.engine_for)
        (directory / MADE).unlink(missing_ok=True)
        return Built(directory, card, tuple(self._done))

    def _begin(self, phase: str, total_bytes: int = 0) -> None:
        self._means.progress.phase(phase, total_bytes)
        self._done.append(phase)

    def _finished(self, directory: Path) -> Card | None:
        try:
            card = cards.read_card(directory)
        except PrepareError:
            return None
        better = self._means.engine_for and not self._intent.families
        if better and card.status != "verified":
            return None
        return card if cards.compare(card, directory, cards.this_machine()) is None else None

    def _check_room(self, directory: Path) -> None:
        there = sum(file.size_bytes for file in self._made.files)
        needed = self._intent.bytes_needed(self._checkpoint) - there
        check_room(needed, self._means.free_bytes(directory), directory)

    def _graph(self, directory: Path) -> None:
        if self._made.graph:
            return
        from trt_responses.prepare.graph.write import write

        began = self._means.clock()
        self._done.append("graph")
        written = write(self._plan, self._checkpoint, directory, self._means.progress)
        files = [
            cards.engine_file(written.folder / name, digest, GRAPH)
            for link in written.links
            for name, digest in link.digests.items()
        ]
        if not self._intent.families:
            path = expert_file.kept(self._checkpoint, written.folder)
            files.append(cards.engine_file(path, cards.sha256_of(path), GRAPH))
        self._keep(directory, Made(tuple(files), links_of(written), (), self._since(began)))

    def _since(self, began: float) -> float:
        return round(self._means.clock() - began, 3)

    def _keep(self, directory: Path, made: Made) -> None:
        self._made = made
        keep(directory, made)

    def _family(self, directory: Path, family: Family) -> None:
        (directory / family.folder).mkdir(exist_ok=True)
        a = self._checkpoint.architecture
        sizes = {link.name: plan_bytes(a, family, link.count) for link in self._made.links}
        there = {made.file.name for made in self._made.plans}
        missing = {n: s for n, s in sizes.items() if f"{family.folder}/{n}.plan" not in there}
        pace = Pace(self._means.clock, missing)
        for name in missing:
            file_name = f"{family.folder}/{name}.plan"
            self._means.progress.phase(f"{file_name} ({pace.begin(name)})")
            self._done.append(file_name)
            result = self._means.compiled(self._job(directory, family, name))
            path = directory / family.folder / f"{name}.plan"
            file = cards.engine_file(path, result.sha256, family.folder)
            made = MadePlan(file, family.folder, result)
            self._keep(directory, replace(self._made, plans=(*self._made.plans, made)))

    def _job(self, directory: Path, family: Family, name: str) -> Job:
        wish = self._intent.wish
        return Job(
            checkpoint=str(self._checkpoint.directory.resolve()),
            graph=str((directory / GRAPH / f"{name}.onnx").resolve()),
            plan=str((directory / family.folder / f"{name}.plan").resolve()),
            targets=family.targets,
            weights=family.weights,
            element=family.element,
            slots=wish.slots,
            chunk=wish.chunk,
            length=wish.length,
        )

    def _verified(self, directory: Path, card: Card, engine_for: Callable[[Path], Engine]) -> Card:
        """The engine reads the card too, so it is there before; it goes if there is no answer."""
        self._begin("verify")
        began = self._means.clock()
        try:
            ids = asyncio.run(answered(engine_for(directory), self._means.vocabulary))
        except BaseException:
            (directory / cards.CARD).unlink(missing_ok=True)
            raise
        seconds = {**card.seconds, "verify": self._since(began)}
        card = replace(card, status="verified", seconds=seconds, greedy_ids=ids)
        cards.write_card(directory, card)
        return card

    def _card(self, directory: Path, source: Source) -> Card:
        made, wish = self._made, self._intent.wish
        return Card(
            schema=cards.SCHEMA,
            kind=wish.kind,
            status="built",
            name=self._home.name,
            version=directory.name,
            source=source,
            architecture=self._checkpoint.architecture,
            weight_type=self._intent.weight_type,
            libraries=cards.library_versions(),
            limits=Limits(wish.length, sum(file.size_bytes for file in made.files)),
            files=made.files,
            built_at=self._means.today().isoformat(timespec="seconds"),
            seconds=made.seconds_by_phase,
            chain=self._chain(),
        )

    def _chain(self) -> Chain:
        wish = self._intent.wish
        return Chain(
            slots=wish.slots,
            length=wish.length,
            chunk=wish.chunk,
            top=wish.top,
            element=self._intent.element,
            links=self._made.links,
            flavour=self._binding.flavour if self._binding else "none",
            release=self._binding.version if self._binding else "",
            compiled=tuple(map(self._made.compiled, self._intent.families)),
        )
