"""Connections to MCP servers over the official SDK: the only module that imports it.

A client of the SDK belongs to one task from its beginning to its end: left in another task it
raises nothing and spins a core for ever. So each connection has a keeper, which enters it, waits,
and leaves it. Deadlines stand around the SDK and not in it, and nobody waits for a session's end,
which the SDK shields. Bytes and messages are bounded before the SDK reads them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from trt_responses.frozen import dataclass
from trt_responses.tools.fetch_guard import GuardedTransport, Refused
from trt_responses.tools.mcp.servers import Local, Remote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from trt_responses.tools.fetch_guard import Reach

    Transport = AbstractAsyncContextManager[Any]

T = TypeVar("T")
logger = logging.getLogger(__name__)
for noisy in ("mcp", "client", "httpx2", "httpcore2"):  # they log URLs, and what servers say
    logging.getLogger(noisy).setLevel(logging.CRITICAL)

MOST_TOOLS = 2000
"""Of one server, before those that nobody wants are left out."""
STDIN_GRACE_S = 1.0
"""For a child to end by itself when its pipe is closed, and again when it is asked to."""
LEAVE_S = 1.0
"""For a session to be left, before its keeper is cancelled."""
CANCEL_S = 5.0
"""For a keeper that is cancelled to end."""
POLL_S = 0.02
PIECE = 64 * 1024
TIMED_OUT = -32001


class Fault(Exception):
    """Why a server gave no result: `kind` and `code` as the API's error has them."""

    def __init__(self, message: str, kind: str = "mcp_protocol_error", code: int = -32000) -> None:
        super().__init__(message)
        self.message, self.kind, self.code = message, kind, code


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server may take."""

    connect_s: float = 20.0
    """For a connection and the list of its tools."""
    call_s: float = 60.0
    max_bytes: int = 1024 * 1024
    """Of one message, and of all that comes between two requests."""
    max_messages: int = 1000
    """That come between two requests."""
    max_pages: int = 50
    max_tools: int = 128


class Listed(NamedTuple):
    """A tool as its server tells of it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None


class Result(NamedTuple):
    """What a call gave."""

    content: list[dict[str, Any]]
    structured: Any
    is_error: bool


