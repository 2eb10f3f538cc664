"""`trt-responses migrate`: a file of a newer server is taken back, and its records stay."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.support.histories import block, record
from trt_responses.cli.main import main
from trt_responses.stores.sqlite import file
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

OLDER = 7


@pytest.mark.parametrize("is_default", [True, False])
def test_a_file_is_taken_back_when_no_server_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_default: bool,
) -> None:
    path = tmp_path / "history.db"
    if is_default:
        monkeypatch.setenv("TRT_RESPONSES_DATA_DIR", str(tmp_path))
    else:
        monkeypatch.setenv("TRT_RESPONSES_STORE", f"sqlite:///{path}")

    async def fill() -> None:
        await (store := SqliteStore(path)).start()
        await store.put(record("a", block("hello")))
        refused = await asyncio.to_thread(main, ["migrate", "--to", str(OLDER)])
        assert refused == 1
        await store.stop()

    async def read() -> None:
        await (store := SqliteStore(path)).start()
        assert await store.get("a", "ann") == record("a", block("hello"))
        await store.stop()

    asyncio.run(fill())
    assert "stop it first" in capsys.readouterr().err
    assert main(["migrate", "--to", "6"]) == 1
    assert main(["migrate", "--to", str(OLDER)]) == 0
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (OLDER,)
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        assert "records" in tables
        assert not {"locks", "clocks"} & tables
    asyncio.run(read())
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (file.VERSION,)


def test_a_store_with_one_format_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_STORE", "memory://")
    assert main(["migrate", "--to", "1"]) == 2
    assert "has one format" in capsys.readouterr().err
