"""One request to the embedded engine, with the ids so far. Also its handle.

It outlives the child that runs it: another child resumes where the first one stopped. No bytes and
no other requests here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trt_responses.engine import Chunk, GenerateOptions, Loss, Sink
from trt_responses.engines.http_stream import Stream
from trt_responses.engines.llamacpp import body
from trt_responses.engines.llamacpp.body import HARMONY, Words
from trt_responses.engines.llamacpp.events import Events, fault
from trt_responses.engines.llamacpp.process import Child
from trt_responses.engines.slots import Slot
from trt_responses.errors import EngineLost


class Request:
    """`on_over` is called once, before the last push; `on_begun` after each child's first push of
    ids; `on_broken` with a reason when a child breaks the connection before the request is over."""

    def __init__(
        self,
        prompt_ids: Sequence[int],
        options: GenerateOptions,
        words: Words,
        sink: Sink,
        *,
        on_over: Callable[[Request], None],
        on_begun: Callable[[Request], None],
        on_broken: Callable[[Request, str], None],
        stops: frozenset[int] = HARMONY.stops,
    ) -> None:
        self.prompt_ids = prompt_ids
        self.options = options
        self.slot: Slot | None = None
        """The slot in the current child; None while no child has the request."""
        self.ready: asyncio.Task[None] | None = None
        """What changes the slot before the request starts in it."""
        self.ids: list[int] = []
        """All pushed ids, from any child."""
        self.over = False
        self.answered = False
        self.silent = True
        """Whether the current child has returned no id yet."""
        self.stalled = False
        """Whether a child returned nothing for too long."""
        self._words = words
        self._stops = stops
        self._sink = sink
        self._on_over = on_over
        self._on_begun = on_begun
        self._on_broken = on_broken
        self._stream: Stream | None = None
        self._begun_ns = 0
        self._before = 0

    @property
    def can_go_on(self) -> bool:
        """Whether another child can resume the request: a guide cannot be entered half-way."""
        return not self.ids or self.options.guide is None

    @property
    def is_full(self) -> bool:
        """Whether it has its maximum of ids, although its child died before reporting the end."""
        return bool(self.ids) and self._words["n_predict"] == len(self.ids)

    @property
    def read_ids(self) -> Sequence[int]:
        """The ids for the next child to read: the prompt and all pushed ids."""
        return [*self.prompt_ids, *self.ids] if self.ids else self.prompt_ids

    @property
    def lora(self) -> object:
        """The adapters for llama.cpp; None if it has none."""
        return self._words.get("lora")

    @property
    def given_ids(self) -> Sequence[int]:
        """The ids from the current child."""
        return self.ids[self._before :]

    @property
    def last_byte_ns(self) -> int:
        """The time of the last byte from the current child, or 0."""
        return 0 if self.waits_since_ns == self._begun_ns else self.waits_since_ns

    @property
    def waits_since_ns(self) -> int:
        """The time of the last byte, or of the start."""
        return 0 if self._stream is None else self._stream.last_byte_ns

    def connect(
        self, child: Child, slot: Slot, ready: asyncio.Task[None] | None = None
    ) -> asyncio.Task[None]:
        """Run the request on a child in this slot, from its current ids, once the slot is ready."""
        self.slot = slot
        self.ready = ready
        self.silent = True
        self._before = len(self.ids)
        events = Events(self.options, self._stops)
        self._stream = Stream(events.feed, fault, self._push, self._break)
        self._begun_ns = self._stream.last_byte_ns
        if ready is None:
            return self._send(child, slot, self._stream)
        return asyncio.create_task(self._send_later(child, slot, self._stream, ready))

    async def _send_later(
        self, child: Child, slot: Slot, stream: Stream, ready: asyncio.Task[None]
    ) -> None:
        await asyncio.wait((ready,))
        if self._stream is stream and self.slot is slot:  # else it was interrupted meanwhile
            await self._send(child, slot, stream)

    def _send(self, child: Child, slot: Slot, stream: Stream) -> asyncio.Task[None]:
        words = body.resumed(self._words, self.ids) if self.ids else self._words
        content, key = body.body(words, slot), f"Authorization: Bearer {child.api_key}"
        return stream.connect(child.host, child.port, child.path, content, key)

    def abort(self) -> None:
        if not self.over:
            self._leave()

    def fail(self, reason: str, *, lost: Loss | None = None, refused: bool = False) -> None:
        """End the request with an error; with `refused`, it cannot be resumed."""
        refusal = EngineLost(reason) if refused else None
        self.end(Chunk(finish="error", error=reason, refusal=refusal, lost=lost))

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless the request is over."""
        if not self.over:
            self.ids += chunk.token_ids
            self.answered = chunk.finish != "error"
            self._leave()
            self._sink.push(chunk)

    def break_off(self) -> None:
        """Disconnect from the child without ending the request."""
        if self._stream is not None:
            self._stream.leave()

    def _push(self, chunk: Chunk) -> None:
        if self._before:  # the first child's cached ids were sent already
            chunk = chunk._replace(cached_tokens=None)
        if chunk.finish is not None:
            return self.end(chunk)
        self.ids += chunk.token_ids
        self._sink.push(chunk)
        if self.silent:
            self.silent = False
            self._on_begun(self)
        return None

    def _break(self, reason: str) -> None:
        self._on_broken(self, reason)

    def _leave(self) -> None:
        self.over = True
        self.break_off()
        self._on_over(self)