class Meter:
    """What a server has sent since it was last asked for something."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = self._messages = 0
        self.fault: Fault | None = None

    def begin(self) -> None:
        self._bytes = self._messages = 0

    def take(self, size: int, messages: int) -> None:
        """Raises a `Fault` for more than is read."""
        self._bytes += size
        self._messages += messages
        if self._bytes > self._limits.max_bytes:
            what = f"more than {self._limits.max_bytes} bytes"
        elif self._messages > self._limits.max_messages:
            what = f"more than {self._limits.max_messages} messages"
        else:
            return
        self.fault = Fault(f"The server sent {what}, and was left.")
        raise self.fault


class Connection:
    """One client of one server. `end` it; whoever ends it need not wait."""

    def __init__(self, at: Remote | Local, limits: Limits, reach: Reach) -> None:
        self._limits = limits
        self._meter = Meter(limits)
        self._ending = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._work: set[asyncio.Task[Any]] = set()
        transport = _http(at, self._meter, reach) if isinstance(at, Remote) else None
        self._transport = transport or _pipes(at, self._meter, self._ending)  # type: ignore[arg-type]
        self._keeper = asyncio.create_task(self._keep())
        self._guard: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """It takes no more requests."""
        return self._ending.is_set() or self._keeper.done()

    @property
    def is_gone(self) -> bool:
        """Nothing of it is left."""
        return self._keeper.done()

    async def tools(self) -> list[Listed]:
        """All of the server's tools. Raises a `Fault`."""
        return await self._within(self._all_tools(), self._limits.connect_s)

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        """Raises a `Fault`. A cancelled call is not waited for, and the server is told."""
        return await self._within(self._call(name, arguments), self._limits.call_s)

    def end(self) -> None:
        """Leave the server; the keeper does so within some seconds. Idempotent."""
        if not self._ending.is_set():
            self._ending.set()
            for task in self._work:
                task.cancel()
            self._guard = asyncio.create_task(self._left())

    async def ended(self) -> None:
        """When nothing of it is left."""
        self.end()
        if self._guard is not None:
            await asyncio.wait((self._guard,))

    async def _left(self) -> None:
        if self._ready.done():
            await asyncio.wait((self._keeper,), timeout=LEAVE_S)
        if not self._keeper.done():  # of a server that was never reached there is none to leave
            self._keeper.cancel()
            await asyncio.wait((self._keeper,), timeout=CANCEL_S)

    async def _keep(self) -> None:
        """Enter, wait, leave: all in this task."""
        try:
            async with Client(self._transport, cache=None) as client:
                if not self._ready.done():
                    self._ready.set_result(client)
                await self._ending.wait()
        except asyncio.CancelledError:
            pass
        except BaseException as fault:  # an ExceptionGroup of whatever its transport raised
            if not self._ready.done():
                self._ready.set_exception(self._fault_of(fault))
                self._ready.exception()  # it may be that nobody asks
        finally:
            self._ending.set()
            if not self._ready.done():
                self._ready.cancel()

    async def _within(self, work: Coroutine[Any, Any, T], deadline_s: float) -> T:
        """The result, or a `Fault` at the deadline whatever the SDK is at."""
        self._meter.begin()
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        try:
            done, _ = await asyncio.wait(
                (task, self._keeper), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED
            )
            if task in done or task.done():
                return task.result()
            if not done:
                self.end()
                raise Fault(
                    f"The server gave no answer within {deadline_s:g} seconds.", code=-32001
                )
            raise self._meter.fault or Fault("The connection to the server is closed.")
        except asyncio.CancelledError:
            if task.cancelled():  # the connection was ended, and not whoever waits
                raise self._meter.fault or Fault("The server was left.") from None
            raise
        except Fault:
            raise
        except BaseException as fault:
            raise self._fault_of(fault) from None
        finally:
            task.cancel()
            if self._meter.fault is not None:
                self.end()

    async def _client(self) -> Client:
        return await asyncio.shield(self._ready)

    async def _all_tools(self) -> list[Listed]:
        client, cursor = await self._client(), None
        listed: list[Listed] = []
        for _ in range(self._limits.max_pages):
            page = await client.list_tools(cursor=cursor)
            listed += (_listed(tool) for tool in page.tools)
            if len(listed) > MOST_TOOLS:
                raise Fault(f"The server has more than {MOST_TOOLS} tools.")
            cursor = page.next_cursor
            if cursor is None:
                return listed
        raise Fault(f"The server's list has more than {self._limits.max_pages} pages.")

    async def _call(self, name: str, arguments: dict[str, Any]) -> Result:
        client = await self._client()
        result = await client.call_tool(name, arguments)
        content = [
            part.model_dump(by_alias=True, exclude_none=True, mode="json")
            for part in result.content
        ]
        return Result(content, result.structured_content, bool(result.is_error))

    def _fault_of(self, fault: BaseException) -> Fault:
        """In words that hold nothing of a URL or a header."""
        if self._meter.fault is not None:
            return self._meter.fault
        for one in _leaves(fault):
            if isinstance(one, Fault):
                return one
            if isinstance(one, Refused):
                return Fault(f"The server cannot be reached: {one}.", "http_error", 403)
            if isinstance(one, httpx2.HTTPStatusError):
                status = one.response.status_code
                return Fault(f"The server answered with status {status}.", "http_error", status)
            if isinstance(one, MCPError):
                return Fault(one.message[:1000], code=one.code)
            if isinstance(one, httpx2.TransportError):
                return Fault("The server cannot be reached.", "http_error", 502)
            if isinstance(one, OSError):
                return Fault(f"The server cannot be started: {one.strerror}.")
        return Fault(f"The server failed ({type(fault).__name__}).")


def _leaves(fault: BaseException) -> list[BaseException]:
    if isinstance(fault, BaseExceptionGroup):
        return [leaf for one in fault.exceptions for leaf in _leaves(one)]
    cause = fault.__cause__ or fault.__context__
    return [fault, *(_leaves(cause) if cause is not None else ())]


