"""One side of `make cost`: CPU time of requests to the package in PYTHONPATH, in this process.

Both sides run this file, though their packages may keep modules in other places: it uses
`create_app`, `Settings` and the scripted engine, wherever these are defined, and ASGI in memory. It
prints the bytes of a stored response and the cases that fail; then each line of input, a case and a
number of requests, is answered with the CPU nanoseconds that they took.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import re
import sqlite3
import sys
import tempfile
import time
from contextlib import asynccontextmanager, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PACKAGE = "trt_responses"
ROOT = Path(__file__).parents[1]
RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"
STORED = 50
"""Responses whose bytes are counted; each has ids and times of its own."""

# Harmony's ids of "analysis", "assistant" and "final", its control ids, and some of plain text.
HEAD = (200005, 35644, 200008, 877, 4614, 316, 9852, 279, 12, 261, 30390, 483, 261, 200007)
FINAL = (200006, 173781, 200005, 17196, 200008)
TEXT = (
    *(6240, 1148, 644, 189638, 1612, 12, 1920, 110596, 11, 1001, 425),
    *(74779, 6658, 12, 290, 2700, 83, 617, 24097, 63, 328, 2174),
)
SHORT_IDS, LONG_IDS = 22, 22 * 50


def ids(text_ids: int) -> tuple[tuple[int, ...], ...]:
    """A thought and an answer of so many ids of text, one id for each step of the engine."""
    text = TEXT * (text_ids // len(TEXT))
    return tuple((one,) for one in (*HEAD, *FINAL, *text, 200002))


def tools(count: int) -> list[dict[str, Any]]:
    schema = {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "The harbour's name"},
            "hour": {"type": "integer"},
            "unit": {"type": "string", "enum": ["metre", "foot"]},
        },
        "required": ["place", "hour", "unit"],
        "additionalProperties": False,
    }
    return [
        {
            "type": "function",
            "name": f"tide_{number}",
            "description": "The height of the tide at an hour of today.",
            "parameters": schema,
            "strict": False,
        }
        for number in range(count)
    ]


def response(*, stream: bool = True, **fields: object) -> bytes:
    return json.dumps({"model": "demo", "input": "Hello", "stream": stream} | fields).encode()


TALK = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
CASES: dict[str, tuple[str, bytes]] = {
    "streamed, stored": (RESPONSES, response()),
    "streamed, not stored": (RESPONSES, response(store=False)),
    "plain, stored": (RESPONSES, response(stream=False)),
    "plain, not stored": (RESPONSES, response(stream=False, store=False)),
    "five tools": (RESPONSES, response(tools=tools(5))),
    "fifty tools": (RESPONSES, response(tools=tools(50))),
    "chat answer": (CHAT, json.dumps(TALK).encode()),
    "Messages answer": (MESSAGES, json.dumps(TALK | {"max_tokens": 4096}).encode()),
    "long": (RESPONSES, response()),
}


class CaseFailed(Exception):
    """The app refuses a case's request, or its reply has no end."""


class Side:
    """An app whose engine plays one script to every request."""

    def __init__(self, store: str) -> None:
        engine = defining("class ScriptedEngine")
        package = importlib.import_module(PACKAGE)
        if not hasattr(package, "create_app"):  # older than the public name
            package = defining("def create_app")
        self._scripts = {length: engine.Script(ids(length)) for length in (SHORT_IDS, LONG_IDS)}
        self._on = SHORT_IDS
        played = engine.ScriptedEngine(lambda *_: self._scripts[self._on])
        self._app = package.create_app(package.Settings(model="demo", store=store), engine=played)

    @asynccontextmanager
    async def living(self) -> AsyncIterator[Side]:
        async with self._app.router.lifespan_context(self._app):
            logging.getLogger(PACKAGE).setLevel(logging.WARNING)
            yield self

    async def warm_up(self) -> dict[str, str]:
        """Let the process compute what it computes once, and keep it from the collector. The cases
        that fail, each with the reason."""
        failed = {}
        for case in CASES:
            try:
                await self.spent_ns(case, 2)
            except CaseFailed as error:
                failed[case] = str(error)
        defining("def freeze_heap").freeze_heap()  # as each side's `serve` sets its collector
        return failed

    async def spent_ns(self, case: str, count: int) -> int:
        """CPU time of so many requests, one after the other."""
        path, body = CASES[case]
        self._on = LONG_IDS if case == "long" else SHORT_IDS
        gc.collect()
        begun = time.process_time_ns()
        for _ in range(count):
            sent, status = await self._post(path, body)
        spent = time.process_time_ns() - begun
        if status != 200 or not any(word in sent for word in (b"complete", b"DONE", b"stop")):
            raise CaseFailed(f"status {status}, {sent[-300:]!r}")
        return spent

    async def _post(self, path: str, body: bytes) -> tuple[bytes, int]:
        """The last part of the reply, and its status."""
        over = asyncio.Event()
        left = [{"type": "http.request", "body": body, "more_body": False}]
        status, last = 0, b""

        async def receive() -> dict[str, Any]:
            if left:
                return left.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status, last
            if "body" in message:
                last = message["body"] or last
            else:
                status = message["status"]

        await self._app(scope(path, body), receive, send)
        over.set()
        return last, status


@cache
def defining(statement: str) -> Any:
    """The module of the package in which a class or function is defined, or of what tests share
    here: its imports are those of the package that is measured."""
    package = Path(str(importlib.import_module(PACKAGE).__file__)).parent
    sys.path.append(str(ROOT))
    for folder, root in (
        (package, package.parent),
        (ROOT / "tests" / "support" / "scripted", ROOT),
    ):
        for path in sorted(folder.rglob("*.py")):
            if re.search(rf"^{statement}\b", path.read_text("utf-8"), re.MULTILINE):
                name = ".".join(path.relative_to(root).with_suffix("").parts)
                return importlib.import_module(name.removesuffix(".__init__"))
    raise SystemExit(f"{package} has no '{statement}'")


def scope(path: str, body: bytes) -> dict[str, Any]:
    headers = {
        "host": "127.0.0.1:8000",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "anthropic-version": "2023-06-01",
    }
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "scheme": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {},
    }


async def stored_bytes() -> int:
    """What SQLite keeps for a response: the bytes in all columns of all tables."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.db"
        async with Side(f"sqlite:///{file}").living() as side:
            await side.spent_ns("plain, stored", STORED)
        with closing(sqlite3.connect(file)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            total = sum(_bytes_of(database, name) for (name,) in tables.fetchall())
    return round(total / STORED)


def _bytes_of(database: sqlite3.Connection, table: str) -> int:
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    lengths = "+".join(f'COALESCE(LENGTH(CAST("{name}" AS BLOB)), 0)' for name in columns)
    [[total]] = database.execute(f'SELECT COALESCE(SUM({lengths}), 0) FROM "{table}"')
    return int(total)


async def answered() -> None:
    """Take turns with the other side: one line in, one line out."""
    stored = await stored_bytes()
    async with Side("memory://").living() as side:
        failed = await side.warm_up()
        print(json.dumps({"stored": stored, "failed": failed}), flush=True)
        for line in sys.stdin:
            case, count = json.loads(line)
            print(json.dumps(await side.spent_ns(case, count)), flush=True)


if __name__ == "__main__":
    uvloop.run(answered())
