"""The steps of `gpu_check`: each does one thing on the GPU and gives figures, or says what differs.

Knows executors, plans and the CPU's numbers; prints nothing and ends nothing.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from trt_responses.engines.tensorrt.cuda import Cuda
from trt_responses.engines.tensorrt.plan import reasons
from trt_responses.engines.tensorrt.rtx import RtxExecutor
from trt_responses.prepare import demo
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.shelf.card import architecture_of, chain_of
from trt_responses.prepare.shelf.shelf import SOURCE
from trt_responses.prepare.tensorrt.build import Compiler, prepare
from trt_responses.prepare.tensorrt.options import TensorRtOptions
from trt_responses.prepare.tensorrt.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from trt_responses.engines.tensorrt.executor import Executor
    from trt_responses.prepare.pipeline import BuildTools, Built
    from trt_responses.prepare.shelf.chain import Format

Figures = dict[str, object]

ROOT = Path(__file__).parents[1]
SMALL = replace(TINY, layers=3, experts=16)
"""Small enough to compile in seconds, with enough experts that a long chunk can overflow one."""
PROMPTS = (37, 150, 5, 200)
"""Tokens: within and beyond the sliding window, and all in one batch."""
WISH = TensorRtOptions(slots=4, length=512, chunk=128, group=1)
CLOSE = {"f32": 1e-2, "f16": 0.5, "bf16": 2.0, "int8": 2.0, "mxfp4": 2.0}
"""Largest difference of a logit from the float32 graph on the CPU that is still rounding: random
weights amplify it, and the trained demo is compared token for token."""


class Here(NamedTuple):
    """The GPU, and where steps may write; a test hands in others than the real modules."""

    trt: ModuleType
    cuda: ModuleType
    target: str
    folder: Path
    tools: BuildTools
    compiler: Compiler = Compiler()

    def formats(self) -> list[Format]:
        kind = TARGETS[self.target]
        found: list[Format] = ["f32", "f16", "int8"]
        if kind.bfloat16:
            found.append("bf16")
        if kind.fp4:
            found.append("mxfp4")
        return found


class Differs(Exception):
    """A comparison failed; the figures say how."""


def built(here: Here, source: Path, wish: TensorRtOptions) -> Built:
    """Compiled for this GPU, or the bare graph for the CPU."""
    name = "-".join(filter(None, (source.name, wish.kind, wish.weights)))
    if wish.kind == "tensorrt" and not wish.targets:
        wish = replace(wish, targets=(here.target,))
    return prepare(
        source, here.folder / "engines", name.lower(), here.tools, wish, compiler=here.compiler
    )


def on_gpu(here: Here, engine: Built, caches: Path | None = None) -> RtxExecutor:
    chain = chain_of(engine.card)
    return RtxExecutor(
        engine.directory / chain.for_target(here.target).folder,
        [link.name for link in chain.links],
        slots=chain.slots,
        chunk=chain.chunk,
        cuda=Cuda(here.cuda),
        caches=caches,
        binding=here.trt,
    )


def on_cpu(engine: Built) -> Executor:
    from trt_responses.engines.tensorrt.onnx import OnnxExecutor
    from trt_responses.prepare.files import GRAPH
    from trt_responses.prepare.graph.weights import dense, open_experts

    chain, folder = chain_of(engine.card), engine.directory / GRAPH
    weights = open_experts(folder, architecture_of(engine.card))

    def expert(name: str):  # type: ignore[no-untyped-def]  # an array of the graph's element
        _, layer, projection = name.split(".")
        return dense(weights, int(layer), projection, chain.element)

    names = [link.name for link in chain.links]
    return OnnxExecutor(folder, names, expert, slots=chain.slots, chunk=chain.chunk, threads=4)


def compared(ours: Executor, theirs: Executor, steps: int, seed: int = 1) -> Figures:
    """Ragged prompts in all slots, then greedy steps that follow `theirs`: the largest difference
    of a logit, how many greedy choices agree, and the first step at which one does not."""
    random = np.random.default_rng(seed)
    lens = np.array(PROMPTS[: theirs.slots], np.int64)
    chosen = np.zeros(theirs.slots, np.int64)
    largest, agreed, first = 0.0, 0, None
    for slot, size in enumerate(lens):
        ids = random.integers(0, 199_000, int(size))
        for at in range(0, int(size), theirs.chunk):
            rows = [e.prefill(slot, ids[at : at + theirs.chunk], at) for e in (ours, theirs)]
        largest = max(largest, _apart(rows[0].logits(0), rows[1].logits(0)))
        chosen[slot] = rows[1].ids[0, 0]
    for step in range(steps):
        mine, other = (e.decode(chosen, lens) for e in (ours, theirs))
        for slot in range(theirs.slots):
            largest = max(largest, _apart(mine.logits(slot), other.logits(slot)))
            same = mine.ids[slot, 0] == other.ids[slot, 0]
            agreed += int(same)
            first = step if first is None and not same else first
        chosen, lens = other.ids[:, 0].copy(), lens + 1
    return {
        "largest logit difference": round(largest, 6),
        "greedy choices": steps * theirs.slots,
        "that agree": agreed,
        "first that does not, at step": first,
    }


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    difference = float(np.abs(ours - theirs).max())
    return difference if np.isfinite(difference) else float("inf")


# --- the steps ----------------------------------------------------------------------------------


def machine(here: Here) -> Figures:
    """What the runtime says of plans for two generations on this GPU, a target or not."""
    found: Figures = {"target": here.target, "free bytes": Cuda(here.cuda).free_bytes()}
    source = checkpoint_of(here, "mxfp4", 1)
    engine = built(here, source, replace(WISH, targets=("sm86", "sm120")))
    for family in chain_of(engine.card).compiled:
        plan = (engine.directory / family.folder / "layers_00_00.plan").read_bytes()
        judge = here.trt.Runtime(here.trt.Logger(here.trt.Logger.ERROR))
        validity, bits = judge.get_engine_validity(plan)
        found[f"plan for {family.folder}"] = f"{validity}: {reasons(here.trt, int(bits))}"
    return found


def weights(here: Here) -> Figures:
    """Each format's order of codes and blocks: the identity times the experts, bit for bit."""
    from scripts.gpu_weights import read_through

    source = open_checkpoint(checkpoint_of(here, "mxfp4"))
    found: Figures = {}
    for kind in here.formats():
        for projection in ("gate_up", "down"):
            found[f"{kind} {projection}"] = read_through(here, source, kind, projection)
    if any(found.values()):
        raise Differs(found)
    return found


