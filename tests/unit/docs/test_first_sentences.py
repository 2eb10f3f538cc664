"""Each module, and each public class and function, begins with a sentence that says what it is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.support.imports import PACKAGE, modules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SMALL = ("llama.cpp", "llguidance", "systemd", "uvicorn")
"""Names of others that begin with a small letter wherever they stand."""


def named(path: Path) -> Iterator[tuple[str, str]]:
    """The module and its public names, each with its docstring."""
    tree = ast.parse(path.read_text())
    if tree.body:
        yield "the module", ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
            if node.name == "install":  # the module says it, and setup/server.py what it is
                continue
            yield node.name, ast.get_docstring(node) or ""


def is_sentence(docstring: str) -> bool:
    first = " ".join(docstring.partition("\n\n")[0].split())
    begins = first[:1].upper() == first[:1] or first.startswith(SMALL)
    return begins and first.endswith((".", ":")) and " " in first


def without_sentence(path: Path) -> list[str]:
    return [name for name, docstring in named(path) if not is_sentence(docstring)]


def test_each_module_and_public_name_begins_with_a_sentence() -> None:
    found = {module: without_sentence(path) for module, path in modules(PACKAGE).items()}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        '"""Numbers"""\n',
        '"""Numbers and words."""\ndef one(): ...\n',
        '"""Numbers and words."""\nclass One:\n    """one of them."""\n',
    ],
)
def test_a_name_without_a_sentence_is_found(tmp_path: Path, source: str) -> None:
    (path := tmp_path / "one.py").write_text(source)
    assert len(without_sentence(path)) == 1
