"""The way from a checkpoint to a prepared engine, which is the same for every kind.

    validate   every header and byte of the source        leaves engines/<name>/digests.json
    …          what the target does                       leaves its files and finished.json
    verify     the engine answers a fixed prompt
    card       last of all, and whole                     leaves <version>/card.json

A version is the digest of what went in, so the same checkpoint finds its own work again, and a run
goes on where a killed one stopped. Each build that is finished gets the next number besides, and
the first one is promoted. Knows the order; the target and the engine are handed in.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trt_responses.errors import StartupError
from trt_responses.files import reason, unwritable
from trt_responses.frozen import dataclass
from trt_responses.prepare.digests import DIGESTS, digested, version_of
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import FINISHED
from trt_responses.prepare.machine import library_versions
from trt_responses.prepare.memory import memory
from trt_responses.prepare.phases import Phases, rounded
from trt_responses.prepare.progress import Silent, megabytes
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf import versions
from trt_responses.prepare.shelf.card import Card, Limits
from trt_responses.prepare.shelf.locks import locked
from trt_responses.prepare.shelf.shelf import checked_name
from trt_responses.prepare.verify import answered, harmony_question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from trt_responses.engine import Engine
    from trt_responses.prepare.checkpoint.open import WeightSource
    from trt_responses.prepare.files import EngineFile
    from trt_responses.prepare.progress import Progress
    from trt_responses.prepare.shelf.card import DialectFacts, Kind, Source, Status, StoredWeights
    from trt_responses.prepare.shelf.chain import Chain
    from trt_responses.prepare.verify import Question
    from trt_responses.tokens.vocabulary import Vocabulary

SPARE_BYTES = 64 << 20
"""Bytes of disk beside the weights: the vocabulary's strings, the card, the file system's own."""
DIGEST_BYTES_PER_S, WRITE_BYTES_PER_S, START_S = 1e9, 60e6, 5.0
"""Rates and times for the estimate that is announced: digesting a checkpoint, converting or
compiling it (measured on two cores), and loading the vocabulary and an engine."""


def no_dialect(told: Path, family: str | None) -> DialectFacts:
    """Refuse a model's template: the `dialect_for` of tools that serve Harmony alone."""
    raise PrepareError("This model does not speak Harmony, and nothing here reads its template.")


def no_prompts(told: Path, family: str, texts: Sequence[str]) -> Sequence[Sequence[int]]:
    """Refuse to write prompts by a model's template: the `prompts_for` of the same tools."""
    raise PrepareError("Nothing here writes prompts by a model's template.")


class Built(NamedTuple):
    """The outcome of a preparation."""

    directory: Path
    card: Card
    phases: tuple[str, ...]
    """The phases that this run did; empty when the engine was there already."""
    notes: tuple[str, ...] = ()
    """Sentences for a person: why the engine is no more than it is."""


@dataclass(frozen=True, slots=True)
class BuildTools:
    """What preparing needs beside its input; a test hands in its own clock, disk and engine."""

    vocabulary: Vocabulary
    progress: Progress = field(default_factory=Silent)
    engine_for: Callable[[Path, Card], Engine] | None = None
    """Makes an engine over a version's directory; without one the card says built, not verified."""
    say: Callable[[str], object] = lambda sentence: None
    """Called with a sentence about what is done next."""
    dialect_for: Callable[[Path, str | None], DialectFacts] = no_dialect
    """Finds the facts of a model's dialect, from its `dialect.json` and what the operator says."""
    prompts_for: Callable[[Path, str, Sequence[str]], Sequence[Sequence[int]]] = no_prompts
    """Writes a prompt for each of a user's texts, by a model's `dialect.json` and its family."""
    question: Callable[[Path, Card], Question | None] = lambda directory, card: None
    """The question that verifies a model which does not speak Harmony."""
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], datetime] = lambda: datetime.now(UTC)
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    free_memory_bytes: Callable[[], int] = lambda: memory().free_bytes

    def check_room(self, directory: Path, needed_bytes: float, less: str = "") -> None:
        """Raise a `PrepareError` where the disk has no room; `less` is what the person could ask
        instead."""
        needed, free = needed_bytes + SPARE_BYTES, self.free_bytes(directory)
        if needed_bytes and free < needed:
            raise PrepareError(
                f"{directory}: found {megabytes(free)} free, expected {megabytes(needed)}; "
                f"make room, {less}or name another directory for engines."
            )


@dataclass(frozen=True, slots=True)
class Product:
    """What a target has made, as the card will say it."""

    files: tuple[EngineFile, ...]
    context_tokens: int
    memory_bytes: int
    seconds: Mapping[str, float]
    status: Status = "built"
    libraries: Mapping[str, str] = field(default_factory=library_versions)
    hardware: Mapping[str, str] = field(default_factory=dict)
    greedy_ids: tuple[int, ...] = ()
    chain: Chain | None = None
    dialect: DialectFacts | None = None
    ignores: tuple[str, ...] = ()


