"""Builds a prepared engine from a checkpoint, in the same phases for every kind.

    validate   every header and byte of the source        leaves engines/<name>/digests.json
    …          the target's own phases                    leaves its files and finished.json
    verify     the engine answers a fixed prompt
    card       the last step, in one write                leaves <version>/card.json

A version is the digest of its inputs, so the same checkpoint finds its earlier work, and a run
continues where a killed one stopped. Each finished build also gets the next number, and the first
one is promoted. Has the order of the phases; the caller passes in the target and the engine.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, NoReturn

from trt_responses.engine import Engine
from trt_responses.files import reason
from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.open import WeightSource
from trt_responses.prepare.digests import DIGESTS, digested, version_of
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import FINISHED, EngineFile, unwritable
from trt_responses.prepare.machine import library_versions, this_machine
from trt_responses.prepare.memory import memory
from trt_responses.prepare.note import card_fields
from trt_responses.prepare.phases import Phases, rounded
from trt_responses.prepare.progress import Progress, Silent, megabytes
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf import versions
from trt_responses.prepare.shelf.card import (
    Card,
    DialectFacts,
    Kind,
    Limits,
    Source,
    Status,
    StoredWeights,
)
from trt_responses.prepare.shelf.chain import Chain
from trt_responses.prepare.shelf.locks import locked
from trt_responses.prepare.shelf.shelf import checked_name
from trt_responses.prepare.verify import Question, answered, harmony_question
from trt_responses.tokens.vocabulary import Vocabulary

SPARE_BYTES = 64 << 20
"""Disk space in addition to the weights: for the vocabulary's strings, the card, the file
system."""
DIGEST_BYTES_PER_S, WRITE_BYTES_PER_S, START_S = 1e9, 60e6, 5.0
"""Rates and times for the estimate: to digest a checkpoint, to convert or compile it (measured on
two cores), and to load the vocabulary and an engine."""


def no_template(*given: object) -> NoReturn:
    """Refuse a model's template: for tools that serve Harmony alone."""
    raise PrepareError("The model has a chat template instead of Harmony: unsupported here.")


class Built(NamedTuple):
    """The outcome of a preparation."""

    directory: Path
    card: Card
    phases: tuple[str, ...]
    """The phases of this run; empty if the engine existed."""
    notes: tuple[str, ...] = ()
    """Notes for the operator, such as the reason why an engine is only planned."""


@dataclass(frozen=True, slots=True)
class BuildTools:
    """Everything that `prepare` needs besides its input. A test passes its own clock, disk and
    engine."""

    vocabulary: Vocabulary
    progress: Progress = field(default_factory=Silent)
    engine_for: Callable[[Path, Card], Engine] | None = None
    """Creates an engine from a version's directory. Without it the card says built, not
    verified."""
    say: Callable[[str], object] = lambda sentence: None
    """Called with a sentence about the next step."""
    dialect_for: Callable[[Path, str | None], DialectFacts] = no_template
    """Finds the facts about a model's dialect from its `dialect.json` and the operator's
    `--family`."""
    prompts_for: Callable[[Path, str, Sequence[str]], Sequence[Sequence[int]]] = no_template
    """Writes a prompt for each of a user's texts, by a model's `dialect.json` and its family."""
    question: Callable[[Path, Card], Question | None] = lambda directory, card: None
    """The question that verifies a model without Harmony."""
    move: bool = False
    """Whether a GGUF file may become the engine's file."""
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], datetime] = lambda: datetime.now(UTC)
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    free_memory_bytes: Callable[[], int] = lambda: memory().free_bytes

    def check_room(self, directory: Path, needed_bytes: float, less: str = "") -> None:
        """Raise a `PrepareError` if the disk has too little space. `less`: an option that needs
        less."""
        needed, free = needed_bytes + SPARE_BYTES, self.free_bytes(directory)
        if needed_bytes and free < needed:
            raise PrepareError(
                f"Not enough disk space: {megabytes(needed)} needed, {megabytes(free)} free in "
                f"{directory}; make room, {less}or choose another directory for engines."
            )


@dataclass(frozen=True, slots=True)
class Product:
    """The product of a target, for the card."""

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


class Target(ABC):
    """One kind of engine: the facts that its files depend on, and the phases that write them."""

    kind: Kind
    weight_type: StoredWeights
    checkpoint: WeightSource
    tools: BuildTools

    @property
    def engine_for(self) -> Callable[[Path, Card], Engine] | None:
        """Creates the engine that verifies the build. None: the target's own phases verify it, or
        it stays unverified."""
        return self.tools.engine_for

    @abstractmethod
    def identity(self, source: Source) -> str:
        """A JSON text of everything that the files depend on: content, without times and paths."""

    def difference(self, card: Card, directory: Path) -> str | None:
        """The reason to build an earlier run's engine again; None if it is still valid."""
        return cards.compare(card, directory, this_machine())

    @abstractmethod
    def disk_bytes(self) -> float:
        """The bytes of all its files."""

    def expected(self) -> Mapping[str, float]:
        """The seconds of each phase in order, if they do not follow from the bytes."""
        return {}

    @abstractmethod
    def make(self, directory: Path, phases: Phases) -> Product:
        """Write the missing files, and return the product."""

    def notes(self, card: Card) -> tuple[str, ...]:
        """Notes for the operator about the outcome."""
        return ()


