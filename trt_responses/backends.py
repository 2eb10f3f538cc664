"""Engines and stores made from the settings. Only this file and `doctor` know which kinds there
are."""

from __future__ import annotations

import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.engine.llamacpp.engine import LlamaCppEngine
from trt_responses.engine.llamacpp.keeper import Patience
from trt_responses.engine.llamacpp.process import spare_cores
from trt_responses.engine.tensorrt.cuda import Cuda, runtime
from trt_responses.engine.tensorrt.engine import TensorRtEngine
from trt_responses.engine.tensorrt.onnx import OnnxExecutor
from trt_responses.engine.tensorrt.rtx import RtxExecutor
from trt_responses.engine.triton.engine import TritonEngine, address_of
from trt_responses.engine.trtllm.engine import TrtLlmEngine
from trt_responses.errors import StartupError
from trt_responses.prepare import shelf
from trt_responses.prepare.card import chain_of, read_card
from trt_responses.prepare.files import GRAPH, MODEL
from trt_responses.prepare.graph import expert_file
from trt_responses.prepare.graph.weights import dense
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.trtllm.plan import served
from trt_responses.settings import PREFIX, Settings
from trt_responses.store.limits import Bounds
from trt_responses.store.memory.store import MemoryStore
from trt_responses.store.sqlite.store import SqliteStore
from trt_responses.tokens import vocabulary as vocabularies
from trt_responses.tokens.stand_ins import StandIns
from trt_responses.tools.python.box import NoBox as NoBox
from trt_responses.tools.python.box import landlock_abi as landlock_abi
from trt_responses.tools.python.containers import Bounds as ContainerBounds
from trt_responses.tools.python.containers import Containers
from trt_responses.tools.python.directories import Usage
from trt_responses.tools.python.process import Interpreter, readable_paths
from trt_responses.tools.python.tool import PythonTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.engine.base import Engine
    from trt_responses.engine.tensorrt.executor import Executor
    from trt_responses.prepare.card import Card
    from trt_responses.prepare.checkpoint.safetensors import Array
    from trt_responses.store.base import Spell, Store
    from trt_responses.tokens.vocabulary import Vocabulary
    from trt_responses.tools.base import Tool