def attention(here: Here) -> Figures:
    """One sliding layer and one whole one, in float32: sinks, windows, ragged rows, slot views."""
    found = both(here, checkpoint_of(here, "f32", 2), "f32", steps=16)
    judge(found, "f32", found)
    return found


def models(here: Here) -> Figures:
    """A random MXFP4 model in every format, against the CPU's float32 of the same weights."""
    found: Figures = {}
    for kind in here.formats():
        found[kind] = figures = both(here, checkpoint_of(here, "mxfp4"), kind, steps=64)
        judge(figures, kind, found)
    return found


def trained(here: Here) -> Figures:
    """The demo, which has something to say: nearly every greedy choice must agree."""
    engines, beside = here.folder / "engines", ROOT / "engines" / SOURCE
    if (beside / demo.COMPACT).is_file() and not (engines / SOURCE).exists():
        shutil.copytree(beside, engines / SOURCE)
    kind: Format = "bf16" if TARGETS[here.target].bfloat16 else "f16"
    found = both(here, demo.demo_checkpoint(engines), kind, steps=64)
    if found["that agree"] < 0.98 * found["greedy choices"]:  # type: ignore[operator]  # two counts
        raise Differs(found)
    return found


def overflow(here: Here) -> Figures:
    """A chunk of one repeated token overflows an expert, is reported, and is right in pieces."""
    source = checkpoint_of(here, "f32")
    ours, theirs = executors(here, source, "f32")
    same = np.full(WISH.chunk, 1000, np.int64)
    over = [e.prefill(0, same, 0).overflow for e in (ours, theirs)]
    for at in range(0, WISH.chunk, 64):
        rows = [e.prefill(0, same[at : at + 64], at) for e in (ours, theirs)]
    found: Figures = {"overflow": over, "in pieces": _apart(rows[0].logits(0), rows[1].logits(0))}
    ours.close()
    if over[0] != over[1] or over[0] <= 0 or rows[0].overflow > 0:
        raise Differs(found)
    return found


