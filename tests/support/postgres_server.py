"""A real PostgreSQL server of the test run's own, on a free port; without one, tests skip.

It runs as the user `postgres` where the tests run as root, since it refuses to run as root.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import children_of
from tests.support.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
MISSING = "no PostgreSQL server on this machine: install it from the distribution"
NO_CLIENT = "psycopg is not installed: it is in the extra `postgres`"
ATTEMPTS = 5
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "log_min_messages": "log",  # no errors: nobody reads on, and a full pipe would hold the server
    "log_checkpoints": "off",
}


class PostgresServer:
    """One cluster, which can be stopped, killed and started again on its port."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder, self._options = folder, OPTIONS | options
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        self.program(
            *("initdb", "-D", str(self.folder), "-U", "postgres", "-A", "trust"),
            *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
        )

    def program(self, name: str, *words: str) -> None:
        """Run one of PostgreSQL's programs to its end."""
        subprocess.run(
            [PROGRAMS[-1].with_name(name), *words],
            check=True,
            capture_output=True,
            user=_user(),
            cwd="/",
        )

    def start(self) -> None:
        for _ in range(ATTEMPTS):
            self.port = self.port or free_port()
            if self._started():
                return
            self.port = 0
        raise AssertionError("the PostgreSQL server did not start")

    def _started(self) -> bool:
        given = self._options | {"port": str(self.port)}
        options = [f"--{name}={value}" for name, value in given.items()]
        self._process = subprocess.Popen(
            [PROGRAMS[-1], "-D", self.folder, *options],
            stderr=subprocess.PIPE,
            text=True,
            user=_user(),
            cwd="/",
            process_group=0,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:  # it ends when the server does
            if "ready to accept" in line:
                return True
        self.kill()
        return False

    def kill(self) -> None:
        """As a machine that is gone: its parts would outlive it, and one may still answer."""
        if self._process is not None:
            for pid in (self._process.pid, *children_of(self._process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None

    @property
    def is_up(self) -> bool:
        return self._process is not None

    @contextmanager
    def standby(self) -> Iterator[PostgresServer]:
        """A copy that follows this server, which waits for it at each commit if it is told to."""
        folder = self.folder.with_name("standby")
        self.program("pg_basebackup", "-D", str(folder), "-R", "-c", "fast", "-d", self.url)
        other = PostgresServer(folder)
        other.start()
        try:
            yield other
        finally:
            other.kill()

    def promote(self) -> None:
        self.program("pg_ctl", "promote", "-w", "-D", str(self.folder))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """As a machine that hangs: the server and its sessions answer nothing."""
        assert self._process is not None
        pids = [self._process.pid, *_children(self._process.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_root() -> bool:
    return os.geteuid() == 0


def _user() -> int | None:
    return pwd.getpwnam("postgres").pw_uid if is_root() else None


def needed() -> None:
    """Skip the test without a server or its client."""
    if not PROGRAMS:
        pytest.skip(MISSING)
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip(NO_CLIENT)


@contextmanager
def running(**options: str) -> Iterator[PostgresServer]:
    needed()
    root = Path(tempfile.mkdtemp(prefix="postgres-"))  # the user postgres cannot enter pytest's own
    if (user := _user()) is not None:
        os.chown(root, user, -1)
    server = PostgresServer(root / "data", **options)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(root, ignore_errors=True)
