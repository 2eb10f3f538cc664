"""Engines and stores made from the settings. Only this file and `doctor` know which kinds there
are."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.engine.llamacpp.body import HARMONY, Marks
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
from trt_responses.harmony.dialect import harmony
from trt_responses.prepare import shelf
from trt_responses.prepare.card import DialectFacts, architecture_of, chain_of, read_card
from trt_responses.prepare.files import DIALECT, GRAPH, MODEL
from trt_responses.prepare.graph import expert_file
from trt_responses.prepare.graph.weights import dense
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.trtllm.plan import served
from trt_responses.prepare.verify import Question
from trt_responses.settings import PREFIX, Settings
from trt_responses.store.limits import Bounds
from trt_responses.store.memory.store import MemoryStore
from trt_responses.store.sqlite.store import SqliteStore
from trt_responses.tokens import vocabulary as vocabularies
from trt_responses.tokens.stand_ins import StandIns
from trt_responses.tools.addresses import network
from trt_responses.tools.box import NoBox as NoBox
from trt_responses.tools.box import landlock_abi as landlock_abi
from trt_responses.tools.code.command import PROGRAMS, Shell
from trt_responses.tools.code.containers import Bounds as ContainerBounds
from trt_responses.tools.code.containers import Containers
from trt_responses.tools.code.directories import Usage
from trt_responses.tools.code.process import Interpreter, readable_paths
from trt_responses.tools.code.shell import ShellTool
from trt_responses.tools.code.tool import PythonTool
from trt_responses.tools.mcp.servers import place_of, servers_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.engine.base import Engine
    from trt_responses.engine.tensorrt.executor import Executor
    from trt_responses.language.base import Dialect
    from trt_responses.prepare.card import Card
    from trt_responses.prepare.checkpoint.safetensors import Array
    from trt_responses.store.base import Spell, Store
    from trt_responses.templates.dialect import TemplateDialect
    from trt_responses.tokens.vocabulary import Vocabulary
    from trt_responses.tools.addresses import Network
    from trt_responses.tools.base import Tool
    from trt_responses.tools.mcp.servers import Place, Server
    from trt_responses.tools.mcp.tool import McpTool


PROBE_S = 30.0
"""What an embedded engine that stands still gets for one token, at most, before it is replaced."""


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary, loaded once however many engines and apps a process has: it takes 0.3 s."""
    return vocabularies.load()


def dialect_of(directory: Path | None = None, card: Card | None = None) -> Dialect:
    """What a model speaks: Harmony, unless its card says otherwise."""
    if directory is None or card is None or card.dialect is None:
        return harmony(vocabulary())
    return template_dialect(directory / DIALECT, card.dialect.family)


def template_dialect(told: Path, family: str | None) -> TemplateDialect:
    """The dialect of a model with a chat template, from the keys of its file."""
    try:
        from trt_responses.templates.checkpoint import speech_of
        from trt_responses.templates.dialect import TemplateDialect
    except ModuleNotFoundError as error:
        raise StartupError(
            f"A model that does not speak Harmony needs {error.name}: "
            "pip install 'trt-responses[templates]'."
        ) from None
    return TemplateDialect(*speech_of(told, family))


def dialect_facts(told: Path, family: str | None) -> DialectFacts:
    """What a model speaks, for its card."""
    spoken = template_dialect(told, family)
    return DialectFacts(spoken.name, spoken.places.stops, spoken.probed())


def question_of(directory: Path, card: Card) -> Question | None:
    """What a model that does not speak Harmony is asked to verify it."""
    if card.dialect is None:
        return None
    spoken = template_dialect(directory / DIALECT, card.dialect.family)
    prompt = asyncio.run(spoken.question())
    return Question(prompt, spoken.places.stops, len(spoken.lexicon.token_bytes))


def chosen_engine(settings: Settings) -> shelf.Selection:
    """The prepared engine that the settings ask for, once its card agrees with this machine."""
    selection = shelf.select(settings.engines_dir, settings.engine)
    return shelf.serve_ready(selection, this_machine(settings.trtllm_python))


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
    spoken = None
    if card.dialect is not None:
        spoken = template_dialect(directory / DIALECT, card.dialect.family)
    return llamacpp_over(directory / MODEL, settings, spoken)


