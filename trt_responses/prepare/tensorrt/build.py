"""Prepares a checkpoint as compiled TensorRT plans, or as the bare graph. Needs no GPU.

    graph      the chain of ONNX files                  leaves <version>/graph/
    compile    a plan per file and family of targets    leaves <version>/<targets>/*.plan

A run after a killed one keeps every complete file. Has the order of the two phases; `network`
compiles, `prepare.pipeline` does the rest, and the caller passes in the verifying engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trt_responses.engine import Engine
from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.open import Checkpoint, open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import GRAPH, engine_file, sha256_of, write_finished
from trt_responses.prepare.graph.weights import write_experts
from trt_responses.prepare.graph.write import write
from trt_responses.prepare.hardware import gpu_facts
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.phases import Phases
from trt_responses.prepare.pipeline import BuildTools, Built, Product, Target, prepared
from trt_responses.prepare.shelf.card import Card, Source
from trt_responses.prepare.shelf.chain import Chain
from trt_responses.prepare.shelf.plans import REMEDY
from trt_responses.prepare.shelf.shelf import difference
from trt_responses.prepare.tensorrt.binding import Binding, binding
from trt_responses.prepare.tensorrt.finished import (
    Finished,
    FinishedPlan,
    finished_in,
)
from trt_responses.prepare.tensorrt.job import CompileJob, CompileResult, compiled
from trt_responses.prepare.tensorrt.options import Intent, TensorRtOptions, intended
from trt_responses.prepare.tensorrt.size import plan_bytes, time_left
from trt_responses.prepare.tensorrt.targets import Family, check_present


def present_target() -> str | None:
    """The compute capability of the first visible GPU."""
    sm = gpu_facts().get("sm")
    return f"sm{sm}" if sm else None


@dataclass(frozen=True, slots=True)
class Compiler:
    """The installed TensorRT and the GPU. A test passes its own."""

    binding: Callable[[], Binding] = binding
    compiled: Callable[[CompileJob], CompileResult] = compiled
    present: Callable[[], str | None] = present_target


def prepare(
    source: Path,
    engines_dir: Path,
    name: str,
    tools: BuildTools,
    options: TensorRtOptions,
    *,
    compiler: Compiler | None = None,
    wait: bool = False,
) -> Built:
    """Prepare an engine, or return the prepared one. `wait`: wait for another build of the same
    engine, instead of refusing."""
    compiler = compiler or Compiler()
    found = compiler.binding() if options.kind == "tensorrt" else None
    _check_onnx()
    checkpoint = open_checkpoint(source)
    intent = intended(
        options,
        checkpoint,
        memory_bytes=tools.free_memory_bytes(),
        present=compiler.present() if found else None,
    )
    if found and found.flavour == "enterprise":
        check_present([name for f in intent.families for name in f.targets], compiler.present())
    intent.graph(checkpoint)  # refuses numbers that no graph can have
    target = _Compilation(checkpoint, intent, found, compiler.compiled, tools)
    return prepared(target, engines_dir, name, wait=wait)


def _check_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise PrepareError(f"The package onnx is not installed; {REMEDY}.") from None


class _Compilation(Target):
    """The target of `prepare.pipeline` for one intent, compiled or not."""

    checkpoint: Checkpoint

    def __init__(
        self,
        checkpoint: Checkpoint,
        intent: Intent,
        found: Binding | None,
        compiled: Callable[[CompileJob], CompileResult],
        tools: BuildTools,
    ) -> None:
        self.checkpoint = checkpoint
        self.kind = intent.options.kind
        self.weight_type = intent.weight_type
        self.tools = tools
        self._intent = intent
        self._binding = found
        self._compiled = compiled
        self._finished = Finished()

    @property
    def engine_for(self) -> Callable[[Path, Card], Engine] | None:
        return None if self._intent.families else self.tools.engine_for

    def identity(self, source: Source) -> str:
        release = f"{self._binding.flavour} {self._binding.version}" if self._binding else "none"
        return self._intent.identity(source, release)

    def difference(self, card: Card, directory: Path) -> str | None:
        return difference(card, directory, this_machine())

    def disk_bytes(self) -> float:
        return self._intent.disk_bytes(self.checkpoint)

    def make(self, directory: Path, phases: Phases) -> Product:
        self._finished = finished_in(directory)
        there = sum(file.size_bytes for file in self._finished.files)
        self.tools.check_room(directory, self.disk_bytes() - there, "name fewer TARGETS, ")
        if not self._finished.graph:
            self._write_graph(directory, phases)
        for family in self._intent.families:
            self._compile(directory, family, phases)
        found = self._finished
        return Product(
            files=found.files,
            context_tokens=self._intent.options.length,
            memory_bytes=sum(file.size_bytes for file in found.files),
            seconds=found.seconds_by_phase,
            chain=self._chain(),
        )

    def _write_graph(self, directory: Path, phases: Phases) -> None:
        began = self.tools.clock()
        phases.begin("graph")
        spec = self._intent.graph(self.checkpoint)
        written = write(spec, self.checkpoint, directory, phases.advance)
        files = [
            engine_file(written.folder / name, digest, GRAPH)
            for name, digest in written.digests.items()
        ]
        if not self._intent.families:
            path = write_experts(self.checkpoint, written.folder)
            files.append(engine_file(path, sha256_of(path), GRAPH))
        seconds = round(self.tools.clock() - began, 3)
        self._keep(directory, Finished(tuple(files), written.links, (), seconds))

    def _keep(self, directory: Path, finished: Finished) -> None:
        self._finished = finished
        write_finished(directory, finished)

    def _compile(self, directory: Path, family: Family, phases: Phases) -> None:
        (directory / family.folder).mkdir(exist_ok=True)
        a = self.checkpoint.architecture
        there = {plan.file.name for plan in self._finished.plans}
        missing = {
            link.name: plan_bytes(a, family, link.count)
            for link in self._finished.links
            if f"{family.folder}/{link.name}.plan" not in there
        }
        began = self.tools.clock()
        for name in missing:
            left = time_left(missing, name, self.tools.clock() - began)
            phases.begin(f"{family.folder}/{name}.plan", note=left)
            path = directory / family.folder / f"{name}.plan"
            result = self._compiled(self._job(directory, family, path))
            file = engine_file(path, result.sha256, family.folder)
            plans = (*self._finished.plans, FinishedPlan(file, family.folder, result))
            self._keep(directory, replace(self._finished, plans=plans))

    def _job(self, directory: Path, family: Family, plan: Path) -> CompileJob:
        options = self._intent.options
        return CompileJob(
            checkpoint=str(self.checkpoint.directory.resolve()),
            graph=str((directory / GRAPH / f"{plan.stem}.onnx").resolve()),
            plan=str(plan.resolve()),
            family=family,
            slots=options.slots,
            chunk=options.chunk,
            length=options.length,
        )

    def _chain(self) -> Chain:
        options = self._intent.options
        return Chain(
            slots=options.slots,
            length=options.length,
            chunk=options.chunk,
            top=options.top,
            element=self._intent.element,
            links=self._finished.links,
            flavour=self._binding.flavour if self._binding else "none",
            release=self._binding.version if self._binding else "",
            compiled=tuple(map(self._finished.compiled, self._intent.families)),
        )
