"""What is particular to the SQLite store: its threads, its file, and what can be wrong with it.

About 3 s on one core.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.histories import FREE, NOW, SqliteHistory, block, filled, letters, record
from trt_responses.errors import ApiError, StartupError, StoreUnavailable
from trt_responses.store import Expired, Record
from trt_responses.stores.sqlite import file
from trt_responses.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    Connect = Callable[[Path], sqlite3.Connection]


@asynccontextmanager
async def opened(
    path: Path, connect: Connect = file.connect, **more: Any
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, FREE, clock_s=lambda: NOW, connect=connect, **more)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def start_fails(path: Path, connect: Connect = file.connect) -> str:
    async def story() -> None:
        async with opened(path, connect):
            raise AssertionError("it started")

    with pytest.raises(StartupError) as failed:
        asyncio.run(story())
    assert str(path) in str(failed.value)
    return str(failed.value)


# --- threads ----------------------------------------------------------------------------------


class Watch:
    """Connections that note which threads use them, and how often they commit."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.commits: list[int] = []

    def connect(self, path: Path) -> sqlite3.Connection:
        watch = self

        class Watched(sqlite3.Connection):
            def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
                watch.threads.add(threading.get_ident())
                if sql == "COMMIT":
                    watch.commits.append(threading.get_ident())
                return super().execute(sql, *more)

        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Watched)


def test_no_statement_runs_on_the_event_loops_thread_and_one_thread_writes(tmp_path: Path) -> None:
    async def story() -> None:
        watch = Watch()
        async with opened(tmp_path / "h.db", watch.connect) as store:
            await store.put(record("a", block("hello")))
            await store.get("a", "ann")
            await store.delete("a", "ann")
        assert threading.get_ident() not in watch.threads
        assert len(watch.threads) >= 3  # it was opened by one, written by one, read by one
        assert len(set(watch.commits[1:])) == 1

    asyncio.run(story())


def test_what_is_put_while_a_commit_goes_on_is_committed_together(tmp_path: Path) -> None:
    async def story() -> None:
        watch = Watch()
        async with opened(tmp_path / "h.db", watch.connect) as store:
            before = len(watch.commits)
            await asyncio.gather(*(store.put(record(f"r{n}", block("x"))) for n in range(100)))
            assert len(watch.commits) - before <= 20
            for n in range(100):
                assert isinstance(await store.get(f"r{n}", "ann"), Record)

    asyncio.run(story())


def test_a_put_returns_only_when_another_process_could_read_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path / "h.db") as store:
            for name in "abc":
                await store.put(record(name))
                with closing(sqlite3.connect(tmp_path / "h.db")) as other:
                    [(found,)] = other.execute("SELECT count(*) FROM records WHERE id = ?", name)
                    assert found == 1

    asyncio.run(story())


