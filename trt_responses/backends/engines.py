"""Creates engines from a prepared directory and the settings."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.backends.dialects import (
    dialect_named,
    dialect_of,
    template_dialect,
    vocabulary,
)
from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.backends.installed import maker, needed
from trt_responses.backends.settings import EngineSettings
from trt_responses.engines.cores import spare_cores
from trt_responses.engines.stand_ins import StandIns
from trt_responses.errors import StartupError
from trt_responses.prepare.files import DIALECT, GRAPH, MODEL
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.adapters import FOLDER, adapters_of
from trt_responses.prepare.shelf.card import architecture_of, chain_of, read_card

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trt_responses.backends.elsewhere import Elsewhere
    from trt_responses.dialect import Dialect
    from trt_responses.dialects.templates.dialect import TemplateDialect
    from trt_responses.engine import Engine
    from trt_responses.engines.grpc.engine import GrpcEngine
    from trt_responses.engines.tensorrt.executor import Executor
    from trt_responses.prepare.checkpoint.safetensors import Array
    from trt_responses.prepare.shelf.card import Card
    from trt_responses.prepare.trtllm.plan import Served
    from trt_responses.settings import Settings

START_S = 1800.0
"""Seconds that an engine of another process may take to load: the largest take half of it."""
GPT_OSS_ALONE = ("grpc", "triton", "script", "llama-server", "http")
"""Engines that take no dialect of a directory."""
PROBE_S = 30.0
"""Seconds that a stalled embedded engine has to answer a probe; then it is replaced."""


def chosen_engine(settings: Settings) -> shelf.Selection:
    """The prepared engine that the settings select, checked against this machine."""
    selection = shelf.select(settings.engines_dir, settings.engine)
    return shelf.serve_ready(selection, this_machine(EngineSettings.of(settings).trtllm_python))


def engine_at(directory: Path, settings: Settings) -> Engine:
    """The engine of a prepared directory, without checks."""
    return engine_of(shelf.Selection(directory, read_card(directory), ""), settings)


def engine_of(selection: shelf.Selection, settings: Settings) -> Engine:
    """The engine that serves a prepared directory of its kind."""
    directory, card = selection.directory, selection.card
    if card.kind == "trtllm":
        return trtllm_over(*trtllm_start(directory, card))
    if card.kind in ("tensorrt", "onnx"):
        return tensorrt_over(directory, card, settings)
    dialect = None
    if card.dialect is not None:
        dialect = template_dialect(directory / DIALECT, card.dialect.family)
    files = {each.name: directory / FOLDER / each.place for each in adapters_of(directory)}
    return llamacpp_over(directory / MODEL, settings, dialect, files)


def engine_elsewhere(
    elsewhere: Elsewhere,
    settings: Settings,
    prepared: Callable[[shelf.Selection, Settings], Engine] | None = None,
) -> Engine:
    """The engine of another server, or of another package; `prepared` makes those of several that
    are prepared here."""
    from trt_responses.backends.http import SERVERS, http_at, ids_of, scheme_of

    speaks = EngineSettings.of(settings).speaks
    if os.sep in speaks and scheme_of(elsewhere.kind) in GPT_OSS_ALONE:
        raise StartupError(
            f"{elsewhere.kind}:// serves gpt-oss alone; a model of {speaks} needs vllm:// "
            "or sglang://."
        )
    match elsewhere.kind:
        case "grpc":
            return grpc_at(elsewhere.place)
        case "triton":
            with needed("The Triton engine"):
                from trt_responses.engines.triton.engine import TritonEngine, address_of
            return TritonEngine(address_of(elsewhere.place))
        case "script":
            with needed("The engine that plays scripts"):
                from trt_responses.features.script.engine import ScriptEngine
                from trt_responses.features.script.rules import load
            return ScriptEngine(load(elsewhere.place), vocabulary())
        case "several":
            return _several(elsewhere.place, settings, prepared or engine_of)
        case "record" | "replay":
            with needed("Cassettes"):
                from trt_responses.features.cassette.engine import NoEngine
            return NoEngine()
        case kind:
            if scheme_of(kind) in SERVERS:
                return http_at(elsewhere, START_S, ids_of(dialect_named(speaks)))
            own = ("grpc", "triton", *SERVERS, "script", "several", "record", "replay")
            engine: Engine = maker("engines", kind, own)(elsewhere.place, settings)
            return engine


def _several(
    listed: str, settings: Settings, prepared: Callable[[shelf.Selection, Settings], Engine]
) -> Engine:
    """Several engines; those of one model speak one dialect."""
    with needed("Serving several engines"):
        from trt_responses.features.several.engine import several
        from trt_responses.features.several.spec import entries_of
    entries = entries_of(listed)
    alone = {place: settings.model_copy(update={"engine": place}) for _, place in entries}
    selections = {
        place: chosen_engine(settings.model_copy(update={"engine": place.partition("#")[0]}))
        for place in alone
        if "://" not in place
    }

    def new_engine(place: str) -> Engine:
        if (elsewhere := elsewhere_in(alone[place])) is not None:
            return engine_elsewhere(elsewhere, alone[place])
        return prepared(selections[place], alone[place])

    languages: dict[str, object] = {}
    for model, place in entries:
        language = _language(selections.get(place), settings)
        if languages.setdefault(model, language) != language:
            raise StartupError(f"The engines of {model} speak different dialects.")
    known = {
        languages[model]: _dialect_of(selections.get(place), settings) for model, place in entries
    }
    dialects = {model: known[language] for model, language in languages.items()}
    return several(entries, new_engine, dialects)


def _dialect_of(selection: shelf.Selection | None, settings: Settings) -> Dialect:
    if selection is None:
        return dialect_named(EngineSettings.of(settings).speaks)
    return dialect_of(selection.directory, selection.card)


def _language(selection: shelf.Selection | None, settings: Settings) -> object:
    """What is equal for two engines of one dialect. `selection`: of one that is prepared here."""
    if selection is None:
        return EngineSettings.of(settings).speaks
    if selection.card.dialect is None:
        return "harmony"
    return (selection.directory / DIALECT).read_bytes()


def grpc_at(place: str, start_s: float = START_S) -> GrpcEngine:
    """The engine of a gRPC server at `host:port/model`."""
    with needed("The gRPC engine", "grpc"):
        from trt_responses.engines.distant import Patience
        from trt_responses.engines.grpc.engine import GrpcEngine, address_of
    return GrpcEngine(address_of(place), Patience(start_s=start_s))


def trtllm_start(directory: Path, card: Card) -> Served:
    """Start arguments of a prepared TensorRT-LLM engine. Raises if its checkpoint is incomplete."""
    with needed("The preparation of TensorRT-LLM engines"):
        from trt_responses.prepare.trtllm.plan import served
    return served(directory, card)


def trtllm_over(
    checkpoint: Path,
    arguments: Mapping[str, object],
    variables: Mapping[str, str],
    end_id: int | None = None,
    adapters: Mapping[str, Path] | None = None,
) -> Engine:
    """A TensorRT-LLM engine for a checkpoint and the arguments of a plan. `end_id`: the end token
    of a model other than gpt-oss."""
    with needed("The TensorRT-LLM engine"):
        from trt_responses.engines.trtllm.engine import TrtLlmEngine
    return TrtLlmEngine(
        checkpoint, arguments, variables=variables, end_id=end_id, adapters=adapters
    )


def llamacpp_over(
    model_path: Path,
    settings: Settings,
    dialect: TemplateDialect | None = None,
    adapters: Mapping[str, Path] | None = None,
) -> Engine:
    """The embedded engine for a model file. `dialect`: of a model other than gpt-oss."""
    with needed("The embedded engine"):
        from trt_responses.engines.llamacpp.body import HARMONY, Marks
        from trt_responses.engines.llamacpp.engine import LlamaCppEngine
        from trt_responses.engines.llamacpp.keeper import Patience
    local = EngineSettings.of(settings)
    marks, spelled = HARMONY, StandIns(vocabulary())
    if dialect is not None:
        ends = frozenset(dialect.places.stops)
        # Its plans ban the control ids that a guide must not contain; some may occur.
        marks = Marks((), ends, ends)
        spelled = StandIns(dialect.tokeniser)
    return LlamaCppEngine(
        model_path,
        context_tokens=local.context_tokens,
        slots=local.slots,
        threads=local.threads,
        patience=Patience(
            idle_timeout_s=settings.stall_s, probe_timeout_s=min(PROBE_S, settings.stall_s / 2)
        ),
        spelled=spelled,
        marks=marks,
        adapters=adapters,
        prompt_cache_mib=local.prompt_cache_mib,
    )


def tensorrt_over(directory: Path, card: Card, settings: Settings) -> Engine:
    """The engine that runs TensorRT plans on an RTX GPU, or their ONNX graph on the CPU."""
    with needed("The TensorRT engine", "tensorrt"):
        from trt_responses.engines.tensorrt.engine import TensorRtEngine
    chain = chain_of(card)
    make = partial(_onnx, directory, card, EngineSettings.of(settings).threads or spare_cores())
    if card.kind == "tensorrt":
        make = partial(_rtx, directory, card)
    return TensorRtEngine(
        make, vocabulary(), slots=chain.slots, context_tokens=chain.length, top=chain.top
    )


def _onnx(directory: Path, card: Card, threads: int) -> Executor:
    from trt_responses.engines.tensorrt.onnx import OnnxExecutor
    from trt_responses.prepare.graph.weights import dense, open_experts

    chain, folder = chain_of(card), directory / GRAPH
    weights = open_experts(folder, architecture_of(card))

    def expert(name: str) -> Array:
        _, layer, projection = name.split(".")
        return dense(weights, int(layer), projection, chain.element)

    names = [link.name for link in chain.links]
    return OnnxExecutor(
        folder, names, expert, slots=chain.slots, chunk=chain.chunk, threads=threads
    )


def _rtx(directory: Path, card: Card) -> Executor:
    """The executor of the plans for this GPU's family. Its runtime cache is stored beside the
    plans."""
    from trt_responses.engines.tensorrt.cuda import Cuda, runtime
    from trt_responses.engines.tensorrt.rtx import RtxExecutor

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
