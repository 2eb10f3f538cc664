"""Connections to MCP servers over the official SDK: the only module that imports it.

A client of the SDK belongs to one task from its beginning to its end: left in another task it
raises nothing and spins a core for ever. So each connection has a keeper, which enters it, waits,
and leaves it. Deadlines stand around the SDK and not in it, and nobody waits for a session's end,
which the SDK shields. Bytes and messages are bounded before the SDK reads them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from trt_responses.tools.fetch_guard import Refused
from trt_responses.tools.mcp.http import MeteredTransport
from trt_responses.tools.mcp.limits import Fault, Meter
from trt_responses.tools.mcp.process import ServerProcess
from trt_responses.tools.mcp.servers import Local, Remote
from trt_responses.tools.mcp.words import Listed, Result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from trt_responses.tools.fetch_guard import Reach
    from trt_responses.tools.mcp.limits import Limits

    Transport = AbstractAsyncContextManager[Any]

T = TypeVar("T")
logger = logging.getLogger(__name__)
for noisy in ("mcp", "client", "httpx2", "httpcore2"):  # they log URLs, and what servers say
    logging.getLogger(noisy).setLevel(logging.CRITICAL)

MOST_TOOLS = 2000
"""Of one server, before those that nobody wants are left out."""
LEAVE_S = 1.0
"""For a session to be left, before its keeper is cancelled."""
CANCEL_S = 5.0
"""For a keeper that is cancelled to end."""
TIMED_OUT, TOO_MUCH = -32001, -32002
MORE_TOOLS = f"The server has more than {MOST_TOOLS} tools."
MOST_PARTS = {
    "content": (1000, "The server sent a result of more than 1000 parts."),
    "tools": (MOST_TOOLS, MORE_TOOLS),
}
"""The longest lists in one reply, and what is wrong with a longer one: 1,000 parts take 10 ms."""
UNREADABLE = types.ErrorData(code=-32700, message="The server wrote a reply that cannot be read.")
STAND_INS = ("Server returned an error response", "Not Found", "Session terminated")
"""What the SDK says in the place of an HTTP status. Of a redirect it says the target, in which a
secret may stand."""


class Connection:
    """One client of one server. `end` it; whoever ends it need not wait."""

    def __init__(self, at: Remote | Local, limits: Limits, reach: Reach) -> None:
        self._limits = limits
        self._meter = Meter(limits)
        self._ending = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._work: set[asyncio.Task[Any]] = set()
        self._wire: MeteredTransport | None = None
        self._transport: Transport
        if isinstance(at, Remote):
            self._wire = MeteredTransport(reach, self._meter)
            self._transport = _http(at, self._wire)
        else:
            self._transport = _pipes(at, self._meter, self._ending)
        self._keeper = asyncio.create_task(self._keep())
        self._guard: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether it takes no more requests."""
        return self._ending.is_set() or self._keeper.done()

    @property
    def is_process(self) -> bool:
        """Whether its server is a child process."""
        return self._wire is None

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left."""
        return self._keeper.done()

    async def tools(self) -> list[Listed]:
        """All of the server's tools. Raises a `Fault`."""
        return await self._within(self._all_tools(), self._limits.connect_s)

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        """Raises a `Fault`. A cancelled call is not waited for, and the server is told."""
        return await self._within(self._call(name, arguments), self._limits.call_s)

    def end(self) -> None:
        """Leave the server; the keeper does so within some seconds. Idempotent."""
        self._ending.set()
        if self._guard is None:
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
                words = f"The server gave no answer within {deadline_s:g} seconds."
                raise Fault(words, code=TIMED_OUT)
            raise self._meter.fault or Fault("Connection closed")
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
                raise Fault(MORE_TOOLS)
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
        """The fault, in words that hold nothing of a URL or a header."""
        if self._meter.fault is not None:
            return self._meter.fault
        for one in _leaves(fault):
            if isinstance(one, Fault):
                return one
            if isinstance(one, Refused):
                return Fault(f"The server cannot be reached: {one}.", "http_error", 403)
            if isinstance(one, httpx2.HTTPStatusError):
                return _refused_with(one.response.status_code)
            if isinstance(one, MCPError):
                status = self._wire.refused_with if self._wire is not None else None
                if status is not None and (status < 400 or one.message in STAND_INS):
                    return _refused_with(status)
                return Fault(one.message[:1000], code=one.code)
            if isinstance(one, httpx2.TransportError):
                return Fault("The server cannot be reached.", "http_error", 502)
            if isinstance(one, OSError):
                return Fault(f"The server cannot be started: {one.strerror}.")
            if isinstance(one, ValidationError):
                return _misread(one)
        return Fault(f"The server failed ({type(fault).__name__}).")


def _refused_with(status: int) -> Fault:
    return Fault(f"The server answered with status {status}.", "http_error", status)


