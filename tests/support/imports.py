"""The imports of the project's own modules, read from their source: no module is run for it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "trt_responses"
MAY_NAME = (ast.Import, ast.ImportFrom, ast.Constant)


@cache
def modules(folder: str) -> dict[str, Path]:
    """The modules below a folder of the repository, by dotted name. A folder stands for its
    `__init__`."""
    found = {}
    for path in (ROOT / folder).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _known() -> frozenset[str]:
    return frozenset(
        name for folder in (PACKAGE, "tests", "bench", "scripts") for name in modules(folder)
    )


def _named(node: ast.AST, module: str) -> set[str]:
    """What one node of a syntax tree names: modules, or names inside them."""
    match node:
        case ast.Import(names=names):
            return {alias.name for alias in names}
        case ast.ImportFrom(module=base, names=names, level=level):
            steps = module.split(".")[:-level] if level else []
            start = ".".join([*steps, *([base] if base else [])])
            return {f"{start}.{alias.name}" for alias in names}
        case ast.Constant(value=str(text)) if "." in text and text in modules(PACKAGE):
            return {text}  # a module that is started by its name, as a process, is known too
    return set()


def _module_of(name: str) -> str | None:
    """The module that a dotted name stands in, or None for a name that is not ours."""
    while name not in _known():
        name = name.rpartition(".")[0]
        if not name:
            return None
    return name


@cache
def imports(module: str, path: Path) -> frozenset[str]:
    """The modules of the project that one module names anywhere: at its head, inside a function,
    or for types only. The version, which every module may say, does not count."""
    tree = ast.parse(path.read_text())
    nodes = (node for node in ast.walk(tree) if isinstance(node, MAY_NAME))
    names = {name for node in nodes for name in _named(node, module)}
    names.discard(f"{PACKAGE}.__version__")
    found = {_module_of(name) for name in names}
    return frozenset(name for name in found if name and name != module)