class Target(Protocol):
    """One kind of engine: what decides its files, and how they are made."""

    @property
    def kind(self) -> Kind: ...
    @property
    def weight_type(self) -> StoredWeights: ...
    @property
    def checkpoint(self) -> WeightSource: ...
    @property
    def engine_for(self) -> Callable[[Path, Card], Engine] | None:
        """The maker of the engine that verifies the build; None where nothing verifies it, or its
        own phases do."""

    def identity(self, source: Source) -> str:
        """A JSON text of all that decides the files: content, and no times or places."""

    def difference(self, card: Card, directory: Path) -> str | None:
        """The reason why an earlier run's engine has to be made again; None if it still holds."""

    def disk_bytes(self) -> float:
        """The bytes that all its files take."""

    def expected(self) -> Mapping[str, float]:
        """The seconds of each phase in their order, where they do not follow from the bytes."""

    def make(self, directory: Path, phases: Phases) -> Product:
        """Make what is not there yet."""

    def notes(self, card: Card) -> tuple[str, ...]:
        """Sentences that a person should know about the outcome."""


def prepared(
    target: Target, engines_dir: Path, name: str, tools: BuildTools, *, wait: bool = False
) -> Built:
    """The engine, found or made. With `wait` it waits for another build of it, and is refused
    otherwise."""
    run = _Run(target, engines_dir / checked_name(name), tools)
    if (reason := unwritable(run.home)) is None:
        with locked(run.home, wait=wait):
            versions.adopt(run.home)
            return run.made()
    if found := run.found():
        return found
    raise PrepareError(
        f"{run.home} cannot be written ({reason}); name another directory for engines."
    )


class _Run:
    """One run over the phases of one engine."""

    def __init__(self, target: Target, home: Path, tools: BuildTools) -> None:
        self.home = home
        self._target = target
        self._tools = tools
        self._phases = Phases(tools.progress, tools.clock, target.expected(), self._announce)

    def found(self) -> Built | None:
        """What an earlier run has made, for a directory that nobody can write."""
        if not any(self.home.glob(f"*/{cards.CARD}")):
            return None
        _, directory = self._validated(Phases(self._tools.progress, self._tools.clock, {}))
        card = self._earlier(directory)
        return None if card is None else Built(directory, card, (), self._target.notes(card))

    def made(self) -> Built:
        """What an earlier run has made, or this one makes; under the engine's lock."""
        source, directory = self._validated(self._phases)
        card = self._earlier(directory)
        if card is None or (card.status == "built" and self._target.engine_for):
            is_new = not directory.exists()
            try:
                card = self._finished(directory, source, card)
            except (OSError, StartupError) as error:
                if is_new and not (directory / FINISHED).exists():  # nothing to go on from
                    shutil.rmtree(directory, ignore_errors=True)
                if isinstance(error, StartupError):
                    raise
                raise PrepareError(
                    f"{directory}: writing stopped ({reason(error)}); make room or choose another "
                    "directory, then run `make engine` again."
                ) from None
        return Built(directory, card, self._phases.done, self._target.notes(card))

    def _announce(self) -> None:
        """Say what will be done, before the first phase."""
        target, weights_bytes = self._target, self._target.checkpoint.size_bytes
        disk = megabytes(target.disk_bytes())
        work_s = weights_bytes / DIGEST_BYTES_PER_S + target.disk_bytes() / WRITE_BYTES_PER_S
        about = rounded(sum(target.expected().values()) or START_S + work_s)
        self._tools.say(
            f"Preparing {self.home.name} ({target.kind}, {target.weight_type}) from "
            f"{megabytes(weights_bytes)} of weights: takes {disk} of disk in {self.home} and about "
            f"{about}."
        )

    def _validated(self, phases: Phases) -> tuple[Source, Path]:
        source = digested(self._target.checkpoint, self.home / DIGESTS, phases)
        return source, self.home / version_of(self._target.identity(source))

    def _earlier(self, directory: Path) -> Card | None:
        """The card of an earlier run, if its files are still as they were."""
        with suppress(PrepareError):
            card = cards.read_card(directory)
            return card if self._target.difference(card, directory) is None else None
        return None

    def _finished(self, directory: Path, source: Source, card: Card | None) -> Card:
        directory.mkdir(exist_ok=True)
        if card is None:
            (directory / cards.CARD).unlink(missing_ok=True)  # of files that are no longer whole
            product = self._target.make(directory, self._phases)
            card = self._card(directory, source, product)
        if engine_for := self._target.engine_for:
            card = self._verified(directory, card, engine_for)
        cards.write_card(directory, card)
        versions.promote_first(self.home, [card])
        (directory / FINISHED).unlink(missing_ok=True)
        return card

    def _verified(
        self, directory: Path, card: Card, engine_for: Callable[[Path, Card], Engine]
    ) -> Card:
        self._phases.begin("verify")
        began = self._tools.clock()
        ids = asyncio.run(
            answered(
                engine_for(directory, card),
                self._tools.question(directory, card) or harmony_question(self._tools.vocabulary),
            )
        )
        seconds = {**card.seconds, "verify": round(self._tools.clock() - began, 3)}
        return replace(card, status="verified", seconds=seconds, greedy_ids=ids)

    def _card(self, directory: Path, source: Source, product: Product) -> Card:
        return Card(
            schema=cards.SCHEMA,
            kind=self._target.kind,
            status=product.status,
            name=self.home.name,
            version=directory.name,
            source=source,
            architecture=self._target.checkpoint.architecture,
            weight_type=self._target.weight_type,
            libraries=product.libraries,
            limits=Limits(product.context_tokens, product.memory_bytes),
            files=product.files,
            built_at=self._tools.today().isoformat(timespec="seconds"),
            seconds=product.seconds,
            greedy_ids=product.greedy_ids,
            hardware=product.hardware,
            chain=product.chain,
            dialect=product.dialect,
            ignores=product.ignores,
            number=versions.new_number(self.home, directory.name),
        )