def speed(here: Here) -> Figures:
    """Starts cold and warm, memory, and a layer's step by the runtime's strategies."""
    from scripts.gpu_plan import LoadedPlan

    engine = built(here, checkpoint_of(here, "mxfp4"), WISH)
    found: Figures = {}
    for start in ("cold start, s", "warm start, s"):
        began = time.perf_counter()
        executor = on_gpu(here, engine, here.folder / "cache")
        executor.decode(np.zeros(4, np.int64), np.zeros(4, np.int64))
        found[start] = round(time.perf_counter() - began, 3)
        executor.close()
    path = engine.directory / here.target / "layers_00_00.plan"
    for kernels in ("LAZY", "EAGER"):
        for graph in ("DISABLED", "WHOLE_GRAPH_CAPTURE"):
            plan = LoadedPlan(
                here.trt, Cuda(here.cuda), path, sizes=(WISH.slots, 1), kernels=kernels, graph=graph
            )
            found[f"step, {kernels}, graph {graph}, ms"] = round(plan.settled() * 1e3, 4)
    inspector = plan.engine.create_engine_inspector()
    inspected = inspector.get_engine_information(here.trt.LayerInformationFormat.JSON)
    profiles = [plan.engine.get_device_memory_size_for_profile_v2(n) for n in (0, 1)]
    return found | {"inspector characters": len(inspected), "working bytes by profile": profiles}


def layer(here: Here) -> Figures:
    """One layer of a 20b's shape with random weights: a step of 16 slots, of one, and a chunk."""
    from bench.tensorrt_layer import one_layer
    from scripts.gpu_plan import LoadedPlan

    source = one_layer(here.folder / "layer")
    engine = built(here, source, TensorRtOptions(slots=16, length=4096, chunk=256))
    path = engine.directory / here.target / "layers_00_00.plan"
    found: Figures = {"bytes": path.stat().st_size}
    for name, profile, sizes in (
        ("step of 16 slots, ms", 0, (16, 1)),
        ("step of one, ms", 1, (1, 1)),
        ("chunk of 256, ms", 1, (1, 256)),
    ):
        plan = LoadedPlan(here.trt, Cuda(here.cuda), path, profile, sizes)
        found[name] = round(plan.settled() * 1e3, 3)
        found[f"{name.rpartition(',')[0]}, bytes"] = plan.memory_bytes()
    return found


def soak(here: Here, seconds: float, kind: Format | None = None) -> Figures:
    """A chain of three plans; requests join and leave all the time. Memory must not grow."""
    engine = built(here, checkpoint_of(here, "mxfp4"), replace(WISH, weights=kind))
    executor = on_gpu(here, engine)
    random = np.random.default_rng(3)
    lens = np.zeros(WISH.slots, np.int64)
    until, tokens, joined = time.monotonic() + seconds, 0, 0
    free = None
    while time.monotonic() < until:
        slot = int(random.integers(WISH.slots))
        if lens[slot] == 0 or lens[slot] > 400 or random.random() < 0.02:
            size = int(random.integers(1, WISH.chunk))
            executor.prefill(slot, random.integers(0, 199_000, size), 0)
            lens[slot], joined = size, joined + 1
        executor.decode(random.integers(0, 199_000, WISH.slots), lens)
        lens += lens > 0
        tokens += WISH.slots
        free = _free(here) if free is None else free
    lost = (free or 0) - _free(here)
    executor.close()
    found: Figures = {"tokens a second": round(tokens / seconds), "joined": joined, "lost": lost}
    if lost > 64 << 20:
        raise Differs(found)
    return found


def _free(here: Here) -> int:
    return int(here.cuda.cudaMemGetInfo()[1])


def checkpoint_of(here: Here, form: str, layers: int = SMALL.layers) -> Path:
    path = here.folder / f"{form}-{layers}"
    if not path.exists():
        write_checkpoint(path, Recipe(replace(SMALL, layers=layers), form))  # type: ignore[arg-type]  # of three literals
    return path


def executors(here: Here, source: Path, kind: Format) -> tuple[Executor, Executor]:
    ours = on_gpu(here, built(here, source, replace(WISH, weights=kind)))
    return ours, on_cpu(built(here, source, replace(WISH, kind="onnx")))


def both(here: Here, source: Path, kind: Format, steps: int) -> Figures:
    ours, theirs = executors(here, source, kind)
    try:
        return compared(ours, theirs, steps)
    finally:
        ours.close()


def judge(figures: Figures, kind: str, found: Figures) -> None:
    largest = figures["largest logit difference"]
    assert isinstance(largest, float)
    if not largest <= CLOSE[kind]:
        raise Differs(found)


STEPS: dict[str, Callable[[Here], Figures]] = {
    step.__name__: step
    for step in (machine, weights, attention, models, trained, overflow, speed, layer)
}
