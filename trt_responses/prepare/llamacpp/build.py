"""Prepares a checkpoint for llama.cpp: one GGUF file, which the engine serves.
    convert    the source as one file        leaves <version>/model.gguf
    copy       or the unchanged weights of a GGUF file, under a new head
Has the conversion only; `prepare.pipeline` does the rest, and the caller passes in the engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.open import Checkpoint, open_checkpoint
from trt_responses.prepare.digests import source_facts
from trt_responses.prepare.faults import refusal
from trt_responses.prepare.files import (
    GGUF,
    MODEL,
    EngineFile,
    engine_file,
    file_difference,
    read_finished,
    sha256_of,
    write_finished,
)
from trt_responses.prepare.llamacpp.gguf import WEIGHT_TYPES, WeightType, plan, write_gguf
from trt_responses.prepare.llamacpp.gguf_checkpoint import GgufCheckpoint, open_gguf
from trt_responses.prepare.llamacpp.head import Planned, write_head
from trt_responses.prepare.llamacpp.move import Copy, copy_of
from trt_responses.prepare.phases import Phases
from trt_responses.prepare.pipeline import BuildTools, Built, Product, Target, prepared
from trt_responses.prepare.shelf.card import Kind, Source, StoredWeights

CONVERTER = 4
"""The version of the converter, a part of every engine's version. Raise it when the same checkpoint
gives another file."""
COPIER = 5
"""The same for copies of GGUF files."""


def prepare(
    source: Path,
    engines_dir: Path,
    name: str,
    tools: BuildTools,
    *,
    weight_type: WeightType = "bf16",
    wait: bool = False,
) -> Built:
    """Prepare an engine, or return the prepared one. `wait`: wait for another build of the same
    engine, instead of refusing."""
    if weight_type not in WEIGHT_TYPES:
        raise refusal("weight type", repr(weight_type), ", ".join(WEIGHT_TYPES))
    target: Target
    if source.suffix.lower() == GGUF:
        checkpoint = open_gguf(source, tools.vocabulary)
        target = _Download(
            checkpoint, tools, copy_of(checkpoint.region, engines_dir, move=tools.move)
        )
    else:
        target = _Conversion(open_checkpoint(source), weight_type, tools)
    return prepared(target, engines_dir, name, wait=wait)


@dataclass(frozen=True, slots=True)
class Converted:
    """A finished conversion, recorded for a later run."""

    file: EngineFile
    seconds: float


class _GgufTarget(Target):
    """A target of `prepare.pipeline` with one GGUF file."""

    kind: Kind = "llamacpp"
    phase: str
    checkpoint: Checkpoint | GgufCheckpoint
    tensors: list[Planned]
    """The tensors of the file."""

    def disk_bytes(self) -> float:
        return sum(tensor.size_bytes for tensor in self.tensors)

    def make(self, directory: Path, phases: Phases) -> Product:
        found = read_finished(directory, Converted)
        if found is None or file_difference(found.file, directory):
            found = self._converted(directory, phases)
            write_finished(directory, found)
        return Product(
            files=(found.file,),
            context_tokens=self.checkpoint.architecture.context,
            memory_bytes=found.file.size_bytes,
            seconds={self.phase: found.seconds},
        )

    def _converted(self, directory: Path, phases: Phases) -> Converted:
        self.tools.check_room(directory, self.disk_bytes())
        phases.begin(self.phase, sum(tensor.size_bytes for tensor in self.tensors))
        began, part = self.tools.clock(), directory / f"{MODEL}.part"
        try:
            sha256 = self.write(part, phases.advance)
            part.replace(directory / MODEL)
        finally:
            part.unlink(missing_ok=True)
        seconds = round(self.tools.clock() - began, 3)
        return Converted(engine_file(directory / MODEL, sha256), seconds)

    def write(self, part: Path, advance: Callable[[int], object]) -> str:
        """Write the file, and return its SHA-256."""
        architecture = self.checkpoint.architecture
        return write_gguf(self.tensors, architecture, part, self.tools.vocabulary, advance)


class _Conversion(_GgufTarget):
    """The conversion of a checkpoint to one weight type."""

    phase = "convert"

    def __init__(self, checkpoint: Checkpoint, weight_type: WeightType, tools: BuildTools) -> None:
        self.checkpoint = checkpoint
        self.weight_type = weight_type
        self.tools = tools
        self.tensors = plan(checkpoint, weight_type)

    def identity(self, source: Source) -> str:
        facts = {
            "source": source_facts(source),
            "layout": source.layout,
            "weight_type": self.weight_type,
            "converter": CONVERTER,
        }
        return json.dumps(facts)


class _Download(_GgufTarget):
    """A copy of a GGUF file: unchanged weights under a new head."""

    phase = "copy"
    weight_type: StoredWeights = "gguf"
    checkpoint: GgufCheckpoint

    def __init__(self, checkpoint: GgufCheckpoint, tools: BuildTools, copy: Copy) -> None:
        self.checkpoint = checkpoint
        self.tools = tools
        self._copy = copy
        self.tensors = checkpoint.plan()

    def identity(self, source: Source) -> str:
        facts = {"source": source_facts(source), "layout": source.layout, "converter": COPIER}
        return json.dumps(facts)

    def disk_bytes(self) -> float:
        return self._copy.disk_bytes(super().disk_bytes())

    def write(self, part: Path, advance: Callable[[int], object]) -> str:
        region = self.checkpoint.region
        if region is None:
            return super().write(part, advance)
        write_head(part, self.checkpoint.architecture, self.tools.vocabulary, self.tensors)
        self._copy.write(part.read_bytes(), region, part, advance)
        return sha256_of(part)
