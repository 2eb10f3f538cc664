"""Who may import whom, read from the import statements themselves: imports for types and inside
functions count like all others."""

from __future__ import annotations

from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.imports import PACKAGE, ROOT, imports, modules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

pytestmark = pytest.mark.xdist_group("sources")  # each file is read once

Edge = tuple[str, str]

UNIT = ROOT / "tests" / "unit"

LEAVES = "children errors files frozen tasks settings.values"
SEAMS = f"{LEAVES} engine store tool dialect"
HARMONY = f"{LEAVES} language tokens schema engine store dialect harmony"
ENGINE = f"{LEAVES} engine engines tokens"
STORE = f"{LEAVES} store stores"
TARGET = f"{LEAVES} tokens engine prepare prepare.checkpoint prepare.graph prepare.shelf"
RUN = f"{SEAMS} feature wire schema language tokens log accept steering prompt"
CORE = f"{RUN} harmony.* run health web.* settings setup.server"
"""What an extension may import: the core, and no other extension but what its row adds."""

MAY_IMPORT = {
    # the core
    "children": "",
    "errors": "",
    "files": "",
    "frozen": "",
    "tasks": "",
    "settings.values": "",
    "logs": f"{LEAVES} settings",
    "systemd": LEAVES,
    "settings": LEAVES,
    "engine": LEAVES,
    "store": LEAVES,
    "tool": LEAVES,
    "dialect": f"{LEAVES} language schema engine store",
    "feature": f"{LEAVES} store wire accept run",
    "wire": LEAVES,
    "tokens": LEAVES,
    "schema": LEAVES,
    "language": f"{LEAVES} wire schema engine store",
    "harmony": f"{HARMONY} harmony.*",
    "harmony.read": HARMONY,
    "harmony.write": HARMONY,
    "log": f"{LEAVES} wire language tokens",
    "accept": f"{SEAMS} wire language log steering tokens",
    "steering": f"{SEAMS} wire schema language log accept",
    "prompt": f"{SEAMS} wire language log accept steering tokens run",
    "run": f"{RUN} health",
    "health": f"{SEAMS} run",
    "web": f"{SEAMS} settings wire log accept run health web.stream",
    "web.stream": f"{LEAVES} wire log run",
    "serve": f"{LEAVES} engine settings run health setup",
    "app": f"{SEAMS} feature settings prepare.shelf run web backends setup setup.engine"
    " setup.server",
    "": "app settings",
    "__main__": "cli",
    # put together
    "backends": f"{LEAVES} settings tokens dialect harmony dialects.* engine engines.* store"
    " stores.* tool tools.* prepare.* features.cassette features.limits features.script"
    " features.several",
    "testing": "app settings features.script",
    "setup.engine": f"{SEAMS} settings backends prepare.shelf features.limits features.rollout",
    "setup.server": f"{CORE} backends stores setup.engine features.references",
    "setup": f"{CORE} setup.engine",
    "cli": f"{LEAVES} settings tokens features.limits prepare.* doctor prove app backends fleet"
    " serve systemd logs engine cli.engines cli.terminal features.cassette"
    " features.several",
    "cli.terminal": f"{LEAVES} cli",
    "cli.engines": f"{LEAVES} settings tokens prepare.* backends cli engine serve",
    "doctor": f"{SEAMS} settings tokens tools prepare.* backends engines",
    "prove": f"{LEAVES} settings tokens engine engines prepare.* doctor backends fleet",
    # features
    "features": "",
    "features.action_tools": f"{CORE} features.tool_items",
    "features.agent_messages": CORE,
    "features.background": f"{CORE} stores features.recovery features.stored",
    "features.batches": f"{CORE} stores features.files features.listing",
    "features.cache_diagnostics": f"{CORE} features.explain features.run_traces",
    "features.card": f"{CORE} features.guides",
    "features.cassette": f"{CORE} cli",
    "features.compaction": f"{CORE} features.listing features.references features.turn_usage",
    "features.connections": CORE,
    "features.containers": f"{CORE} features.forms features.listing features.tool_items tools",
    "features.conversations": f"{CORE} stores features.listing",
    "features.cors": CORE,
    "features.description": CORE,
    "features.encryption": f"{CORE} backends cli serve stores stores.at_rest",
    "features.engine_headers": CORE,
    "features.explain": f"{CORE} features.run_traces features.turn_usage",
    "features.files": f"{CORE} features.forms features.listing tools",
    "features.forms": LEAVES,
    "features.guides": f"{CORE} dialects",
    "features.health": CORE,
    "features.hosted_tools": f"{CORE} features.references features.tool_items features.turn_usage "
    "stores tools",
    "features.idempotency": CORE,
    "features.include": f"{CORE} features.run_traces",
    "features.input_settings": CORE,
    "features.known_tools": CORE,
    "features.limits": CORE,
    "features.listing": CORE,
    "features.logprobs": CORE,
    "features.long_runs": CORE,
    "features.metrics": f"{CORE} stores features.health features.rollout apis.kserve",
    "features.migrate": f"{CORE} backends cli serve",
    "features.models": CORE,
    "features.open_responses": CORE,
    "features.owners": f"{CORE} stores features.limits features.listing tools",
    "features.parallel_calls": f"{CORE} features.guides",
    "features.peer_words": CORE,
    "features.prefill": CORE,
    "features.programs": f"{CORE} features.hosted_tools features.references features.tool_items "
    "tools",
    "features.recovery": CORE,
    "features.references": CORE,
    "features.regions": f"{CORE} stores",
    "features.retention": f"{CORE} features.limits stores",
    "features.rollout": f"{CORE} backends features.limits prepare prepare.shelf cli cli.engines",
    "features.run_traces": CORE,
    "features.script": f"{CORE} engines",
    "features.seal": f"{CORE} features.references",
    "features.second_chance": CORE,
    "features.several": f"{CORE} backends features.limits",
    "features.shapes": CORE,
    "features.stall": CORE,
    "features.steer": f"{CORE} features.stored",
    "features.stop": CORE,
    "features.stored": f"{CORE} features.listing",
    "features.summaries": CORE,
    "features.tool_items": f"{CORE} tools",
    "features.tool_search": f"{CORE} tools backends features.hosted_tools",
    "features.traces": CORE,
    "features.truncation": CORE,
    "features.turn_usage": CORE,
    "features.vocabularies": CORE,
    "features.webhooks": CORE,
    # APIs
    "apis": "",
    "apis.chat": f"{CORE} tools features.shapes",
    "apis.messages": f"{CORE} apis.chat features.shapes",
    "apis.decisions": CORE,
    "apis.kserve": f"{CORE} apis.chat features.health features.limits features.metrics "
    "features.rollout",
    "apis.playground": CORE,
    "apis.websocket": f"{CORE} features.steer",
    # engines, stores, tools, dialects
    "engines": f"{LEAVES} engine tokens",
    "engines.grpc": ENGINE,
    "engines.llamacpp": ENGINE,
    "engines.remote": ENGINE,
    "engines.sglang": ENGINE,
    "engines.tensorrt": ENGINE,
    "engines.triton": ENGINE,
    "engines.trtllm": ENGINE,
    "engines.vllm": ENGINE,
    "stores": f"{LEAVES} store",
    "stores.at_rest": f"{STORE} tokens",
    "stores.memory": f"{STORE} stores.at_rest",
    "stores.objects": STORE,
    "stores.postgres": f"{STORE} stores.at_rest stores.objects",
    "stores.redis": f"{STORE} stores.at_rest",
    "stores.sqlite": f"{STORE} stores.at_rest",
    "tools": f"{LEAVES} tool",
    "tools.browser": f"{LEAVES} tool tools",
    "tools.mcp": f"{LEAVES} tool tools",
    "tools.python": f"{LEAVES} tool tools",
    "dialects": f"{LEAVES} language schema engine",
    "dialects.templates": f"{HARMONY} dialects dialects.templates.*",
    "dialects.templates.read": f"{HARMONY} dialects.templates",
    "dialects.templates.write": f"{HARMONY} dialects.templates dialects.templates.read",
    "fleet": f"{LEAVES} settings engine engines.remote engines.triton engines.trtllm prepare.shelf"
    " app backends serve systemd setup setup.engine features.limits features.metrics"
    " features.rollout features.several health logs",
    # checkpoints to engines
    "prepare": f"{LEAVES} tokens engine prepare.checkpoint prepare.graph prepare.shelf",
    "prepare.checkpoint": f"{LEAVES} tokens engine prepare",
    "prepare.graph": f"{LEAVES} tokens engine prepare prepare.checkpoint",
    "prepare.shelf": f"{LEAVES} prepare prepare.checkpoint prepare.graph",
    "prepare.llamacpp": f"{TARGET} engines",
    "prepare.tensorrt": TARGET,
    "prepare.triton": TARGET,
    "prepare.trtllm": TARGET,
}
"""Each room, and the rooms that its files may import besides their own. A row speaks for the files
of the folder, or the one file, that it names; `x.*` stands for `x` and every row below it."""