@pytest.mark.parametrize("was", [None, 0o644])
def test_all_files_of_a_history_are_the_users_alone_also_those_that_are_there(
    tmp_path: Path, was: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data" / "history.db"

    async def story() -> None:
        async with opened(path) as store:
            await store.put(record("resp_1"))
            modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
            assert modes == dict.fromkeys(FILES, 0o600)
            assert path.parent.stat().st_mode & 0o777 == (0o700 if was is None else 0o755)

    if was is not None:  # as older versions left them, in a folder that need not be the history's
        path.parent.mkdir(mode=0o755)
        db = file.connect(path)
        file.prepare(db, path)
        for each in path.parent.iterdir():
            each.chmod(was)
    caplog.set_level("INFO")
    asyncio.run(story())
    assert f"storing responses in {path.resolve()}" in caplog.text


FILES = ("history.db", "history.db-wal", "history.db-shm", "history.db-reserve")


@pytest.mark.parametrize(("synchronous", "level"), [("normal", 1), ("full", 2)])
def test_the_setting_decides_when_the_disk_is_waited_for(
    tmp_path: Path, synchronous: file.Synchronous, level: int
) -> None:
    async def story() -> None:
        async with opened(tmp_path / "h.db", synchronous=synchronous) as store:
            # private: a connection tells nobody else how it syncs
            (found,) = await store._write(lambda db: db.execute("PRAGMA synchronous").fetchone())
            with closing(sqlite3.connect(tmp_path / "h.db")) as other:
                (mode,) = other.execute("PRAGMA journal_mode").fetchone()
            assert (found, mode) == (level, "wal")

    asyncio.run(story())


def test_reading_keeps_alive_also_across_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = replace(FREE, max_records=2)
        history = SqliteHistory(tmp_path)
        first = history.store(bounds)
        await first.start()
        await first.put(record("a"))
        await first.put(record("b"))
        await first.get("a", "ann")
        await first.stop()
        second = history.store(bounds)
        await second.start()
        await second.put(record("c"))
        assert await second.get("b", "ann") == Expired("b")
        assert isinstance(await second.get("a", "ann"), Record)
        await second.stop()

    asyncio.run(story())


# --- what can be wrong at a start -------------------------------------------------------------


def test_a_file_of_something_else_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    path.write_bytes(b"Dear diary, today I wrote a database.\n" * 100)
    assert "not a database" in start_fails(path)
    assert path.read_bytes().startswith(b"Dear diary")
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE recipes (name)")
    assert "of another program" in start_fails(path)


def test_a_file_of_a_newer_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path / "h.db") as store:
            await store.put(record("a"))

    asyncio.run(story())
    with closing(sqlite3.connect(tmp_path / "h.db")) as db:
        db.execute(f"PRAGMA user_version = {file.VERSION + 1}")
    said = start_fails(tmp_path / "h.db")
    assert f"version {file.VERSION + 1}" in said
    assert "upgrade" in said


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        (b"CREATE TABLE blocks", b"DAMAGE TABLE blocks"),
        (b"tableblocks", b"table\xfflocks"),
        (b"CREATE", b"\0\xff\xfe\xfd\xfc\xfb"),
    ],
    ids=["a statement", "a name", "all statements"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, whole: bytes, damaged: bytes) -> None:
    async def story() -> None:
        async with opened(tmp_path / "h.db") as store:
            await store.put(record("a"))

    asyncio.run(story())
    path = tmp_path / "h.db"
    data = path.read_bytes()
    assert whole in data
    path.write_bytes(data.replace(whole, damaged))
    said = start_fails(path)
    assert "damaged" in said
    assert "move it away" in said


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    def read_only(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)

    async def story() -> None:
        async with opened(tmp_path / "h.db"):
            pass

    asyncio.run(story())
    assert "able to write" in start_fails(tmp_path / "h.db", read_only)
    (tmp_path / "file").write_text("")
    assert "cannot be opened" in start_fails(tmp_path / "file" / "h.db")
    tmp_path.chmod(0o755)
    assert "cannot be" in start_fails(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755, "a mistake closes no other folder"


def test_a_directory_that_the_store_makes_is_its_owners_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path / "data" / "h.db"):
            assert (tmp_path / "data").stat().st_mode & 0o077 == 0

    asyncio.run(story())


def test_a_file_of_an_older_version_is_brought_to_todays_with_what_it_holds(
    tmp_path: Path,
) -> None:
    path = tmp_path / "h.db"

    async def fill() -> None:
        async with opened(path) as store:
            await store.put(record("a", block("hello")))

    async def story() -> None:
        async with opened(path) as store:
            assert await store.get("a", "ann") is None
            await store.put(record("b", block("hello")))
            assert await store.get("b", "ann") == record("b", block("hello"))
            assert await store.frames_after("a", "ann", -1) is None

    asyncio.run(fill())
    with closing(sqlite3.connect(path)) as db:  # as its first version was
        for table in ("jobs", "frames", "locks", "clocks"):
            db.execute(f"DROP TABLE {table}")
        for column in ("version", "vocabulary"):
            db.execute(f"ALTER TABLE records DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 1")
    asyncio.run(story())
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (file.VERSION,)
        assert db.execute("SELECT records FROM totals").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM blocks").fetchone() == (2,)


