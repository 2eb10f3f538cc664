"""The reference pages say what the code has: generated parts, error codes, headers, paths."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest

from scripts.reference.commands import commands
from scripts.reference.pages import DOCS, MARKED, PAGES, PARTS, written
from tests.support.imports import PACKAGE, modules
from tests.support.served import served
from trt_responses.cli.setting_list import groups
from trt_responses.features.cors.cors import EXPOSED
from trt_responses.settings import whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GENERATED = {page: [name for _, name, _ in MARKED.findall(page.read_text())] for page in PAGES}
CODE_NAMES = re.compile(r"code|\w*CODES?")
CODE = re.compile(r"[a-z]+(_[a-z]+)+|starting|forbidden")
NOT_CODES = {"sqlite_errorcode"}
HEADER = re.compile(
    r"x(-[a-z]+)+|[a-z]+(-[a-z]+)+-policy|traceparent|tracestate|retry-after|idempotency-key"
)
NOT_OURS = {
    *("x-guidance", "x-gzip", "x-subscription-token"),
    *("x-amz-date", "x-amz-security-token"),
}
"""Of a grammar, of a page that is fetched, of a search service, and of object stores."""


BARE_NAMES = {
    *("api", "errors", "headers", "history", "mcp-server", "metrics", "state"),
    *("structured-output", "tools", "web-search", "websocket"),
}
"""Pages that name settings without their prefix."""
NOT_SETTINGS = ("NAME", "OPENAI_", "LIVE_", "TRT_RESPONSES_")
"""What stands for any, those of clients and of the tests of a real engine, and names with their
prefix, which are found first."""


@pytest.mark.parametrize("page", [p for p, parts in GENERATED.items() if parts], ids=str)
def test_a_generated_part_is_what_the_code_says(page: Path) -> None:
    text = page.read_text("utf-8")
    assert written(text) == text, "run `python -m scripts.reference`"


def test_every_part_stands_in_one_page() -> None:
    assert sorted(name for parts in GENERATED.values() for name in parts) == sorted(PARTS)


def test_every_setting_is_described() -> None:
    bare = [name for name, field in whole().model_fields.items() if not field.description]
    assert bare == []


def test_every_command_is_found() -> None:
    names = {command.name for command in commands()}
    assert names >= {f"trt-responses {name}" for name in ("serve", "engine adapter add", "doctor")}


def constants(node: ast.AST) -> Iterator[str]:
    """The texts in an expression, those of bytes too."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant):
            if isinstance(inner.value, str):
                yield inner.value
            elif isinstance(inner.value, bytes):
                yield inner.value.decode("latin-1")


def codes(tree: ast.AST) -> Iterator[str]:
    """The error codes of a module: arguments, attributes and tables of that name."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="code", value=value):
                yield from constants(value)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if CODE_NAMES.fullmatch(name):
                yield from constants(value)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "code":
                        yield from constants(value)


def trees(word: str) -> Iterator[ast.Module]:
    """The package's modules whose text has this word, one after another: all take 150 MB."""
    for path in modules(PACKAGE).values():
        if word in (text := path.read_text("utf-8")):
            yield ast.parse(text)


def test_every_error_code_is_explained() -> None:
    used = {
        code for tree in trees("code") for code in codes(tree) if CODE.fullmatch(code)
    } - NOT_CODES
    page = (DOCS / "errors.md").read_text()
    assert len(used) > 60
    assert sorted(code for code in used if f"`{code}`" not in page) == []


def test_every_header_is_listed() -> None:
    used = {text for tree in trees("-") for text in constants(tree) if HEADER.fullmatch(text)}
    page = (DOCS / "headers.md").read_text()
    wanted = (used | set(EXPOSED.split(", "))) - NOT_OURS
    assert len(wanted) > 20
    assert sorted(name for name in wanted if f"`{name}`" not in page) == []


def test_every_endpoint_is_listed() -> None:
    async def story() -> bytes:
        async with served(python="unboxed") as s:
            return (await s.client.get("/openapi.json")).body

    paths = json.loads(asyncio.run(story()))["paths"]
    page = (DOCS / "api.md").read_text()
    assert len(paths) > 20
    assert sorted(path for path in paths if f"`{re.sub(r'{.*?}', '{id}', path)}`" not in page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_settings_that_exist(page: Path) -> None:
    names = {name.upper() for _, group in groups() for name in group}
    text = page.read_text("utf-8")
    found = set(re.findall(r"\bTRT_RESPONSES_([A-Z_]*[A-Z])\b", text))
    if page.stem in BARE_NAMES:
        found |= set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)(?:=[^`]*)?`", text))
    assert sorted(name for name in found - names if not name.startswith(NOT_SETTINGS)) == []