DEBTS: dict[str, str] = {}
"""Files of the core that still know a feature or an API. A line here may go and none may come."""

KINDS = ("engines", "stores", "tools", "prepare")
SHARED = {
    "stores.at_rest",
    "stores.objects",
    "prepare.checkpoint",
    "prepare.graph",
    "prepare.shelf",
}
"""Each folder of these rooms holds one kind, and kinds do not know each other, except for the
folders that all of them share."""


def short(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".")


@cache
def edges() -> frozenset[Edge]:
    """Every import of one module of the package by another."""
    return frozenset(
        (short(module), short(name))
        for module, path in modules(PACKAGE).items()
        for name in imports(module, path)
        if name.startswith(PACKAGE)
    )


@cache
def folder(module: str) -> str:
    """The folder that a module stands in; a folder's own module stands in itself."""
    packages = {short(name) for name, path in modules(PACKAGE).items() if path.stem == "__init__"}
    return module if module in packages else module.rpartition(".")[0]


def row(module: str) -> str | None:
    """The row that speaks for a module: its own, or its folder's. The package's top speaks for no
    file in it."""
    rows = (module, folder(module) or module)
    return next((name for name in rows if name in MAY_IMPORT), None)


@cache
def allowed(room: str) -> frozenset[str]:
    """The rows whose files a room's files may import, its own among them."""
    given = set(MAY_IMPORT[room].split())
    whole = tuple(name.removesuffix("*") for name in given if name.endswith(".*"))
    return frozenset(
        name for name in MAY_IMPORT if name == room or name in given or f"{name}.".startswith(whole)
    )