PROBE_S = 30.0
"""What an embedded engine that stands still gets for one token, at most, before it is replaced."""


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary, loaded once however many engines and apps a process has: it takes 0.3 s."""
    return vocabularies.load()


def chosen_engine(settings: Settings) -> shelf.Selection:
    """The prepared engine that the settings ask for, once its card agrees with this machine."""
    selection = shelf.select(settings.engines_dir, settings.engine)
    return shelf.serve_ready(selection, this_machine())


def engine_at(directory: Path, settings: Settings) -> Engine:
    """The engine of a directory that was chosen before."""
    return engine_of(shelf.Selection(directory, read_card(directory), ""), settings)


def engine_of(selection: shelf.Selection, settings: Settings) -> Engine:
    """The engine that serves a prepared directory of its kind."""
    directory, card = selection.directory, selection.card
    if card.kind == "trtllm":
        given = served(directory, card)
        return trtllm_over(given.checkpoint, given.arguments, given.variables)
    if card.kind in ("tensorrt", "onnx"):
        return tensorrt_over(directory, card, settings)
    return llamacpp_over(directory / MODEL, settings)


def triton_at(place: str) -> Engine:
    """The engine that a Triton serves at `host:port/model`."""
    return TritonEngine(address_of(place))


def trtllm_over(
    checkpoint: Path, arguments: Mapping[str, object], variables: Mapping[str, str]
) -> Engine:
    """The engine of TensorRT-LLM, over a checkpoint with the arguments of a plan."""
    return TrtLlmEngine(checkpoint, arguments, variables=variables)


def llamacpp_over(model_path: Path, settings: Settings) -> Engine:
    """The embedded engine, over a model file."""
    return LlamaCppEngine(
        model_path,
        context_tokens=settings.context_tokens,
        slots=settings.slots,
        threads=settings.threads,
        patience=Patience(
            idle_timeout_s=settings.stall_s, probe_timeout_s=min(PROBE_S, settings.stall_s)
        ),
        spelled=StandIns(vocabulary()),
    )


def tensorrt_over(directory: Path, card: Card, settings: Settings) -> Engine:
    """The engine that runs compiled plans on an RTX GPU, or their graph on the CPU."""
    chain = chain_of(card)
    make = partial(_onnx, directory, card, settings.threads or spare_cores())
    if card.kind == "tensorrt":
        make = partial(_rtx, directory, card)
    return TensorRtEngine(
        make, vocabulary(), slots=chain.slots, context_tokens=chain.length, top=chain.top
    )


def _onnx(directory: Path, card: Card, threads: int) -> Executor:
    chain, folder = chain_of(card), directory / GRAPH
    weights = expert_file.opened(folder, card.architecture)

    def expert(name: str) -> Array:
        _, layer, projection = name.split(".")
        return dense(weights, int(layer), projection, chain.element)

    names = [link.name for link in chain.links]
    return OnnxExecutor(
        folder, names, expert, slots=chain.slots, chunk=chain.chunk, threads=threads
    )


def _rtx(directory: Path, card: Card) -> Executor:
    """The executor of the plans for this GPU's family. What its runtime compiles is kept beside
    them."""
    chain, cuda = chain_of(card), Cuda(runtime())
    target = cuda.target()
    return RtxExecutor(
        directory / chain.for_target(target).folder,
        [link.name for link in chain.links],
        slots=chain.slots,
        chunk=chain.chunk,
        cuda=cuda,
        caches=directory.with_name(f"{directory.name}.cache") / target,
    )


def store_of(settings: Settings, spell: Spell) -> Store:
    """The store that the settings name. Text that `spell` makes from ids is kept as the ids
    alone."""
    bounds = Bounds(
        max_bytes=settings.store_bytes,
        max_records=settings.store_records,
        max_age_s=settings.store_age_s,
        max_frame_bytes=settings.store_frame_bytes,
        lease_s=settings.lease_s,
    )
    place = settings.store_place()
    match place.kind:
        case "memory":
            return MemoryStore(bounds, spell=spell)
        case "sqlite":
            synchronous = settings.store_synchronous
            return SqliteStore(Path(place.where), bounds, synchronous=synchronous, spell=spell)
        case "redis":
            return _redis(place.where, bounds, spell)


def _redis(url: str, bounds: Bounds, spell: Spell) -> Store:
    try:
        from trt_responses.store.redis.store import RedisStore
    except ModuleNotFoundError:
        raise StartupError(
            f"{PREFIX}STORE: a Redis history needs the extra: pip install 'trt-responses[redis]'."
        ) from None
    return RedisStore(url, bounds, spell=spell)


def tools_of(settings: Settings) -> list[Tool]:
    """The tools that the settings switch on."""
    return [] if settings.python == "off" else [python_tool(settings)]


def python_tool(settings: Settings) -> PythonTool:
    """`code_interpreter`. What code may read must not hold what the server keeps to itself."""
    executable = str(settings.python_executable or sys.executable)
    readable = readable_paths(executable)
    kept = settings.data_dir.resolve()
    for path in map(Path, readable):
        if kept.is_relative_to(path.resolve()):
            raise StartupError(
                f"{PREFIX}DATA_DIR: {kept} stands in {path}, which the model's code may read: "
                "choose another directory."
            )
    disk = Usage(settings.container_bytes, settings.container_files)
    return PythonTool(
        Containers(
            settings.data_dir / "containers",
            Interpreter(
                executable,
                readable,
                memory_bytes=settings.python_bytes,
                file_bytes=settings.container_bytes,
                boxed=settings.python == "boxed",
            ),
            ContainerBounds(
                settings.python_s,
                disk,
                settings.container_idle_s,
                settings.containers,
                settings.containers_per_owner,
            ),
            clock_s=time.time,
        )
    )
