"""A bounded set of connections to a PostgreSQL server, which is left when it fails.

Each call is one statement and so one transaction: it works behind a pooler that gives every
transaction another connection. No prepared statements and no session state, for the same reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import errors as faults
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict

from trt_responses.errors import ApiError, StoreUnavailable

T = TypeVar("T")

CONNECT_S = 2
LOOK_S = 1.0
"""Seconds after which psycopg looks again at a connection that is silent. Its default here is 0: it
would look all the time."""
RETRY_AFTER_S = 5
PARAMETERS: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "trt-responses",
}
"""What a URL may set otherwise."""
LEFT = (psycopg.OperationalError, psycopg.InterfaceError, faults.ReadOnlySqlTransaction)
"""After these the server may be another one, or be reached in another way."""
FULL = (faults.DiskFull, faults.OutOfMemory)
"""After these the connection is as good as before: a server that is full may refuse a new one."""
UNREACHABLE = (
    "The store's PostgreSQL server is unreachable; requests with `store: false` still work."
)
READ_ONLY = "The store's PostgreSQL server is read-only."


class Connection(psycopg.AsyncConnection[Any]):
    """A connection that is closed when a call of it is cancelled. Psycopg's own would ask the
    server to cancel the statement and wait for it, which a server that hangs never does."""

    async def wait(
        self,
        gen: Any,
        interval: float = LOOK_S,
        timeout: float | None = None,  # noqa: ASYNC109  # psycopg's own signature
    ) -> Any:
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval, timeout)
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise


class Connections:
    """Connections that are opened when they are needed, at most so many at once."""

    def __init__(self, url: str, most: int, answer_s: float) -> None:
        self._parameters = PARAMETERS | conninfo_to_dict(url)
        self._answer_s = answer_s
        self._free = asyncio.Semaphore(most)
        self._idle: list[Connection] = []

    async def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement. Repeats it once, on a new connection, after a failure of the
        server, for which it must be safe to repeat."""
        async with self._bounded():
            try:
                return await self._rows(statement, values)
            except FULL:
                raise
            except LEFT:
                await self.close()
                return await self._rows(statement, values)

    async def at_once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The result of some statements in one transaction, on a connection of their own."""
        async with self._bounded(), await self.connect() as connection, connection.transaction():
            return await work(connection)

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """A place among the connections. Errors of the server become those of the store."""
        try:
            async with asyncio.timeout(self._answer_s), self._free:
                yield
        except FULL:
            raise StoreUnavailable(
                "The store's PostgreSQL server is full.", retry_after_s=RETRY_AFTER_S
            ) from None
        except faults.ReadOnlySqlTransaction:
            raise StoreUnavailable(READ_ONLY, retry_after_s=RETRY_AFTER_S) from None
        except (TimeoutError, OSError, psycopg.OperationalError, psycopg.InterfaceError):
            raise StoreUnavailable(UNREACHABLE, retry_after_s=RETRY_AFTER_S) from None
        except psycopg.Error as error:
            raise ApiError(f"The store failed: {first_line(error)}.") from None

    async def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            await _closed(self._idle.pop())

    async def _rows(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        connection = self._idle.pop() if self._idle else await self.connect()
        is_whole = False
        try:
            cursor = await connection.execute(statement, values, binary=True)
            rows: list[tuple[Any, ...]] = await cursor.fetchall()
            is_whole = True
        except psycopg.Error as error:
            is_whole = isinstance(error, FULL) or not isinstance(error, LEFT)
            raise
        finally:
            if is_whole and not connection.closed:
                self._idle.append(connection)
            else:  # a call was cancelled, or the server failed
                await _closed(connection)
        return rows

    async def connect(self) -> Connection:
        """A new connection."""
        return await Connection.connect(**self._parameters, autocommit=True, prepare_threshold=None)


async def _closed(connection: Connection) -> None:
    with suppress(psycopg.Error, OSError):
        await connection.close()


def first_line(error: Exception) -> str:
    """The error's first line, without a full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
