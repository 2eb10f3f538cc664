"""All steps, in their order, each with what it needs and the row of README that it proves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trt_responses.backends.settings import EngineSettings
from trt_responses.frozen import dataclass
from trt_responses.prove import agents, canaries, endings, load, machine, serving
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Figures
from trt_responses.prove.suite import suite

GPUS = "run on GPUs"
"""Proven on a machine with a GPU alone."""
HONOURED = "Every field is honoured, or named as ignored or refused"
WORKS = "An id works the moment you have it"
MENDED = "Malformed Harmony never ends a turn"
UPGRADES = "upgrades that cut no stream"
QUICK_S = 20.0
"""The most that a step takes in the quick form, beside the loads of its engine."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `proves` names a row of README by its words."""

    name: str
    what: str
    proves: str
    run: Callable[[Bench], Figures]
    loads: float
    """For the estimated duration: so many loads of the engine, ..."""
    seconds: float
    """... this time beside them, ..."""
    s_per_gb: float = 0.0
    """... and this for each gigabyte of weights."""
    skip: Callable[[Bench], str | None] = lambda _: None
    """Why the step does not apply, if that is known before it runs."""

    def estimated_s(self, bench: Bench) -> float:
        seconds = min(self.seconds, QUICK_S) if bench.wish.quick else self.seconds
        weights = self.s_per_gb * bench.size_bytes / 1e9
        return self.loads * bench.load_s + seconds + weights


def _here(bench: Bench) -> str | None:
    return "another server runs the engine" if bench.wish.elsewhere else None


def _lora(bench: Bench) -> str | None:
    return "no LoRA given" if bench.wish.lora is None else None


def _worker(bench: Bench) -> str | None:
    apart = EngineSettings.of(bench.settings).engine_process == "always"
    threads = bench.kind in ("tensorrt", "onnx") and not apart
    return "the engine runs in the server's own process" if threads else _here(bench)


C, E, S = canaries, endings, serving
STEPS: Sequence[Step] = (
    Step("doctor", "the machine, and known-bad releases", GPUS, machine.examine, 0, 5),
    Step("build", "the engine, prepared as its card says", GPUS, machine.build, 4, 5, 10, _here),
    Step("options", "bans, seed, min_p and penalties", HONOURED, C.options, 1, 5),
    Step("guides", "a guided answer, letter by letter", HONOURED, C.guides, 0, 2),
    Step("stops", "ids that stop", HONOURED, C.stops, 0, 2),
    Step("logprobs", "log probabilities", HONOURED, C.logprobs, 0, 2),
    Step("lora", "an adapter", HONOURED, C.lora, 0, 2, 0, _lora),
    Step("numerics", "numbers against our own forward pass", GPUS, C.numerics, 0, 5, 12),
    Step("suite", "the promises of the engine seam", GPUS, suite, 0, 20),
    Step("serve", "a response by its id, over HTTP", WORKS, S.serve, 1, 5),
    Step("structured", "strict schemas and forced calls", HONOURED, S.structured, 0, 10),
    Step("load", "streams at once", GPUS, load.load, 0, 180),
    Step("agents", "tasks with tools", MENDED, agents.agents, 0, 180),
    Step("memory", "memory under streams", GPUS, load.memory, 0, 180),
    Step("kill", "the worker killed", GPUS, E.kill, 2, 60, 0, _worker),
    Step("freeze", "the worker frozen", GPUS, E.freeze, 2, 60, 0, _worker),
    Step("swap", "a version swapped under streams", UPGRADES, E.swap, 2, 20, 0, _here),
    Step("drain", "a stop that cuts no stream", UPGRADES, E.drain, 0, 15),
)


def chosen(only: Sequence[str]) -> list[Step]:
    """The steps to run: all, or those named with the build that they need."""
    return [step for step in STEPS if not only or step.name in {*only, "build"}]
