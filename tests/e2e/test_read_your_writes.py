"""Read-your-writes of the conformance kit: two servers on one store, as they are, with a store that
shows late, and with a server that stops answering in between."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from responses_conformance import cli

from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import ANSWER, script
from tests.support.serving import threaded
from trt_responses.app import create_app
from trt_responses.settings import Settings
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.store import Found


class LateStore(SqliteStore):
    """Shows an id from its second look on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._seen: set[str] = set()

    async def get(self, response_id: str, owner: str) -> Found:
        if response_id in self._seen:
            return await super().get(response_id, owner)
        self._seen.add(response_id)
        return None


class Stopping:
    """Answers no request behind the first ones."""

    def __init__(self, app: ASGIApp, requests: int = 12) -> None:
        self._app, self._left = app, requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._left -= scope["type"] == "http"
        if self._left >= 0:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("second", "status", "says"),
    [
        ("true", 0, "\n0 violations: 12 promises, 40 uses\n"),
        ("late", 1, "streamed its end; 200 after "),
        ("stopping", 0, "uses without an answer"),
    ],
)
def test_servers_of_one_store_know_what_another_has_streamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], second: str, status: int, says: str
) -> None:
    kinds = (SqliteStore, LateStore if second == "late" else SqliteStore)
    with ExitStack() as stack:
        urls: list[str] = []
        for kind in kinds:
            engine = ScriptedEngine(lambda *_: script(ANSWER), clock=StepClock.free())
            app: ASGIApp = create_app(
                Settings(model="demo"), engine=engine, store=kind(tmp_path / "history.db")
            )
            if second == "stopping" and urls:
                app = Stopping(app)
            urls.append(f"{stack.enter_context(threaded(app))}/v1")
        given = ["--read-your-writes", ",".join(urls), "--writers", "2", "--repeat", "2"]
        assert cli.main(given) == status
    out = capsys.readouterr().out
    assert says in "\n" + out
