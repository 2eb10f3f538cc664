"""One gRPC request: converts its messages to chunks. Also its handle.

One call and one sink: no other requests, no engine lifetime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from trt_responses.engine import Chunk, Finish, GenerateOptions, Loss, Sink
from trt_responses.engines.grpc.protocol import Fault, IdProtocol, Part, fault_of

FINISHES: Mapping[str, Finish] = {"stop": "stop", "length": "length"}


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
        self._stops: frozenset[int] = frozenset()
        self._seen = 0
        self._cached_sent = False
        self._last: Chunk | None = None
        """The last chunk, ended by its ids; it waits for the engine's own end message."""

    async def follow(self, protocol: IdProtocol) -> None:
        """Read the call's messages to its end, even after the request ended: leaving earlier makes
        the engine abort."""
        import grpc

        self._stops = frozenset(protocol.stops_of(self.options))
        fault = Fault("UNKNOWN", "it ended the request without saying why")
        try:
            async for message in self.call:
                if not self.over:
                    self._take(protocol.read(message, self._seen, self.options))
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

    def _take(self, part: Part) -> None:
        """Push new ids. If they end the request, wait for the engine's end message."""
        self.last_step_ns = self._now_ns()
        if self._last is None:
            ids, finish, stop_id = self._cut(part.token_ids)
            error = None
            if finish is None and part.end is not None:
                finish = FINISHES.get(part.end, "error")
                error = f"The engine ended the request: {part.end}." if finish == "error" else None
            chunk = Chunk(ids, part.logprobs[: len(ids)], None, finish, stop_id, error)
            if finish is not None:
                self._last = chunk
            elif ids:
                self._sink.push(self._with_cached(chunk, part))
        if self._last is not None and part.end is not None:
            self.end(self._with_cached(self._last, part))

    def _cut(self, token_ids: Sequence[int]) -> tuple[Sequence[int], Finish | None, int | None]:
        """The ids up to the end of the request, the finish, and the stop id."""
        ids = token_ids[: self._left - self._seen]
        finish: Finish | None = None
        stop_id = next((token_id for token_id in ids if token_id in self._stops), None)
        if stop_id is not None:
            ids, finish = ids[: ids.index(stop_id) + 1], "stop"
        self._seen += len(ids)
        if finish is None and self._seen == self._left:
            finish = "length"
        return ids, finish, stop_id

    def _with_cached(self, chunk: Chunk, part: Part) -> Chunk:
        """The chunk with the number of cached ids, which is sent once."""
        if self._cached_sent or part.cached_tokens is None:
            return chunk
        self._cached_sent = True
        return chunk._replace(cached_tokens=part.cached_tokens)

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