def test_a_file_from_when_texts_stood_beside_their_ids_keeps_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "h.db"

    async def fill() -> None:
        async with opened(path) as store:
            await store.put(record("a", block("hello")))

    async def story() -> None:
        async with opened(path, spell=letters) as store:
            await store.put(record("b", block("hello"), block("world")))
            for kept in (record("a", block("hello")), record("b", block("hello"), block("world"))):
                assert await store.get(kept.id, "ann") == kept

    async def without_its_words() -> None:
        async with opened(path) as store:
            assert await store.get("a", "ann") == record("a", block("hello"))
            with pytest.raises(ApiError, match="damaged"):
                await store.get("b", "ann")

    asyncio.run(fill())
    with closing(sqlite3.connect(path)) as db:
        for column in (
            *(f"records DROP COLUMN {name}" for name in ("version", "vocabulary")),
            *(f"jobs DROP COLUMN {name}" for name in ("source", "model", "term", "deaths")),
            "frames DROP COLUMN ids",
        ):
            db.execute(f"ALTER TABLE {column}")
        for table in ("locks", "clocks"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 3")
    asyncio.run(story())
    asyncio.run(without_its_words())


# --- what can go wrong later ------------------------------------------------------------------


def small(path: Path) -> sqlite3.Connection:
    """SQLite's own limit, which fails as a full disk does."""
    db = file.connect(path)
    db.execute("PRAGMA max_page_count = 40")
    return db


def test_a_full_disk_is_told_and_what_fits_is_still_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path / "h.db", small) as store:
            noise = "".join(chr(33 + (n * n * 7919) % 50_000) for n in range(100_000))
            together = [store.put(record("small")), store.put(record("big", block(noise)))]
            done, failed = await asyncio.gather(*together, return_exceptions=True)
            assert done is None
            assert isinstance(failed, StoreUnavailable)
            assert "disk is full" in failed.message
            assert isinstance(await store.get("small", "ann"), Record)
            assert await store.get("big", "ann") is None
            await store.put(record("after"))
            assert isinstance(await store.get("after", "ann"), Record)

    asyncio.run(story())


class Quota(sqlite3.Connection):
    """A disk of a fixed size: a commit needs room for its log beside all files that are there."""

    directory: Path
    size_bytes = 12 * 1024 * 1024
    log_bytes = 256 * 1024

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        used = sum(path.stat().st_size for path in self.directory.iterdir())
        if sql == "COMMIT" and used + self.log_bytes > self.size_bytes:
            fault = sqlite3.OperationalError("database or disk is full")
            fault.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise fault
        return super().execute(sql, parameters)


def test_a_delete_finds_room_on_a_full_disk_again_and_again(tmp_path: Path) -> None:
    class Here(Quota):
        directory = tmp_path

    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Here)

    async def story() -> None:
        async with opened(tmp_path / "h.db", connect) as store:
            kept = await filled(store)
            assert len(kept) > 5
            for each in kept[:3]:
                assert await store.delete(each, "ann") is True
                assert await store.get(each, "ann") is None
            assert await store.delete(kept[0], "ann") is False
            assert (tmp_path / "h.db-reserve").exists()
            assert isinstance(await store.get(kept[3], "ann"), Record)

    asyncio.run(story())


ON_A_SMALL_DISK = """
import asyncio, sys
from pathlib import Path
from tests.support.histories import FREE, filled
from trt_responses.stores.sqlite.store import SqliteStore

async def story(directory):
    store = SqliteStore(directory / "h.db", FREE)
    await store.start()
    size = int(sys.argv[2])
    kept = await filled(store, size)
    print(all([await store.delete(each, "ann") for each in kept]), len(kept) > 10)
    print(len(await filled(store, size)) > 10)
    await store.stop()

asyncio.run(story(Path(sys.argv[1])))
"""


