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

Edge = tuple[str, str]

UNIT = ROOT / "tests" / "unit"

LEAVES = "children errors files frozen tasks"
SEAMS = f"{LEAVES} engine.base store.base tools.base"
ENGINE = f"{LEAVES} engine engine.base tokens"
STORE = f"{LEAVES} store store.base"
HARMONY = f"{LEAVES} language tokens schema wire engine.base store.base"
RESPONSE = f"{SEAMS} wire schema tokens language"
TARGET = f"{LEAVES} tokens engine.base prepare prepare.checkpoint prepare.graph prepare.shelf"

MAY_IMPORT = {
    "children": "",
    "errors": "",
    "files": "",
    "frozen": "",
    "tasks": "",
    "settings": LEAVES,
    "wire": f"{LEAVES} wire.*",
    "wire.chat": f"{LEAVES} wire",
    "wire.messages": f"{LEAVES} wire",
    "tokens": LEAVES,
    "schema": LEAVES,
    "language": f"{LEAVES} wire schema engine.base store.base",
    "engine.base": LEAVES,
    "engine": f"{LEAVES} engine.base tokens",
    "engine.grpc": ENGINE,
    "engine.llamacpp": ENGINE,
    "engine.remote": ENGINE,
    "engine.scripted": ENGINE,
    "engine.tensorrt": ENGINE,
    "engine.triton": ENGINE,
    "engine.trtllm": ENGINE,
    "store.base": LEAVES,
    "store": f"{LEAVES} store.base",
    "store.at_rest": STORE,
    "store.memory": f"{STORE} store.at_rest",
    "store.redis": f"{STORE} store.at_rest",
    "store.sqlite": f"{STORE} store.at_rest",
    "tools.base": LEAVES,
    "tools": f"{LEAVES} tools.base",
    "tools.browser": f"{LEAVES} tools tools.base",
    "tools.mcp": f"{LEAVES} tools tools.base",
    "tools.code": f"{LEAVES} tools tools.base",
    "harmony": HARMONY,
    "harmony.read": HARMONY,
    "harmony.write": f"{HARMONY} harmony",
    "harmony.steer": HARMONY,
    "harmony.dialect": f"{HARMONY} harmony.*",
    "templates": f"{HARMONY} templates.*",
    "templates.read": f"{HARMONY} templates",
    "templates.write": f"{HARMONY} templates templates.read",
    "response": f"{RESPONSE} response.*",
    "response.log": f"{LEAVES} wire.* language",
    "response.accept": f"{RESPONSE} wire.* response response.log response.steering",
    "response.prompt": f"{RESPONSE} response response.accept response.seal response.steering"
    " response.tools",
    "response.seal": f"{RESPONSE} response response.run response.tools",
    "response.steering": f"{RESPONSE} response.accept response.log",
    "response.tools": f"{RESPONSE} response.accept response.log response.steering",
    "response.run": f"{RESPONSE} response.*",
    "response.background": f"{RESPONSE} response.accept response.log response.run",
    "response.versions": f"{RESPONSE} response response.accept response.run",
    "response.explain": f"{RESPONSE} response.log response.run response.tools",
    "telemetry": f"{LEAVES} wire response.run response.versions",
    "access": f"{LEAVES} wire",
    "web": f"{SEAMS} wire.* access telemetry response.* web.stream",
    "web.operations": f"{LEAVES} wire access telemetry response response.explain"
    " response.versions web",
    "web.websocket": f"{SEAMS} wire response.* web web.stream",
    "web.stream": f"{SEAMS} wire response.*",
    "web.kserve": f"{SEAMS} wire wire.chat access telemetry response.* web web.operations"
    " web.stream",
    "prepare": f"{LEAVES} tokens engine.base prepare.checkpoint prepare.graph prepare.shelf",
    "prepare.checkpoint": f"{LEAVES} tokens engine.base prepare",
    "prepare.graph": f"{LEAVES} tokens engine.base prepare prepare.checkpoint",
    "prepare.shelf": f"{LEAVES} prepare prepare.checkpoint prepare.graph",
    "prepare.llamacpp": TARGET,
    "prepare.tensorrt": TARGET,
    "prepare.triton": TARGET,
    "prepare.trtllm": TARGET,
    "doctor": f"{SEAMS} settings tokens prepare.* backends",
    "backends": f"{LEAVES} settings tokens language harmony.* templates.*"
    " engine.* store.* tools.* prepare.*",
    "setup": f"{SEAMS} settings prepare prepare.shelf tokens wire language response.* telemetry"
    " access web.* backends",
    "app": f"{SEAMS} settings access prepare.shelf language response response.run response.versions"
    " backends setup web.*",
    "serve.silence": "",
    "serve.protocol": "errors serve.silence",
    "serve.websocket": "serve.silence",
    "serve": f"{SEAMS} settings access response response.run app setup backends"
    " engine.remote engine.triton engine.trtllm prepare.shelf serve.protocol"
    " serve.silence serve.websocket telemetry",
    "cli": f"{SEAMS} settings tokens access prepare.* doctor backends serve",
    "": "app settings",
    "__main__": "cli",
}
"""Each room, and the rooms that its files may import besides their own. A row speaks for the files
of the folder, or the one file, that it names; `x.*` stands for `x` and every row below it. Rows of
rooms that are not built yet keep their place."""

KINDS = ("engine", "store", "tools", "prepare")
SHARED = {"store.at_rest", "prepare.checkpoint", "prepare.graph", "prepare.shelf"}
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
    """What the rules say against these imports."""
    for module, name in sorted(found):
        here, there = row(module), row(name)
        if here is not None and there not in allowed(here):
            yield f"{module} imports {name}, which {here or PACKAGE} must not know"
        one, other = kind(module), kind(name)
        room = module.partition(".")[0]
        if one and other and one != other and name.startswith(f"{room}."):
            yield f"{module} imports {name}: one kind of {room} must not know another"
    if around := circle(found):
        yield f"a circle: {' imports '.join(around)}"


def test_every_module_stands_in_a_room_of_the_table() -> None:
    assert [name for name in map(short, modules(PACKAGE)) if row(name) is None] == []


def test_a_module_imports_only_what_its_room_may() -> None:
    assert list(faults(edges())) == []


@pytest.mark.parametrize(
    ("edge", "word"),
    [
        (("wire.items", "tokens.pieces"), "wire must not know"),
        (("engine.base", "tokens.vocabulary"), "engine.base must not know"),
        (("harmony.read.reader", "harmony.write.render"), "harmony.read must not know"),
        (("response.log.log", "response.run.runs"), "response.log must not know"),
        (("web.guard", "engine.llamacpp.engine"), "web must not know"),
        (("prepare.shelf.card", "engine.llamacpp.engine"), "prepare.shelf must not know"),
        (("serve.protocol", "app"), "serve.protocol must not know"),
        (("engine.slots", "engine.trtllm.api"), "engine must not know"),
        (("engine.tensorrt.batch", "engine.llamacpp.events"), "one kind of engine"),
        (("store.redis.store", "store.sqlite.file"), "one kind of store"),
        (("prepare.trtllm.build", "prepare.tensorrt.build"), "one kind of prepare"),
    ],
    ids=lambda value: " to ".join(value) if isinstance(value, tuple) else "",
)
def test_an_import_against_a_rule_is_refused(edge: Edge, word: str) -> None:
    assert any(word in fault for fault in faults(edges() | {edge}))


@pytest.mark.parametrize("module", ["helpers", "helpers.strings", "engine.vulkan.engine"])
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