def _listed(tool: types.Tool) -> Listed:
    notes = tool.annotations
    told = None if notes is None else notes.model_dump(by_alias=True, exclude_none=True)
    return Listed(tool.name, tool.description or "", tool.input_schema, told)


# --- HTTP -----------------------------------------------------------------------------------------


class _Metered(httpx2.AsyncByteStream):
    """A reply's body, counted as it comes; others have their turn between its pieces."""

    def __init__(self, stream: httpx2.AsyncByteStream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._meter.take(len(piece), piece.count(b"\n\n") + piece.count(b"\n\r\n"))
            yield piece
            await asyncio.sleep(0)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _MeteredTransport(GuardedTransport):
    """Judges addresses, counts bytes, and takes nothing that is compressed."""

    def __init__(self, reach: Reach, meter: Meter) -> None:
        super().__init__(reach, keep_alive=True)
        self._meter = meter

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise Refused("it sends compressed bytes, which were not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Metered(response.stream, self._meter)
        return response


@asynccontextmanager
async def _http(at: Remote, meter: Meter, reach: Reach) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(10.0, read=None)
    transport = _MeteredTransport(reach, meter)
    async with (
        httpx2.AsyncClient(
            headers=dict(at.headers), timeout=timeout, transport=transport, trust_env=False
        ) as client,
        streamable_http_client(at.url, http_client=client) as streams,
    ):
        yield streams


# --- stdio ----------------------------------------------------------------------------------------


@asynccontextmanager
async def _pipes(at: Local, meter: Meter, ending: asyncio.Event) -> AsyncIterator[Any]:
    """A child in a process group of its own, which is ended as a whole as soon as it is `ending`:
    the SDK's last words to a child that does not read them would take seconds."""
    child = await asyncio.create_subprocess_exec(
        at.command,
        *at.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=get_default_environment() | dict(at.env),
        cwd=at.cwd,
        start_new_session=True,
    )
    said, told = anyio.create_memory_object_stream[Any](0)
    asked, asking = anyio.create_memory_object_stream[SessionMessage](0)
    with said, told, asked, asking:
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, child, said, meter)
            group.start_soon(_ask, child, asking)
            group.start_soon(_stop_at, ending, child, meter, group.cancel_scope)
            try:
                yield told, asked
            finally:
                ending.set()


async def _hear(child: asyncio.subprocess.Process, said: Any, meter: Meter) -> None:
    """Each line is a message. What is no message is an error of the session, as the SDK has it."""
    assert child.stdout is not None
    rest = b""
    async with said:
        while piece := await child.stdout.read(PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                try:
                    meter.take(len(piece), len(lines))
                except Fault:
                    return
                for line in lines:
                    if line.strip():
                        await said.send(_message(line))
            await asyncio.sleep(0)


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return Fault("The server wrote a line that is no message.")


async def _ask(child: asyncio.subprocess.Process, asking: Any) -> None:
    assert child.stdin is not None
    async with asking:
        async for message in asking:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            with suppress(ConnectionError, RuntimeError):
                child.stdin.write(line.encode() + b"\n")
                await child.stdin.drain()


async def _stop_at(
    ending: asyncio.Event, child: asyncio.subprocess.Process, meter: Meter, scope: anyio.CancelScope
) -> None:
    """End the child, whoever cancels what: `ending` is always set."""
    with anyio.CancelScope(shield=True):
        await ending.wait()
        await _stop(child, at_once=meter.fault is not None)
    scope.cancel()


async def _stop(child: asyncio.subprocess.Process, *, at_once: bool) -> None:
    """Close its pipe, ask it to end, end it; all of its group."""
    if child.stdin is not None:
        child.stdin.close()
    signals = (signal.SIGKILL,) if at_once else (None, signal.SIGTERM, signal.SIGKILL)
    for sign in signals:
        if sign is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, sign)
        if await _gone(child):
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # children of its own
    child._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way to close it


async def _gone(child: asyncio.subprocess.Process) -> bool:
    """Whether it has ended within its grace. `wait` would wait for whoever holds its pipes, too."""
    for _ in range(int(STDIN_GRACE_S / POLL_S)):
        if child.returncode is not None:
            return True
        await asyncio.sleep(POLL_S)
    return False
