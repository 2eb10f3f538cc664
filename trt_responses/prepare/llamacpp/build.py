"""A checkpoint prepared for llama.cpp: one GGUF file, which the engine then answers from.

    convert    the source as one file        leaves <version>/model.gguf

Knows the conversion; the way around it is `prepare.pipeline`, and the engine is handed in.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from trt_responses.frozen import dataclass
from trt_responses.prepare.card import compare
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.digests import source_facts
from trt_responses.prepare.faults import refusal
from trt_responses.prepare.files import (
    MODEL,
    EngineFile,
    engine_file,
    file_difference,
    read_finished,
    write_finished,
)
from trt_responses.prepare.llamacpp.gguf import WEIGHT_TYPES, convert, planned_bytes
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.pipeline import Product, prepared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.engine.base import Engine
    from trt_responses.prepare.card import Card, Kind, Source
    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.llamacpp.gguf import WeightType
    from trt_responses.prepare.phases import Phases
    from trt_responses.prepare.pipeline import BuildTools, Built

CONVERTER = 3
"""Raised when the same checkpoint would give another file; part of every version."""


def prepare(
    source: Path,
    engines_dir: Path,
    name: str,
    tools: BuildTools,
    *,
    weight_type: WeightType = "bf16",
    wait: bool = False,
) -> Built:
    """Prepare an engine, or find it prepared; `wait` for another build of it, or be refused."""
    if weight_type not in WEIGHT_TYPES:
        raise refusal("weight type", repr(weight_type), ", ".join(WEIGHT_TYPES))
    target = _Conversion(open_checkpoint(source), weight_type, tools)
    return prepared(target, engines_dir, name, tools, wait=wait)


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion leaves for a later run."""

    file: EngineFile
    seconds: float


@dataclass(frozen=True, slots=True)
class _Conversion:
    """The target of `prepare.pipeline` for one checkpoint in one weight type."""

    kind: ClassVar[Kind] = "llamacpp"
    checkpoint: Checkpoint
    weight_type: WeightType
    tools: BuildTools

    @property
    def engine_for(self) -> Callable[[Path, Card], Engine] | None:
        return self.tools.engine_for

    def identity(self, source: Source) -> str:
        facts = {
            "source": source_facts(source),
            "layout": source.layout,
            "weight_type": self.weight_type,
            "converter": CONVERTER,
        }
        return json.dumps(facts)

    def difference(self, card: Card, directory: Path) -> str | None:
        return compare(card, directory, this_machine())

    def disk_bytes(self) -> float:
        return planned_bytes(self.checkpoint, self.weight_type)

    def expected(self) -> dict[str, float]:
        return {}

    def notes(self, card: Card) -> tuple[str, ...]:
        return ()

    def make(self, directory: Path, phases: Phases) -> Product:
        found = read_finished(directory, Converted)
        if found is None or file_difference(found.file, directory):
            found = self._converted(directory, phases)
            write_finished(directory, found)
        return Product(
            files=(found.file,),
            context_tokens=self.checkpoint.architecture.context,
            memory_bytes=found.file.size_bytes,
            seconds={"convert": found.seconds},
        )

    def _converted(self, directory: Path, phases: Phases) -> Converted:
        total_bytes = planned_bytes(self.checkpoint, self.weight_type)
        self.tools.check_room(directory, total_bytes)
        phases.begin("convert", total_bytes)
        began, part = self.tools.clock(), directory / f"{MODEL}.part"
        try:
            sha256 = convert(
                self.checkpoint,
                part,
                self.tools.vocabulary,
                weight_type=self.weight_type,
                advance=phases.advance,
            )
            part.replace(directory / MODEL)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        seconds = round(self.tools.clock() - began, 3)
        return Converted(engine_file(directory / MODEL, sha256), seconds)
