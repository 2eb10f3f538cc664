"""One gRPC request: converts its messages to chunks. Also its handle.

One call and one sink: no other requests, no engine lifetime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from trt_responses.engine import Chunk, GenerateOptions, Loss, Sink
from trt_responses.engines.grpc.protocol import Fault, IdProtocol, fault_of
from trt_responses.engines.id_events import Ending, Part


class Request:
    """`on_over` is called once, before the last push, however the request ended; `on_abandoned` if
    its call is still open then; `judge` decides whether a failed call means a lost engine."""

    def __init__(
        self,
        name: str,
        options: GenerateOptions,
        left: int,
        sink: Sink,
        now_ns: Callable[[], int],
        on_over: Callable[[Request], None],
        on_abandoned: Callable[[Request], None],
        judge: Callable[[Fault], Awaitable[Loss | None]],
    ) -> None:
        self.name = name
        self.options = options
        self.call: Any = None
        """The call that streams its messages, once started."""
        self.over = False
        self.begun_ns = now_ns()
        self.last_step_ns = 0
        """The time of the last message, or 0."""
        self._left = left
        self._sink = sink
        self._now_ns = now_ns
        self._on_over = on_over
        self._on_abandoned = on_abandoned
        self._judge = judge
        self._last: Chunk | None = None
        """The last chunk, ended by its ids; it waits for the engine's own end message."""

    async def follow(self, protocol: IdProtocol) -> None:
        """Read the call's messages to its end, even after the request ended: leaving earlier makes
        the engine abort."""
        import grpc

        ending = Ending(self.options, self._left, protocol.ids)
        fault = Fault("UNKNOWN", "it ended the request without saying why")
        try:
            async for message in self.call:
                if not self.over:
                    self._take(protocol.read(message, ending.seen, self.options), ending)
        except asyncio.CancelledError:
            if not self.over:
                raise
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error)
        if not self.over:
            await self._fail(fault)

    def abort(self) -> None:
        if not self.over:
            self._leave()
            self._abandon()

    def break_off(self, reason: str, lost: Loss | None = None) -> None:
        """End the request with an error, and the call with it."""
        if not self.over:
            self.end(Chunk(finish="error", error=reason, lost=lost))
            self._abandon()

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless the request is over already."""
        if not self.over:
            self._leave()
            self._sink.push(chunk)

    def _take(self, part: Part, ending: Ending) -> None:
        """Push new ids. If they end the request, wait for the engine's end message."""
        self.last_step_ns = self._now_ns()
        if self._last is None:
            chunk = ending.cut(part)
            if chunk.finish is not None:
                self._last = chunk
            elif chunk.token_ids:
                self._sink.push(ending.with_cached(chunk, part))
        if self._last is not None and part.end is not None:
            self.end(ending.with_cached(self._last, part))

    async def _fail(self, fault: Fault) -> None:
        if self._last is not None:  # its ids ended the request
            self.end(self._last)
        elif (refusal := fault.refusal) is not None:
            self.end(Chunk(finish="error", error=refusal.message, refusal=refusal))
        else:
            lost = await self._judge(fault)
            self.break_off(f"The engine failed: {fault}.", lost)

    def _leave(self) -> None:
        self.over = True
        self._on_over(self)

    def _abandon(self) -> None:
        if self.call is not None and not self.call.done():
            self._on_abandoned(self)
