"""From a checkpoint to a prepared engine, in phases that a killed run need not repeat.

Knows the order of the phases and what each leaves behind; the engine that verifies is handed in.

    validate   every header and byte of the source     leaves engines/<name>/digests.json
    convert    the source as one GGUF file             leaves <version>/model.gguf, build.json
    verify     the engine answers a fixed prompt       leaves <version>/card.json, last of all

A version is the digest of what went in, so the same checkpoint finds its own work again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Mapping  # noqa: TC003  # decoded by its annotation
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.prepare import card as cards
from trt_responses.prepare.card import Card, EngineFile, Limits, Source
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.decode import decoded
from trt_responses.prepare.digests import digested, json_or_nothing, version_of
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.llamacpp.gguf import WEIGHT_TYPES, convert, planned_bytes
from trt_responses.prepare.progress import Silent, megabytes
from trt_responses.prepare.shelf import checked_name, locked
from trt_responses.prepare.verify import answered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.engine.base import Engine
    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.llamacpp.gguf import WeightType
    from trt_responses.prepare.progress import Progress
    from trt_responses.tokens.vocabulary import Vocabulary

MODEL = "model.gguf"
DIGESTS = "digests.json"
BUILD = "build.json"
SPARE_BYTES = 64 << 20
"""Room beside the tensors: the vocabulary's strings, the card, the file system's own."""


class Built(NamedTuple):
    directory: Path
    card: Card
    phases: tuple[str, ...]
    """Those that this run had to do; empty when the engine was there already."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What the conversion leaves for a later run, in `build.json`."""

    file: EngineFile
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Means:
    """What a build needs beside its input; a test hands in its own clock and disk."""

    vocabulary: Vocabulary
    progress: Progress = field(default_factory=Silent)
    engine_for: Callable[[Path], Engine] | None = None
    """Makes an engine over a GGUF file; without one the card says built, not verified."""
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], datetime] = lambda: datetime.now(UTC)
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free


def build(
    source: Path,
    engines_dir: Path,
    name: str,
    means: Means,
    *,
    weight_type: WeightType = "bf16",
    wait: bool = False,
) -> Built:
    """Prepare an engine, or find it prepared; `wait` for another build of it, or be refused."""
    checked_name(name)
    if weight_type not in WEIGHT_TYPES:
        raise refusal("weight type", repr(weight_type), ", ".join(WEIGHT_TYPES))
    checkpoint = open_checkpoint(source)
    home = _writable(engines_dir / name)
    with locked(home, wait=wait):
        return _Build(checkpoint, home, weight_type, means).run()


def _writable(home: Path) -> Path:
    try:
        home.mkdir(parents=True, exist_ok=True)
        cards.write_whole(home / "writable", "")
        (home / "writable").unlink()
    except OSError as error:
        raise PrepareError(
            f"{home} cannot be written ({error.strerror}); name another directory for engines."
        ) from None
    return home


class _Build:
    """One run over the phases of one engine, under its lock."""

    def __init__(
        self, checkpoint: Checkpoint, home: Path, weight_type: WeightType, means: Means
    ) -> None:
        self._checkpoint = checkpoint
        self._home = home
        self._weight_type = weight_type
        self._means = means
        self._done: list[str] = []

    def run(self) -> Built:
        source = self._validated()
        version = version_of(source, self._weight_type)
        directory = self._home / version
        if card := self._finished(directory):
            return Built(directory, card, tuple(self._done))
        try:
            directory.mkdir(exist_ok=True)
            converted = self._converted(directory)
            card = self._verified(directory, source, converted)
            cards.write_card(directory, card)
        except OSError as error:
            raise PrepareError(
                f"{directory}: writing stopped ({error.strerror}); make room or choose another "
                "directory, then run `make engine` again."
            ) from None
        (directory / BUILD).unlink(missing_ok=True)
        return Built(directory, card, tuple(self._done))

    def _finished(self, directory: Path) -> Card | None:
        """The card of an earlier run that nothing has happened to, and that we cannot better."""
        try:
            card = cards.read_card(directory)
        except PrepareError:
            return None
        if card.status != "verified" and self._means.engine_for:
            return None
        return card if cards.compare(card, directory, cards.this_machine()) is None else None

    def _validated(self) -> Source:
        advance = self._means.progress.advance
        return digested(self._checkpoint, self._home / DIGESTS, self._begin, advance)

    def _begin(self, phase: str, total_bytes: int = 0) -> None:
        self._means.progress.phase(phase, total_bytes)
        self._done.append(phase)

    def _converted(self, directory: Path) -> Converted:
        if found := _earlier(directory):
            return found
        total = planned_bytes(self._checkpoint, self._weight_type)
        self._check_room(directory, total)
        (directory / cards.CARD).unlink(missing_ok=True)  # of a file that is no longer whole
        self._begin("convert", total)
        began, part = self._means.clock(), directory / f"{MODEL}.part"
        try:
            sha256 = convert(
                self._checkpoint,
                part,
                self._means.vocabulary,
                weight_type=self._weight_type,
                advance=self._means.progress.advance,
            )
            part.replace(directory / MODEL)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        file = cards.engine_file(directory / MODEL, sha256)
        converted = Converted(file, {"convert": round(self._means.clock() - began, 3)})
        cards.write_whole(directory / BUILD, json.dumps(asdict(converted), indent=2) + "\n")
        return converted

    def _check_room(self, directory: Path, total_bytes: int) -> None:
        needed, free = total_bytes + SPARE_BYTES, self._means.free_bytes(directory)
        if free < needed:
            raise PrepareError(
                f"{directory}: found {megabytes(free)} free, expected {megabytes(needed)}; "
                "make room, or name another directory for engines."
            )

    def _verified(self, directory: Path, source: Source, converted: Converted) -> Card:
        a = self._checkpoint.architecture
        card = Card(
            schema=cards.SCHEMA,
            kind="llamacpp",
            status="built",
            name=self._home.name,
            version=directory.name,
            source=source,
            architecture=a,
            weight_type=self._weight_type,
            libraries=cards.library_versions(),
            limits=Limits(a.context, converted.file.size_bytes),
            files=(converted.file,),
            built_at=self._means.today().isoformat(timespec="seconds"),
            seconds=converted.seconds,
        )
        if self._means.engine_for is None:
            return card
        self._begin("verify")
        began = self._means.clock()
        engine = self._means.engine_for(directory / MODEL)
        ids = asyncio.run(answered(engine, self._means.vocabulary))
        seconds = {**card.seconds, "verify": round(self._means.clock() - began, 3)}
        return replace(card, status="verified", seconds=seconds, greedy_ids=ids)


def _earlier(directory: Path) -> Converted | None:
    """The conversion of an earlier run, finished or killed after it, if its file is still whole."""
    try:
        card = cards.read_card(directory)
        found = Converted(card.files[0], card.seconds)
    except PrepareError:
        try:
            found = decoded(Converted, json_or_nothing(directory / BUILD), BUILD)
        except PrepareError:
            return None
    return found if cards.file_difference(found.file, directory) is None else None