def kind(module: str) -> str | None:
    """The folder of the one kind that a module is about, such as `engine.llamacpp`."""
    first, *rest = folder(module).split(".")
    found = f"{first}.{rest[0]}" if rest else first
    return found if rest and first in KINDS and found not in SHARED else None


def circle(found: Collection[Edge]) -> list[str]:
    """The modules of one circle, or nothing."""
    graph: dict[str, set[str]] = {}
    for module, name in found:
        graph.setdefault(module, set()).add(name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def faults(found: Collection[Edge]) -> Iterator[str]:
    """What the rules say against these imports. The seam of features names what a step is handed,
    for types alone, and makes no circle."""
    for module, name in sorted(found):
        here, there = row(module), row(name)
        known = here is not None and there in allowed(here)
        if here is not None and not known and there not in DEBTS.get(module, "").split():
            yield f"{module} imports {name}, which {here or PACKAGE} must not know"
        one, other = kind(module), kind(name)
        room = module.partition(".")[0]
        if one and other and one != other and name.startswith(f"{room}."):
            yield f"{module} imports {name}: one kind of {room} must not know another"
    if around := circle([edge for edge in found if edge[0] != "feature"]):
        yield f"a circle: {' imports '.join(around)}"


def test_a_debt_that_is_paid_is_crossed_out() -> None:
    owed = {(module, room) for module, rooms in DEBTS.items() for room in rooms.split()}
    assert owed - {(module, row(name)) for module, name in edges()} == set()


def test_every_module_stands_in_a_room_of_the_table() -> None:
    assert [name for name in map(short, modules(PACKAGE)) if row(name) is None] == []


def test_a_module_imports_only_what_its_room_may() -> None:
    assert list(faults(edges())) == []


@pytest.mark.parametrize(
    ("edge", "word"),
    [
        (("wire.items", "tokens.pieces"), "wire must not know"),
        (("engine", "tokens.vocabulary"), "engine must not know"),
        (("harmony.read.reader", "harmony.write.render"), "harmony.read must not know"),
        (("log.log", "run.runs"), "log must not know"),
        (("web.guard", "engines.llamacpp.engine"), "web must not know"),
        (("run.run", "features.explain.explain"), "run must not know"),
        (("features.seal.turn", "features.background.replay"), "features.seal must not know"),
        (("prepare.shelf.card", "engines.llamacpp.engine"), "prepare.shelf must not know"),
        (("features.connections.protocol", "app"), "features.connections must not know"),
        (("engines.slots", "engines.trtllm.api"), "engines must not know"),
        (("engines.tensorrt.batch", "engines.llamacpp.events"), "one kind of engines"),
        (("stores.redis.store", "stores.sqlite.file"), "one kind of stores"),
        (("prepare.trtllm.build", "prepare.tensorrt.build"), "one kind of prepare"),
    ],
    ids=lambda value: " to ".join(value) if isinstance(value, tuple) else "",
)
def test_an_import_against_a_rule_is_refused(edge: Edge, word: str) -> None:
    assert any(word in fault for fault in faults(edges() | {edge}))


@pytest.mark.parametrize("module", ["helpers", "helpers.strings", "engines.vulkan.engine"])
def test_a_module_in_no_room_is_refused(module: str) -> None:
    assert row(module) is None


def test_a_circle_is_refused_however_long() -> None:
    inside = {(a, b) for a, b in edges() if folder(a) == folder(b)}
    longer = next((a, c) for a, b in sorted(inside) for d, c in sorted(inside) if b == d)
    for back in (min(inside)[::-1], longer[::-1]):
        assert any("a circle" in fault for fault in faults({*inside, back}))


def test_the_package_knows_nothing_of_its_tests_and_tools() -> None:
    ours = [name for m, path in modules(PACKAGE).items() for name in imports(m, path)]
    assert [name for name in ours if not name.startswith(PACKAGE)] == []


def is_test(module: str) -> bool:
    return module.rpartition(".")[2].startswith("test_")


def test_no_test_is_imported_by_anyone() -> None:
    found = {
        (module, name)
        for top in ("tests", "bench", "scripts")
        for module, path in modules(top).items()
        for name in imports(module, path)
        if is_test(name)
    }
    assert sorted(found) == []


def test_every_helper_stands_in_support() -> None:
    rooms = ("unit", "protocol", "e2e", "live")
    beside = [name for room in rooms for name in modules(f"tests/{room}") if not is_test(name)]
    assert {name.rpartition(".")[2] for name in beside} <= {"conftest", "live"}


def test_the_unit_tests_mirror_the_tree() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    rooms = {Path(*room.split(".")) for room in MAY_IMPORT}
    assert [f for f in folders - rooms if not (ROOT / f).is_dir()] == []
