"""Where test code goes around what the code under test offers: private names, patches and sleeps.

Each such place needs a reason, in a comment on its line or on the line above:

    # private: ...     a name with an underscore that another file owns
    # patched: ...     an attribute replaced in a module, a class or an object
    # slept: ...       a pause of the clock; `turn()` of tests/support/turns.py is none

Not patches are the environment, the working directory, and modules of the standard library such as
`sys.modules`: they are what a process is given. Not private are the documented names that start
with an underscore, those of named tuples for one.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["private", "patched", "slept"]
KINDS: tuple[Kind, ...] = get_args(Kind)

DOCUMENTED = {"_asdict", "_exit", "_fields", "_field_defaults", "_getframe", "_make", "_replace"}
CLOCKS = ("asyncio", "anyio", "time", "trio")
PATCHING = {"setattr", "delattr", "setitem", "delitem"}
REASON = re.compile(r"#\s*(private|patched|slept): \S*\w")
METHOD = re.compile(r"type: ignore\[[^]]*method-assign")

MAY_BYPASS = (
    ast.Attribute, ast.Import, ast.ImportFrom, ast.Call, ast.Assign, ast.AugAssign, ast.Delete
)  # fmt: skip
"""The nodes that `_of` and `_method` look at: one in three."""


class Bypass(NamedTuple):
    line: int
    kind: Kind
    name: str
    has_reason: bool


@cache
def bypasses_in(path: Path) -> list[Bypass]:
    """Those of a file of the repository, read once."""
    return bypasses(path.read_text("utf-8"))


def bypasses(source: str) -> list[Bypass]:
    """The bypasses in the source of one file, one for each kind and line. A patch of a private name
    is a patch alone."""
    nodes = list(ast.walk(ast.parse(source)))
    lines = source.splitlines()
    reasons = list(map(REASON.findall, lines))
    own, imported = _own(nodes), _imported(nodes)
    places = [
        (*_span(node), *one)
        for node in nodes
        if isinstance(node, MAY_BYPASS)
        for one in (*_of(node, own, imported), *_method(node, lines))
    ]
    found: dict[tuple[int, Kind], Bypass] = {}
    for first, last, kind, name in places:
        reason = any(kind in kinds for kinds in reasons[max(first - 2, 0) : last])
        found.setdefault((first, kind), Bypass(first, kind, name, reason))
    patched = {line for line, kind in found if kind == "patched"}
    for line in patched:
        found.pop((line, "private"), None)
    return [found[key] for key in sorted(found)]


def _method(node: ast.AST, lines: list[str]) -> Iterator[tuple[Kind, str]]:
    """An assignment of a function in a method's place, as mypy finds it."""
    if isinstance(node, ast.Assign) and METHOD.search(lines[node.lineno - 1]):
        yield "patched", ast.unparse(node.targets[0])


def _span(node: ast.AST) -> tuple[int, int]:
    """The first and the last line of a node."""
    assert isinstance(node, ast.expr | ast.stmt)
    return node.lineno, node.end_lineno or node.lineno


def _of(node: ast.AST, own: set[str], imported: dict[str, str]) -> Iterator[tuple[Kind, str]]:
    match node:
        case ast.Attribute(value=ast.Name("self" | "cls")):
            return
        case ast.Attribute(attr=name) if is_private(name) and name not in own:
            yield "private", name
        case ast.Import(names=names) | ast.ImportFrom(module=None, names=names):
            yield from (("private", one.name) for one in names if _has_private(one.name))
        case ast.ImportFrom(module=str(module), names=names):
            whole = [f"{module}.{one.name}" for one in names]
            yield from (("private", name) for name in whole if _has_private(name))
            if any(f"{name}.".startswith("unittest.mock.") for name in whole):
                yield "patched", module
        case ast.Call():
            yield from _called(node, own, imported)
        case ast.Assign(targets=targets):
            yield from _replaced(targets, imported)
        case ast.AugAssign(target=target) | ast.Delete(targets=[target]):
            yield from _replaced([target], imported)


def _called(call: ast.Call, own: set[str], imported: dict[str, str]) -> Iterator[tuple[Kind, str]]:
    name = _dotted(call.func, imported)
    if name.endswith(".sleep") and name.partition(".")[0] in CLOCKS:
        yield "slept", name
    last = name.rpartition(".")[2]
    if name != last and last in PATCHING and call.args:
        target = _dotted(call.args[0], imported)
        if target.partition(".")[0] not in sys.stdlib_module_names:
            yield "patched", target
    if last in PATCHING | {"getattr", "hasattr", "attrgetter"}:
        texts = [one.value for one in call.args if isinstance(one, ast.Constant)]
        named = (text for text in texts if isinstance(text, str) and _has_private(text))
        yield from (("private", text) for text in named if text not in own)


def _replaced(targets: list[ast.expr], imported: dict[str, str]) -> Iterator[tuple[Kind, str]]:
    """Assignments to attributes of what was imported, which is a patch that nothing undoes."""
    for target in targets:
        match target:
            case ast.Attribute(value=ast.Name(id=name)) if name in imported:
                yield "patched", _dotted(target, imported)


def _dotted(node: ast.expr, imported: dict[str, str]) -> str:
    """An expression as a dotted name that starts with a module where it can: `from time import
    sleep` makes `time.sleep` of `sleep`. A text that names a target stands for itself."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return imported.get(name, name)
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value, imported)}.{name}"
    return "?"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in DOCUMENTED | {"_"}


def _has_private(dotted: str) -> bool:
    return any(map(is_private, dotted.split(".")))


def _own(nodes: list[ast.AST]) -> set[str]:
    """The private names that this file defines: it may use them wherever it likes."""
    found = set()
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name("self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
    return {name for name in found if is_private(name)}


def _imported(nodes: list[ast.AST]) -> dict[str, str]:
    """What each imported name stands for, as a dotted name."""
    found: dict[str, str] = {}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                found |= {a.asname or a.name.partition(".")[0]: _module(a) for a in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {a.asname or a.name: f"{module}.{a.name}" for a in names}
    return found


def _module(alias: ast.alias) -> str:
    return alias.name if alias.asname else alias.name.partition(".")[0]
