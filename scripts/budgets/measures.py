"""The numbers that have a budget: what the package is, and what it does in a fresh process."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import words
from tests.support.bypasses import KINDS, bypasses_in
from tests.support.imports import PACKAGE, ROOT, imports, modules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ATTRIBUTES, PARAMETERS = 12, 6
"""The most public attributes of a class and parameters of a function that do not count."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def everything(core: Collection[str], library: Collection[str]) -> dict[str, int]:
    """Every number that has a budget."""
    return {**static(core, library), **dynamic(), **in_rooms()}


def static(core: Collection[str], library: Collection[str]) -> dict[str, int]:
    """What can be counted in the source alone, in the order in which it is written down."""
    files = modules(PACKAGE)
    lines = {module: path.read_bytes().count(b"\n") for module, path in files.items()}
    wide = Counter(kind for path in files.values() for kind in _wide(path))
    return {
        "lines": sum(lines.values()),
        "lines.core": sum(count for module, count in lines.items() if stands_in(module, core)),
        "files.folder": max(Counter(path.parent for path in files.values()).values()),
        "imports.up": len(upward(edges(), core, library)),
        "classes.wide": wide["class"],
        "functions.wide": wide["function"],
        **_bypasses(),
    }


def dynamic() -> dict[str, int]:
    """What has to run for it: three processes, some seconds."""
    return {**_probe("app"), **_probe("cli"), "wheel.bytes": wheel_bytes()}


def in_rooms() -> dict[str, int]:
    """The words of the private idiom: all of them, and those in each room."""
    counts = words.counts(words.places())
    return {"words": sum(counts.values())} | {
        f"words.{room}": count for room, count in sorted(counts.items())
    }


def _bypasses() -> dict[str, int]:
    """The private names, patches and sleeps in tests."""
    counts = Counter(one.kind for path in modules("tests").values() for one in bypasses_in(path))
    return {f"tests.{kind}": counts[kind] for kind in KINDS}


# --- imports --------------------------------------------------------------------------------------


def stands_in(module: str, rooms: Collection[str]) -> bool:
    """Whether a module is one of these or lies directly in one of these folders."""
    return module in rooms or _folder(module) in rooms


@cache
def edges() -> frozenset[tuple[str, str]]:
    """Every import of one module of the package by another, for types too."""
    return frozenset(
        (module, name)
        for module, path in modules(PACKAGE).items()
        for name in imports(module, path)
        if name.startswith(f"{PACKAGE}.")
    )


def upward(
    found: Collection[tuple[str, str]], core: Collection[str], library: Collection[str]
) -> list[tuple[str, str]]:
    """Imports by the core of what is neither core nor a library."""
    known = {*core, *library}
    return sorted(
        (module, name)
        for module, name in found
        if stands_in(module, core) and not stands_in(name, known)
    )


def _folder(module: str) -> str:
    """A folder's own module stands in itself."""
    path = modules(PACKAGE).get(module)
    return module if path and path.stem == "__init__" else module.rpartition(".")[0]


# --- shapes ---------------------------------------------------------------------------------------


def _wide(path: Path) -> Iterator[str]:
    """One file's wide classes and functions: a tree of all files would take 100 MB."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ClassDef) and width(node) > ATTRIBUTES:
            yield "class"
        elif isinstance(node, Function) and arity(node) > PARAMETERS:
            yield "function"


def width(node: ast.ClassDef) -> int:
    """The number of public attributes that a class declares or its methods set."""
    names = {name for statement in node.body for name in _declared(statement)}
    methods = [statement for statement in node.body if isinstance(statement, Function)]
    names |= {
        inner.attr
        for method in methods
        for inner in ast.walk(method)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
    }
    return sum(not name.startswith("_") for name in names)


def _declared(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def arity(node: Function) -> int:
    """The number of parameters of a function, without `self` or `cls`."""
    its = node.args
    names = [one.arg for one in (*its.posonlyargs, *its.args, *its.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


# --- processes ------------------------------------------------------------------------------------


def _probe(kind: str) -> dict[str, int]:
    counts: dict[str, int] = json.loads(_run("-m", "scripts.budgets.probe", kind))
    return counts


def wheel_bytes() -> int:
    """The size of the wheel, which is built without a package index."""
    with tempfile.TemporaryDirectory() as folder:
        _run("-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        [wheel] = Path(folder).glob("*.whl")
        return wheel.stat().st_size


def _run(*arguments: str) -> str:
    """The output of Python with these arguments, in the repository and over its own package."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("TRT_RESP")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=outer | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout
