"""The formats of the store's tables: a server's start brings them up to its own, and a command
takes them back for an older server.

`format_N.sql` leads from the format before to N, `format_N_back.sql` back again.
"""

from __future__ import annotations

import asyncio
from importlib.resources import files

from trt_responses.errors import StartupError
from trt_responses.stores.postgres.connections import Connection
from trt_responses.stores.postgres.objects import MARK, Objects

FORMAT = 2
LOOKS, LOOK_S = 20, 0.1
"""How often, and how many seconds apart, migration looks whether all servers have gone."""
ALONE = "SELECT pg_advisory_xact_lock(29297, 0)"
OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = current_setting('application_name') AND pid <> pg_backend_pid()"
)
PUT = "SELECT prosrc FROM pg_proc WHERE oid = to_regproc('trt_responses.put')"
OUTSIDE = "SELECT n, data FROM trt_responses.blocks WHERE substr(data, 1, 4) = %s LIMIT 20"


async def upgraded(connection: Connection, where: str) -> None:
    """Create the tables or bring them up to `FORMAT`, in a transaction. Raises a `StartupError` for
    a later format."""
    async with connection.transaction():
        await connection.execute(ALONE)
        found = await connection.execute("SELECT to_regclass('trt_responses.format')::text")
        if await found.fetchone() == (None,):
            await connection.execute("CREATE SCHEMA IF NOT EXISTS trt_responses")
            await connection.execute("CREATE TABLE trt_responses.format (version int NOT NULL)")
            await _run(connection, "schema")
            await connection.execute("INSERT INTO trt_responses.format VALUES (1)")
        version = await _version(connection)
        if version > FORMAT:
            raise StartupError(
                f"The store on {where} has format {version}, and this server supports {FORMAT}: "
                f"run `trt-responses migrate --to {FORMAT}` of the newer server, or upgrade."
            )
        for number in range(version + 1, FORMAT + 1):
            await _run(connection, f"format_{number}")
        found = await connection.execute(PUT)
        if (stored := await found.fetchone()) is None or stored[0] not in _sql("put"):
            await _run(connection, "put")  # by the owner of the tables alone
        await connection.execute("UPDATE trt_responses.format SET version = %s", [FORMAT])


async def reverted(connection: Connection, to: int, objects: Objects | None) -> None:
    """Take the tables back to an earlier format. Raises a `StartupError`, and changes nothing, if
    that cannot be done."""
    if not 1 <= to <= FORMAT:
        raise StartupError(f"This server knows the formats 1 to {FORMAT} of PostgreSQL, not {to}.")
    for _ in range(LOOKS):  # a server that has just stopped may still be listed
        found = await connection.execute(OTHERS)
        if (await found.fetchone()) == (0,):
            break
        await asyncio.sleep(LOOK_S)
    else:
        raise StartupError("Servers are connected to the store: stop them first.")
    if to < 2:
        await _fetched(connection, objects)
    async with connection.transaction():
        await connection.execute(ALONE)
        for number in range(await _version(connection), to, -1):
            await _run(connection, f"format_{number}_back")
        await connection.execute("UPDATE trt_responses.format SET version = %s", [to])


async def _fetched(connection: Connection, objects: Objects | None) -> None:
    """Put the content of all objects into the database, and delete them."""
    while True:
        rows = await (await connection.execute(OUTSIDE, [MARK])).fetchall()
        if not rows:
            break
        if objects is None:
            raise StartupError("Blocks are in an object store: name it in the store's URL.")
        for n, data in rows:
            content = await objects.inside(data)
            change = "UPDATE trt_responses.blocks SET data = %s WHERE n = %s"
            await connection.execute(change, [content, n])
    if objects is not None:
        await objects.collect(0.0)


async def _version(connection: Connection) -> int:
    found = await connection.execute("SELECT version FROM trt_responses.format")
    (version,) = await found.fetchone() or (0,)
    return int(version)


async def _run(connection: Connection, name: str) -> None:
    await connection.execute(_sql(name).encode())


def _sql(name: str) -> str:
    return files("trt_responses.stores.postgres").joinpath(f"{name}.sql").read_text("utf-8")
