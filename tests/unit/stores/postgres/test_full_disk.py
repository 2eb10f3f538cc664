"""A PostgreSQL database on a disk that is truly full: read, emptied, and written again with more
room. Its log of changes is on another disk, without which PostgreSQL stops."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from scripts.docs_blocks import ROOT
from tests.support import histories, postgres_server
from tests.support.histories import PostgresHistory, block, record
from trt_responses.store import Record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres_server import PostgresServer

ALONE = ("unshare", "--mount")


def mount(folder: Path, *options: str) -> None:
    size = ",".join(options)
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)


def on_a_small_disk(server: PostgresServer, folder: Path) -> PostgresHistory:
    """A database of its own in this folder, whole on the disk: a new one has holes until its first
    checkpoint, and a page that is written into a hole takes room."""
    mount(folder, "size=16m")
    os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    whole = PostgresHistory(server.url)
    whole.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
    whole.execute("CREATE DATABASE small TABLESPACE small")
    whole.execute("CHECKPOINT")
    return PostgresHistory(f"{server.url.removesuffix('postgres')}small")


async def story(history: PostgresHistory, folder: Path) -> None:
    store = history.store()
    await store.start()
    kept = await histories.filled(store)
    assert len(kept) > 20
    for name in kept:
        assert isinstance(await store.get(name, "ann"), Record)
    for name in kept:
        assert await store.delete(name, "ann"), "a deletion needs no room"
    assert history.value("SELECT count(*) FROM trt_responses.blocks") == 0
    mount(folder, "remount", "size=32m")
    await store.put(record("more", block("hello")))
    assert await store.get("more", "ann") == record("more", block("hello"))
    await store.stop()


@pytest.mark.slow  # a PostgreSQL server of its own
def test_a_full_disk_is_read_and_emptied() -> None:
    postgres_server.needed()
    if not postgres_server.is_root():
        pytest.skip("no small disk can be made here without being root")
    if subprocess.run([*ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode:
        pytest.skip("no small disk can be made here")
    command = [*ALONE, sys.executable, "-m", "tests.unit.stores.postgres.test_full_disk"]
    # A file: a part of a killed server may outlive it, and with a pipe this would wait for that.
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(command, cwd=ROOT, stdout=said, stderr=said, check=False)
        said.seek(0)
        assert done.returncode == 0, said.read()


def main() -> None:
    with postgres_server.running(bgwriter_lru_maxpages="0") as server:  # sessions write pages alone
        folder = server.folder.with_name("small")
        folder.mkdir()
        asyncio.run(story(on_a_small_disk(server, folder), folder))


if __name__ == "__main__":
    main()
