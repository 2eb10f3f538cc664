"""Connections to MCP servers over the official SDK; only this module imports it.

An SDK client must be entered and left in one task: left in another task it raises nothing and spins
forever. So each connection has a keeper task that enters the client, waits, and leaves it.
Deadlines apply around the SDK, and callers never wait for a session's end, which the SDK shields.
Bytes and messages are limited before the SDK reads them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from trt_responses.tools.fetch_guard import Reach, Refused
from trt_responses.tools.mcp.http import MeteredTransport
from trt_responses.tools.mcp.limits import Fault, Limits, Meter
from trt_responses.tools.mcp.process import ServerProcess
from trt_responses.tools.mcp.servers import Local, Remote
from trt_responses.tools.mcp.words import WHOLE, Listed, Result

Transport = AbstractAsyncContextManager[Any]

T = TypeVar("T")
logger = logging.getLogger(__name__)
for noisy in ("mcp", "client", "httpx2", "httpcore2"):  # they log URLs, and what servers say
    logging.getLogger(noisy).setLevel(logging.CRITICAL)

MOST_TOOLS = 2000
"""Maximum tools of one server, before filtering."""
LEAVE_S = 1.0
"""Time to leave a session before its keeper is cancelled."""
CANCEL_S = 5.0
"""Time for a cancelled keeper to end."""
TIMED_OUT, TOO_MUCH = -32001, -32002
MORE_TOOLS = f"The server has more than {MOST_TOOLS} tools."
MOST_PARTS = {
    "content": (1000, "The server sent a result of more than 1000 parts."),
    "tools": (MOST_TOOLS, MORE_TOOLS),
}
"""Maximum lengths of lists in one reply, and the error for longer ones. 1,000 parts take 10 ms."""
UNREADABLE = types.ErrorData(code=-32700, message="The server wrote a reply that cannot be read.")
STAND_INS = ("Server returned an error response", "Not Found", "Session terminated")
"""The SDK's messages instead of an HTTP status. For a redirect its message is the target, which may
contain a secret."""


class Connection:
    """A client of one server. The caller must `end` it, and need not wait."""

    def __init__(self, at: Remote | Local, limits: Limits, reach: Reach) -> None:
        self._limits = limits
        self._meter = Meter(limits)
        self._ending = asyncio.Event()
        self._is_left = False
        """Whether it ends with its last request."""
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
        """Whether it accepts no more requests."""
        return self._is_left or self._ending.is_set() or self._keeper.done()

    @property
    def is_process(self) -> bool:
        """Whether its server is a child process."""
        return self._wire is None

    @property
    def is_gone(self) -> bool:
        """Whether it has ended completely."""
        return self._keeper.done()

    def when_gone(self, call: Callable[[Connection], object]) -> None:
        """Call a function once it has ended completely."""
        self._keeper.add_done_callback(lambda _: call(self))

    async def tools(self) -> list[Listed]:
        """All of the server's tools. Raises a `Fault`."""
        return await self._within(self._all_tools(), self._limits.connect_s)

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        """The result of a call. Raises a `Fault`. Cancelling it notifies the server and does not
        wait."""
        return await self._within(self._call(name, arguments), self._limits.call_s)

    def end(self) -> None:
        """Disconnect; the keeper does so within seconds. Idempotent."""
        self._ending.set()
        if self._guard is None:
            for task in self._work:
                task.cancel()
            self._guard = asyncio.create_task(self._left())

    async def ended(self) -> None:
        """End it and wait until it has ended completely."""
        self.end()
        if self._guard is not None:
            await asyncio.wait((self._guard,))

    async def _left(self) -> None:
        if self._ready.done():
            await asyncio.wait((self._keeper,), timeout=LEAVE_S)
        if not self._keeper.done():  # a server that was never reached has no session to leave
            self._keeper.cancel()
            await asyncio.wait((self._keeper,), timeout=CANCEL_S)

    async def _keep(self) -> None:
        """Enter the client, wait, and leave it, all in this task."""
        try:
            async with Client(self._transport, cache=None) as client:
                client.session.validate_tool_result = _accept  # type: ignore[method-assign]
                if not self._ready.done():
                    self._ready.set_result(client)
                await self._ending.wait()
        except asyncio.CancelledError:
            pass
        except BaseException as fault:  # an ExceptionGroup from the transport
            if not self._ready.done():
                self._ready.set_exception(self._fault_of(fault))
                self._ready.exception()  # mark it retrieved: there may be no waiter
        finally:
            self._ending.set()
            if not self._ready.done():
                self._ready.cancel()

    async def _within(self, work: Coroutine[Any, Any, T], deadline_s: float) -> T:
        """The result of the work. Raises a `Fault` at the deadline, whatever the SDK does."""
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
                self._is_left = True
                words = f"The server gave no answer within {deadline_s:g} seconds."
                raise Fault(words, code=TIMED_OUT)
            raise self._meter.fault or Fault("Connection closed")
        except asyncio.CancelledError:
            if task.cancelled():  # the connection was ended, not the caller
                raise self._meter.fault or Fault("The server was disconnected.") from None
            raise
        except Fault:
            raise
        except BaseException as fault:
            raise self._fault_of(fault) from None
        finally:
            task.cancel()
            if self._wire is not None and self._wire.refused_with == 404:
                self._is_left = True  # the session has expired
            if self._meter.fault is not None or (self._is_left and self._work <= {task}):
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
        try:  # as the SDK does, which would end the connection
            types.CallToolRequestParams(name=name, arguments=arguments).model_dump_json()
        except ValueError:
            words = "The arguments cannot be sent: half a character, or nested too deep."
            raise Fault(words, code=-32602) from None
        result = await client.call_tool(name, arguments)
        content = [
            part.model_dump(by_alias=True, exclude_none=True, mode="json")
            for part in result.content
        ]
        return Result(content, result.structured_content, bool(result.is_error))

    def _fault_of(self, fault: BaseException) -> Fault:
        """The fault with a message that contains no URL and no header."""
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
                if one.message.startswith("Failed to parse"):  # with what was sent
                    return Fault(UNREADABLE.message, code=UNREADABLE.code)
                return Fault(one.message[:1000], code=one.code if one.code in WHOLE else -32000)
            if isinstance(one, httpx2.TransportError):
                return Fault("The server cannot be reached.", "http_error", 502)
            if isinstance(one, OSError):
                return Fault(f"The server cannot be started: {one.strerror}.")
            if isinstance(one, ValidationError):
                return _misread(one)
        return Fault(f"The server failed ({type(fault).__name__}).")


