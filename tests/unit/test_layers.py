"""The direction of imports, read from the import statements themselves (DESIGN: the rooms)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "trt_responses"

SEAMS = {"errors", "frozen", "wire", "engine.base", "store.base", "tools.base"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "frozen": set(),
    "serve": SEAMS,
    "wire": {"errors", "frozen"},
    "engine.base": {"errors", "frozen", "wire"},
    "store.base": {"errors", "frozen", "wire"},
    "tools.base": {"errors", "frozen", "wire"},
    "tokens": {"errors", "frozen"},
    "engine": SEAMS | {"tokens"},
    "store": SEAMS,
    "tools": SEAMS,
    "language": {"errors", "frozen", "wire"},
    "harmony": SEAMS | {"tokens", "language"},
    "prepare": SEAMS | {"tokens"},
    "response": SEAMS | {"harmony", "tokens", "language"},
    "web": SEAMS | {"harmony", "response"},
    "telemetry": SEAMS | {"response"},
    "settings": {"errors"},
    "serve.silence": set(),
    "serve.protocol": {"errors", "serve.silence"},
    "doctor": SEAMS | {"settings", "prepare", "tokens", "engine", "store"},
}
"""What each room may name besides itself. Those that join everything are left out."""

JOINERS = {"app", "backends", "cli", "__main__", "__init__"}


def room(module: str) -> str:
    """The narrowest room that has a rule: a seam before the folder it stands in."""
    parts = module.split(".")
    return next((name for n in (2, 1) if (name := ".".join(parts[:n])) in MAY_IMPORT), parts[0])


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trt_responses"):
            base = (node.module or "").removeprefix("trt_responses").lstrip(".")
            found |= (
                {base}
                if base and base.count(".")
                else {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
            )
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("trt_responses.")
                for alias in node.names
                if alias.name.startswith("trt_responses.")
            }
    return {name for name in found if name not in ("__version__",)}


def modules() -> list[str]:
    paths = (p.relative_to(PACKAGE).with_suffix("") for p in PACKAGE.rglob("*.py"))
    return sorted(
        ".".join(p.parts)
        for p in paths
        if p.parts[0] not in JOINERS and p.parts != ("serve", "server")
    )


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_what_its_room_may(module: str) -> None:
    here = room(module)
    assert here in MAY_IMPORT, f"{module} stands in no known room"
    for name in imports((PACKAGE / module.replace(".", "/")).with_suffix(".py")):
        there = room(name)
        allowed = MAY_IMPORT[here]
        assert (
            there == here
            or there in allowed
            or there.split(".")[0] in allowed
            or any(name.startswith(f"{a}") for a in allowed if "." in a)
            or (here.split(".")[0] == there.split(".")[0] and here not in SEAMS)
        ), f"{module} imports {name}, which {here} must not know"
