"""All steps, in their order, each with what it needs and the row of README that it proves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trt_responses.frozen import dataclass
from trt_responses.prove import agents, canaries, endings, load, machine, numerics, serving
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Figures
from trt_responses.prove.suite import suite

GPUS = "run on GPUs"
"""Proven on a machine with a GPU alone."""
HONOURED = "Every field is honoured, or named as ignored or refused"
WORKS = "An id works the moment you have it"
MENDED = "Malformed Harmony never ends a turn"
UPGRADES = "upgrades that cut no stream"
ANOTHER = "another server runs the engine"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `proves` names a row of README by its words."""

    name: str
    what: str
    proves: str
    run: Callable[[Bench], Figures]
    seconds: Callable[[Bench], float]
    """The estimated duration."""
    skip: Callable[[Bench], str | None] = lambda _: None
    """Why the step does not apply, if that is known before it runs."""


def _here(bench: Bench) -> str | None:
    return ANOTHER if bench.wish.elsewhere else None


def _lora(bench: Bench) -> str | None:
    return "no LoRA given" if bench.wish.lora is None else None


def _worker(bench: Bench) -> str | None:
    threads = bench.kind in ("tensorrt", "onnx") and bench.settings.engine_process != "always"
    return "the engine runs in the server's own process" if threads else _here(bench)


def _loads(count: float, more: float) -> Callable[[Bench], float]:
    """An estimate: so many loads of the engine, and some seconds more."""
    return lambda bench: count * bench.load_s + more


def _build(bench: Bench) -> float:
    return 5.0 + bench.size_bytes / 1e8 + (4 * bench.load_s if bench.kind == "trtllm" else 0)


def _deaths(bench: Bench) -> float:
    return 2 * bench.load_s + 2 * bench.stall_s


C, E, M, N, S = canaries, endings, machine, numerics, serving
STEPS: Sequence[Step] = (
    Step("doctor", "the machine, and known-bad releases", GPUS, M.examine, _loads(0, 5)),
    Step("build", "the engine, prepared as its card says", GPUS, M.build, _build, _here),
    Step("options", "bans, seed, min_p and penalties", HONOURED, C.options, _loads(1, 5)),
    Step("guides", "a guided answer, letter by letter", HONOURED, C.guides, _loads(0, 2)),
    Step("stops", "ids that stop", HONOURED, C.stops, _loads(0, 2)),
    Step("logprobs", "log probabilities", HONOURED, C.logprobs, _loads(0, 2)),
    Step("lora", "an adapter", HONOURED, C.lora, _loads(0, 2), _lora),
    Step("numerics", "numbers against our own forward pass", GPUS, N.numerics, N.seconds),
    Step("suite", "the promises of the engine seam", GPUS, suite, _loads(0, 20)),
    Step("serve", "a response by its id, over HTTP", WORKS, S.serve, _loads(1, 5)),
    Step("structured", "strict schemas and forced calls", HONOURED, S.structured, _loads(0, 10)),
    Step("load", "streams at once", GPUS, load.load, load.seconds),
    Step("agents", "tasks with tools", MENDED, agents.agents, load.seconds),
    Step("memory", "memory under streams", GPUS, load.memory, load.seconds),
    Step("kill", "the worker killed", GPUS, E.kill, _deaths, _worker),
    Step("freeze", "the worker frozen", GPUS, E.freeze, _deaths, _worker),
    Step("swap", "a version swapped under streams", UPGRADES, E.swap, _loads(2, 20), _here),
    Step("drain", "a stop that cuts no stream", UPGRADES, E.drain, _loads(0, 15)),
)


def chosen(only: Sequence[str]) -> list[Step]:
    """The steps to run: all, or those named with the build that they need."""
    return [step for step in STEPS if not only or step.name in {*only, "build"}]