def _misread(fault: ValidationError) -> Fault:
    """Of an answer that is not as the protocol has it: where, and nothing of what stands there."""
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return Fault(f"The server's answer is not as MCP has it: {place:.200}: {first['msg']:.200}.")


def _leaves(fault: BaseException) -> list[BaseException]:
    if isinstance(fault, BaseExceptionGroup):
        return [leaf for one in fault.exceptions for leaf in _leaves(one)]
    cause = fault.__cause__ or fault.__context__
    return [fault, *(_leaves(cause) if cause is not None else ())]


def _listed(tool: types.Tool) -> Listed:
    notes = tool.annotations
    told = None if notes is None else notes.model_dump(by_alias=True, exclude_none=True)
    return Listed(tool.name, tool.description or "", tool.input_schema, told)


# --- the two transports ---------------------------------------------------------------------------


@asynccontextmanager
async def _http(at: Remote, transport: MeteredTransport) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(10.0, read=None)
    async with (
        httpx2.AsyncClient(
            headers=dict(at.headers), timeout=timeout, transport=transport, trust_env=False
        ) as client,
        streamable_http_client(at.url, http_client=client) as (received, asking),
    ):
        given, read = anyio.create_memory_object_stream[Any](0)
        with given, read:
            async with anyio.create_task_group() as group:
                group.start_soon(_relay, received, given)
                try:
                    yield read, asking
                finally:
                    group.cancel_scope.cancel()


async def _relay(received: Any, given: Any) -> None:
    """Bound what the SDK has parsed of HTTP before it looks at it."""
    async with given:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async for message in received:
                if isinstance(message, SessionMessage):
                    message.message = _bounded(message.message)
                await given.send(message)


@asynccontextmanager
async def _pipes(at: Local, meter: Meter, ending: asyncio.Event) -> AsyncIterator[Any]:
    """A child, which is stopped as soon as it is `ending`: the SDK's last words to one that does
    not read them would take seconds."""
    child = await ServerProcess.begin(at, get_default_environment())
    said, told = anyio.create_memory_object_stream[Any](0)
    asked, asking = anyio.create_memory_object_stream[SessionMessage](0)
    waiting = set[Any]()
    with said, told, asked, asking:
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, child, said, meter, ending, waiting)
            group.start_soon(_ask, child, asking, waiting)
            group.start_soon(_stop_at, ending, child, meter, group.cancel_scope)
            try:
                yield told, asked
            finally:
                ending.set()


async def _hear(
    child: ServerProcess, said: Any, meter: Meter, ending: asyncio.Event, waiting: set[Any]
) -> None:
    """Each line is a message. A child that says no more is left."""
    async with said:
        with suppress(Fault):  # the meter has it
            async for line in child.lines(meter):
                for message in messages(line, waiting):
                    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await said.send(SessionMessage(message))
    ending.set()


def messages(line: bytes, waiting: set[Any]) -> Sequence[types.JSONRPCMessage]:
    """The message of a line. A reply that cannot be read is an error for the request that it
    answers, by its id, or for all that are `waiting`. Other lines are logs."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        answered, error = _answered(line, waiting), UNREADABLE
    else:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            waiting.discard(message.id)
        if not isinstance(message, types.JSONRPCError) or message.id is not None:
            return (_bounded(message),)
        answered, error = set(waiting), message.error
    waiting -= answered
    return [types.JSONRPCError(jsonrpc="2.0", id=one, error=error) for one in answered]


def _bounded(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
    """The message, or an error in its place for a reply of more parts or tools than the SDK may
    look at: it takes some microseconds for each, in one piece."""
    if isinstance(message, types.JSONRPCResponse):
        for name, (most, words) in MOST_PARTS.items():
            parts = message.result.get(name)
            if isinstance(parts, list) and len(parts) > most:
                error = types.ErrorData(code=TOO_MUCH, message=words)
                return types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    return message


def _answered(line: bytes, waiting: set[Any]) -> set[Any]:
    """The waiting requests that a line may answer which is no message."""
    try:
        told = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return set(waiting) if b'"jsonrpc"' in line or line.lstrip().startswith(b"{") else set()
    number = told.get("id") if isinstance(told, dict) else None
    return {one for one in waiting if one == number}


async def _ask(child: ServerProcess, asking: Any, waiting: set[Any]) -> None:
    async with asking:
        async for message in asking:
            if isinstance(message.message, types.JSONRPCRequest):
                waiting.add(message.message.id)
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await child.write(line.encode())


async def _stop_at(
    ending: asyncio.Event, child: ServerProcess, meter: Meter, scope: anyio.CancelScope
) -> None:
    """Stop the child, whoever cancels what: `ending` is always set."""
    with anyio.CancelScope(shield=True):
        await ending.wait()
        await child.stop(at_once=meter.fault is not None)
    scope.cancel()