async def _accept(name: str, result: types.CallToolResult) -> None:
    """Accepts any result: the SDK would list the tools again, and could match a server's pattern
    for hours without a pause."""


def _refused_with(status: int) -> Fault:
    return Fault(f"The server answered with status {status}.", "http_error", status)


def _misread(fault: ValidationError) -> Fault:
    """The fault of an invalid answer: its place, without its content."""
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return Fault(f"The server's answer is not valid MCP: {place:.200}: {first['msg']:.200}.")


def _leaves(fault: BaseException) -> list[BaseException]:
    if isinstance(fault, BaseExceptionGroup):
        return [leaf for one in fault.exceptions for leaf in _leaves(one)]
    cause = fault.__cause__ or fault.__context__
    return [fault, *(_leaves(cause) if cause is not None else ())]


def _listed(tool: types.Tool) -> Listed:
    notes = tool.annotations
    annotations = None if notes is None else notes.model_dump(by_alias=True, exclude_none=True)
    return Listed(tool.name, tool.description or "", tool.input_schema, annotations)


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
                group.start_soon(_relay, received, given, transport.meter)
                try:
                    yield read, asking
                finally:
                    group.cancel_scope.cancel()


async def _relay(received: Any, given: Any, meter: Meter) -> None:
    """Count and limit messages that the SDK parsed from HTTP before it processes them."""
    async with given:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, Fault):
            async for message in received:
                meter.take(0, 1)
                if isinstance(message, SessionMessage):
                    message.message = _bounded(message.message)
                await given.send(message)


@asynccontextmanager
async def _pipes(at: Local, meter: Meter, ending: asyncio.Event) -> AsyncIterator[Any]:
    """The streams of a child, which is stopped once `ending` is set: the SDK's last messages to a
    child that does not read would take seconds."""
    child = await ServerProcess.begin(at, get_default_environment())
    incoming, to_sdk = anyio.create_memory_object_stream[Any](0)
    from_sdk, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    waiting = set[Any]()
    with incoming, to_sdk, from_sdk, outgoing:
        async with anyio.create_task_group() as group:
            group.start_soon(_receive, child, incoming, meter, ending, waiting)
            group.start_soon(_send_messages, child, outgoing, waiting)
            group.start_soon(_stop_at, ending, child, meter, group.cancel_scope)
            try:
                yield to_sdk, from_sdk
            finally:
                ending.set()


async def _receive(
    child: ServerProcess, incoming: Any, meter: Meter, ending: asyncio.Event, waiting: set[Any]
) -> None:
    """Pass each line on as a message; set `ending` at the end of the child's output."""
    async with incoming:
        with suppress(Fault):  # the meter keeps it
            async for line in child.lines(meter):
                for message in messages(line, waiting):
                    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await incoming.send(SessionMessage(message))
    ending.set()


def messages(line: bytes, waiting: set[Any]) -> Sequence[types.JSONRPCMessage]:
    """The messages of a line. An unreadable reply becomes an error for the request with its id, or
    for all `waiting` ones. Other lines are logs."""
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
    """The message, or an error instead of a reply with too many parts or tools: the SDK takes
    microseconds for each, without a pause."""
    if isinstance(message, types.JSONRPCResponse):
        for name, (most, words) in MOST_PARTS.items():
            parts = message.result.get(name)
            if isinstance(parts, list) and len(parts) > most:
                error = types.ErrorData(code=TOO_MUCH, message=words)
                return types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    return message


def _answered(line: bytes, waiting: set[Any]) -> set[Any]:
    """The waiting requests that an unreadable line may answer."""
    try:
        reply = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return set(waiting) if b'"jsonrpc"' in line or line.lstrip().startswith(b"{") else set()
    number = reply.get("id") if isinstance(reply, dict) else None
    return {one for one in waiting if one == number}


async def _send_messages(child: ServerProcess, outgoing: Any, waiting: set[Any]) -> None:
    async with outgoing:
        async for message in outgoing:
            if isinstance(message.message, types.JSONRPCRequest):
                waiting.add(message.message.id)
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await child.write(line.encode())


async def _stop_at(
    ending: asyncio.Event, child: ServerProcess, meter: Meter, scope: anyio.CancelScope
) -> None:
    """Stop the child once `ending` is set, even if this task is cancelled."""
    with anyio.CancelScope(shield=True):
        await ending.wait()
        await child.stop(at_once=meter.fault is not None)
    scope.cancel()