def triton_at(place: str) -> Engine:
    """The engine that a Triton serves at `host:port/model`."""
    return TritonEngine(address_of(place))


def trtllm_over(
    checkpoint: Path, arguments: Mapping[str, object], variables: Mapping[str, str]
) -> Engine:
    """The engine of TensorRT-LLM, over a checkpoint with the arguments of a plan."""
    return TrtLlmEngine(checkpoint, arguments, variables=variables)


def llamacpp_over(
    model_path: Path, settings: Settings, spoken: TemplateDialect | None = None
) -> Engine:
    """The embedded engine, over a model file; `spoken` where that is not Harmony."""
    marks, spelled = HARMONY, StandIns(vocabulary())
    if spoken is not None:
        ends = frozenset(spoken.places.stops)
        marks = Marks(spoken.places.controls, ends, ends)
        spelled = StandIns(spoken.tokeniser)
    return LlamaCppEngine(
        model_path,
        context_tokens=settings.context_tokens,
        slots=settings.slots,
        threads=settings.threads,
        patience=Patience(
            idle_timeout_s=settings.stall_s, probe_timeout_s=min(PROBE_S, settings.stall_s)
        ),
        spelled=spelled,
        marks=marks,
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
    weights = expert_file.opened(folder, architecture_of(card))

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


def spelled() -> Spell:
    """What the ids of a stored block say, whichever dialect is spoken now: a history may be older.
    Stores compare, so that what it does not say is kept."""
    return harmony(vocabulary()).spelled


def store_of(settings: Settings, spell: Spell) -> Store:
    """The store that the settings name. Text that `spell` makes from ids is kept as the ids
    alone."""
    bounds = Bounds(
        max_bytes=settings.store_bytes,
        max_records=settings.store_records,
        max_age_s=settings.store_age_s,
        max_frame_bytes=settings.store_frame_bytes,
        lease_s=settings.lease_s,
        takeover_s=settings.takeover_s,
    )
    place = settings.store_place()
    match place.kind:
        case "memory":
            # It ends with its server, whose jobs nobody else could take.
            own = replace(bounds, takeover_s=0.0)
            return MemoryStore(own, lease_clock_s=steady_clock(), spell=spell)
        case "sqlite":
            synchronous = settings.store_synchronous
            return SqliteStore(
                Path(place.where),
                bounds,
                synchronous=synchronous,
                spell=spell,
                lease_clock_s=steady_clock(),
            )
        case "redis":
            return _redis(place.where, bounds, spell)


def steady_clock() -> Callable[[], float]:
    """Unix time as of now, going on by seconds whatever becomes of the machine's date."""
    offset_s = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset_s


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
    tools: list[Tool] = []
    if settings.python != "off" or settings.shell != "off":
        held = containers(settings)
        tools += [PythonTool(held)] if settings.python != "off" else []
        tools += [ShellTool(held, commands(settings))] if settings.shell != "off" else []
    if settings.browser != "off":
        tools.append(browser_tool(settings))
    if settings.mcp_servers is not None or settings.mcp_urls:
        tools.append(mcp_tool(settings))
    return tools


def browser_tool(settings: Settings) -> Tool:
    """`web_search`. Its packages are loaded where it is switched on."""
    try:
        from trt_responses.tools.browser import search
        from trt_responses.tools.browser.reading import Reading
        from trt_responses.tools.browser.tool import BrowserTool, Opens
        from trt_responses.tools.fetch_guard import Bounds as FetchBounds
        from trt_responses.tools.fetch_guard import Reach
    except ModuleNotFoundError:
        raise StartupError(
            f"{PREFIX}BROWSER: it needs the extra: pip install 'trt-responses[browser]'."
        ) from None
    url = search_url(settings)
    service = search.SERVICES[settings.search_service or ""]
    return BrowserTool(
        service(url, settings.search_key, settings.browser_s),
        Opens(Reach(private_networks(settings), fetch_ports(settings)), settings.browser_opens),
        FetchBounds(settings.browser_s, settings.browser_page_bytes),
        Reading(memory_bytes=settings.browser_memory_bytes, boxed=settings.browser == "boxed"),
    )


def search_url(settings: Settings) -> str:
    """Where the browser's search service is. Raises a `StartupError` for what is not set."""
    name = settings.search_service
    if name is None:
        raise StartupError(f"{PREFIX}BROWSER: it needs {PREFIX}SEARCH_SERVICE, which searches.")
    url = settings.search_url or SEARCH_PLACES.get(name)
    if url is None:
        raise StartupError(f"{PREFIX}SEARCH_URL: where is the {name} that is to search?")
    if not url.startswith(("http://", "https://")):
        raise StartupError(f"{PREFIX}SEARCH_URL: expected http://… or https://…")
    if name == "brave" and not settings.search_key:
        raise StartupError(f"{PREFIX}SEARCH_KEY: Brave asks for a key.")
    return url


SEARCH_PLACES = {"brave": "https://api.search.brave.com"}
"""Where a search service is that has one place alone."""


def private_networks(settings: Settings) -> tuple[Network, ...]:
    """Those that are reached for a model or a client though they are not public."""
    try:
        return tuple(map(network, settings.private_networks))
    except ValueError as fault:
        raise StartupError(f"{PREFIX}PRIVATE_NETWORKS: {fault}.") from None


def fetch_ports(settings: Settings) -> frozenset[int]:
    """Those that pages are fetched from."""
    try:
        return frozenset(map(int, settings.browser_ports))
    except ValueError:
        raise StartupError(f"{PREFIX}BROWSER_PORTS: expected numbers, such as 80,443.") from None


def mcp_tool(settings: Settings) -> McpTool:
    """`mcp`: the operator's servers, and those that requests may name."""
    try:
        from trt_responses.tools.mcp.limits import Limits
        from trt_responses.tools.mcp.tool import McpTool
    except ModuleNotFoundError as fault:
        raise StartupError(
            f"{PREFIX}MCP_SERVERS and {PREFIX}MCP_URLS need the extra ({fault.name} is missing): "
            "pip install 'trt-responses[mcp]'."
        ) from None
    from trt_responses.tools.fetch_guard import Reach

    servers, places = mcp_servers(settings)
    return McpTool(
        servers,
        places,
        Limits(
            settings.mcp_connect_s,
            settings.mcp_call_s,
            settings.mcp_bytes,
            max_tools=settings.mcp_tools,
        ),
        Reach(private_networks(settings), ports=None),
        list_s=settings.mcp_list_s,
        clock_s=time.monotonic,
    )


def mcp_servers(settings: Settings) -> tuple[dict[str, Server], list[Place]]:
    """The servers that are configured, and the URLs below which requests may name others."""
    servers = {}
    if settings.mcp_servers is not None:
        servers = servers_in(settings.mcp_servers, f"{PREFIX}MCP_SERVERS")
    places = []
    for url in settings.mcp_urls:
        try:
            places.append(place_of(url))
        except ValueError as error:
            raise StartupError(f"{PREFIX}MCP_URLS: '{url}': {error}.") from None
    return servers, places


def commands(settings: Settings) -> Shell:
    """How the commands of `shell` are run."""
    return Shell(settings.python_bytes, settings.container_bytes)


def containers(settings: Settings) -> Containers:
    """Where code and commands run. What they may read must not hold what the server keeps to
    itself."""
    executable = str(settings.python_executable or sys.executable)
    readable = readable_paths(executable)
    kept = settings.data_dir.resolve()
    programs = PROGRAMS if settings.shell != "off" else ()
    for path in map(Path, (*readable, *programs)):
        if kept.is_relative_to(path.resolve()):
            raise StartupError(
                f"{PREFIX}DATA_DIR: {kept} stands in {path}, which the model's code may read: "
                "choose another directory."
            )
    disk = Usage(settings.container_bytes, settings.container_files)
    return Containers(
        settings.data_dir / "containers",
        Interpreter(
            executable,
            readable,
            memory_bytes=settings.python_bytes,
            file_bytes=settings.container_bytes,
            boxed=settings.python != "unboxed",
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