def prepared(target: Target, engines_dir: Path, name: str, *, wait: bool = False) -> Built:
    """Build the engine, or return the existing one. `wait`: wait for another build of the same
    engine, instead of refusing."""
    run = _Run(target, engines_dir / checked_name(name))
    if (reason := unwritable(run.home)) is None:
        with locked(run.home, wait=wait):
            versions.adopt(run.home)
            return run.build()
    if existing := run.existing():
        return existing
    raise PrepareError(
        f"{run.home} cannot be written ({reason}); choose another directory for engines."
    )


def renewed(directory: Path, tools: BuildTools) -> Card:
    """The card of an engine whose source is gone, after it answered with the packages that are
    installed now."""
    with locked(directory.parent, wait=True):
        card = cards.read_card(directory)
        if tools.engine_for is not None:
            tools.progress.phase("verify")
            ids = _answer(directory, card, tools.engine_for, tools)
            card = replace(card, libraries=library_versions(), greedy_ids=ids)
            cards.write_card(directory, card)
        return card


def _answer(
    directory: Path, card: Card, engine_for: Callable[[Path, Card], Engine], tools: BuildTools
) -> tuple[int, ...]:
    """What the engine answers to the question that verifies it."""
    question = tools.question(directory, card) or harmony_question(tools.vocabulary)
    return asyncio.run(answered(engine_for(directory, card), question))


class _Run:
    """One run over the phases of one engine."""

    def __init__(self, target: Target, home: Path) -> None:
        self.home = home
        self._target = target
        tools = self._tools = target.tools
        self._phases = Phases(tools.progress, tools.clock, target.expected(), self._announce)

    def existing(self) -> Built | None:
        """The engine of an earlier run, in a read-only directory."""
        if not any(self.home.glob(f"*/{cards.CARD}")):
            return None
        _, directory = self._validated(Phases(self._tools.progress, self._tools.clock, {}))
        card = self._earlier(directory)
        return None if card is None else Built(directory, card, (), self._target.notes(card))

    def build(self) -> Built:
        """The engine of an earlier run, or of this one. Runs under the engine's lock."""
        source, directory = self._validated(self._phases)
        card = self._earlier(directory)
        if card is None or (card.status == "built" and self._target.engine_for):
            is_new = not directory.exists()
            try:
                card = self._finished(directory, source, card)
            except BaseException as error:  # Ctrl-C too
                if is_new and not (directory / FINISHED).exists():  # no work to continue
                    shutil.rmtree(directory, ignore_errors=True)
                if not isinstance(error, OSError):
                    raise
                raise PrepareError(
                    f"{directory}: writing stopped ({reason(error)}); make room or choose another "
                    "directory, then run `make engine` again."
                ) from None
        return Built(directory, card, self._phases.done, self._target.notes(card))

    def _announce(self) -> None:
        """Announce the work and its estimated time, before the first phase."""
        target, weights_bytes = self._target, self._target.checkpoint.size_bytes
        disk = megabytes(target.disk_bytes())
        work_s = weights_bytes / DIGEST_BYTES_PER_S + target.disk_bytes() / WRITE_BYTES_PER_S
        about = rounded(sum(target.expected().values()) or START_S + work_s)
        self._tools.say(
            f"Preparing {self.home.name} ({target.kind}, {target.weight_type}) from "
            f"{megabytes(weights_bytes)} of weights: needs {disk} of disk in {self.home} and about "
            f"{about}."
        )

    def _validated(self, phases: Phases) -> tuple[Source, Path]:
        source = digested(self._target.checkpoint, self.home / DIGESTS, phases)
        return source, self.home / version_of(self._target.identity(source))

    def _earlier(self, directory: Path) -> Card | None:
        """The card of an earlier run, if its files are unchanged."""
        with suppress(PrepareError):
            card = cards.read_card(directory)
            return card if self._target.difference(card, directory) is None else None
        return None

    def _finished(self, directory: Path, source: Source, card: Card | None) -> Card:
        directory.mkdir(exist_ok=True)
        if card is None:
            (directory / cards.CARD).unlink(missing_ok=True)  # its files have changed
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
        ids = _answer(directory, card, engine_for, self._tools)
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
            **card_fields(self._target.checkpoint.files),
            number=versions.new_number(self.home, directory.name),
        )