@pytest.mark.parametrize(
    ("disk", "record_bytes"),
    [pytest.param("24m", 30_000, marks=pytest.mark.slow), ("1m", 3_000)],  # 2 s, and 0.2 s
)
def test_all_can_be_deleted_on_a_disk_that_is_truly_full_and_then_as_much_is_kept_again(
    tmp_path: Path, disk: str, record_bytes: int
) -> None:
    script = f'mount -t tmpfs -o size={disk} tmpfs "$1" && "$2" -c "$3" "$1" {record_bytes}'
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    try:
        may = subprocess.run([*inside[:-4], "true"], capture_output=True, check=False).returncode
    except FileNotFoundError:
        may = 1
    if may != 0:
        pytest.skip("no small disk can be made here without being root")
    made = subprocess.run(
        [*inside, str(tmp_path), sys.executable, ON_A_SMALL_DISK],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert made.stdout.split() == ["True", "True", "True"], made.stderr


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE records SET body = x'789c4b040000620062'",
        "UPDATE records SET prior_count = 1",
        "UPDATE records SET owner = 'ann', date = '2020-01-01'",
        "UPDATE records SET blocks = substr(blocks, 1, 8)",
        "UPDATE records SET blocks = zeroblob(16)",
        "UPDATE blocks SET data = (SELECT data FROM blocks WHERE n = 1) WHERE n = 2",
        "UPDATE blocks SET data = x'00'",
        "DELETE FROM blocks WHERE n = 2",
    ],
)
def test_what_was_changed_in_the_file_is_an_error_and_never_an_answer(
    tmp_path: Path, damage: str
) -> None:
    async def story() -> None:
        async with opened(tmp_path / "h.db") as store:
            await store.put(record("a", block("one"), block("two")))
        with closing(sqlite3.connect(tmp_path / "h.db", isolation_level=None)) as db:
            db.execute(damage)
        async with opened(tmp_path / "h.db") as store:
            with pytest.raises(ApiError, match="damaged"):
                await store.get("a", "ann")

    asyncio.run(story())


def test_a_writer_that_cannot_open_the_file_says_so_until_it_can(tmp_path: Path) -> None:
    failing = [False]

    def connect(path: Path) -> sqlite3.Connection:
        if failing[0]:
            raise sqlite3.OperationalError("unable to open database file")
        return file.connect(path)

    async def story() -> None:
        store = SqliteStore(tmp_path / "h.db", FREE, clock_s=lambda: NOW, connect=connect)
        await store.start()
        failing[0] = True
        with pytest.raises(ApiError, match="unable to open"):
            await store.put(record("a"))
        failing[0] = False
        await store.put(record("a"))
        assert await store.get("a", "ann") == record("a")
        await store.stop()

    asyncio.run(story())


def test_a_file_that_another_holds_for_long_is_told_as_busy(tmp_path: Path) -> None:
    def impatient(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)

    async def story() -> None:
        async with opened(tmp_path / "h.db", impatient) as store:
            with closing(sqlite3.connect(tmp_path / "h.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailable, match="busy") as refused:
                    await store.put(record("a"))
                assert refused.value.retry_after_s == 1
                other.execute("ROLLBACK")
            await store.put(record("a"))

    asyncio.run(story())


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_moved_away_takes_no_more_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, replaced: bool
) -> None:
    path = tmp_path / "h.db"

    async def story() -> None:
        async with opened(path) as store:
            await store.put(record("a"))
            path.rename(tmp_path / "moved")
            if replaced:
                path.write_bytes((tmp_path / "moved").read_bytes())
            with pytest.raises(StoreUnavailable, match="moved or replaced"):
                await store.put(record("b"))
            (tmp_path / "moved").rename(path)
            await store.put(record("c"))
        async with opened(path) as store:
            assert [await store.get(name, "ann") for name in "abc"] == [
                record("a"),
                None,
                record("c"),
            ]

    asyncio.run(story())
    assert "cannot write to the store: The store's file was moved" in caplog.text
