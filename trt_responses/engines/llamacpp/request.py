"""One request to the embedded engine: what it was asked, what it has given. Also its handle.

It outlives the child that works on it: another child goes on where the first broke off. Knows no
bytes and no other request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.engine import Chunk
from trt_responses.engines.http_stream import Stream
from trt_responses.engines.llamacpp import body
from trt_responses.engines.llamacpp.body import HARMONY
from trt_responses.engines.llamacpp.events import Events, fault
from trt_responses.errors import EngineLost

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from trt_responses.engine import GenerateOptions, Loss, Sink
    from trt_responses.engines.llamacpp.body import Words
    from trt_responses.engines.llamacpp.process import Child
    from trt_responses.engines.slots import Slot


class Request:
    """`on_over` is called once, before the last push; `on_begun` after each child's first push of
    ids; `on_broken` with a reason when a child breaks off, and the request is not over then."""

    def __init__(
        self,
        prompt_ids: Sequence[int],
        options: GenerateOptions,
        words: Words,
        sink: Sink,
        *,
        now_ns: Callable[[], int],
        on_over: Callable[[Request], None],
        on_begun: Callable[[Request], None],
        on_broken: Callable[[Request, str], None],
        stops: frozenset[int] = HARMONY.stops,
    ) -> None:
        self.prompt_ids = prompt_ids
        self.options = options
        self.slot: Slot | None = None
        """The slot in the present child; None while no child works on the request."""
        self.ids: list[int] = []
        """All ids that were pushed, whichever child gave them."""
        self.over = False
        self.answered = False
        self.silent = True
        """Whether the present child has given no id yet."""
        self.stalled = False
        """Whether a child has given nothing for too long."""
        self._words = words
        self._stops = stops
        self._sink = sink
        self._now_ns = now_ns
        self._on_over = on_over
        self._on_begun = on_begun
        self._on_broken = on_broken
        self._stream: Stream | None = None
        self._begun_ns = 0
        self._before = 0

    @property
    def can_go_on(self) -> bool:
        """Whether another child can take the request over: a guide cannot be entered half-way."""
        return not self.ids or self.options.guide is None

    @property
    def is_full(self) -> bool:
        """Whether it has all the ids it may get, though its child died before it said so."""
        return bool(self.ids) and self._words["n_predict"] == len(self.ids)

    @property
    def read_ids(self) -> Sequence[int]:
        """The ids that the next child reads: the prompt, and all that was pushed."""
        return [*self.prompt_ids, *self.ids] if self.ids else self.prompt_ids

    @property
    def given_ids(self) -> Sequence[int]:
        """The ids that the present child gave."""
        return self.ids[self._before :]

    @property
    def last_byte_ns(self) -> int:
        """The time of the last byte from the present child; 0 while none has come."""
        return 0 if self.waits_since_ns == self._begun_ns else self.waits_since_ns

    @property
    def waits_since_ns(self) -> int:
        """The time of the last byte, or of the beginning."""
        return 0 if self._stream is None else self._stream.last_byte_ns

    def connect(self, child: Child, slot: Slot) -> asyncio.Task[None]:
        """Have a child work on the request in this slot, from where it stands."""
        self.slot = slot
        self.silent = True
        self._before = len(self.ids)
        words = body.resumed(self._words, self.ids) if self.ids else self._words
        events = Events(self.options, self._stops)
        self._stream = Stream(events.feed, fault, self._push, self._break, self._now_ns)
        self._begun_ns = self._stream.last_byte_ns
        content, key = body.body(words, slot), f"Authorization: Bearer {child.api_key}"
        return self._stream.connect(child.host, child.port, child.path, content, key)

    def abort(self) -> None:
        if not self.over:
            self._leave()

    def fail(self, reason: str, *, lost: Loss | None = None, refused: bool = False) -> None:
        """End the request with an error; one that is `refused` does not go on anywhere."""
        refusal = EngineLost(reason) if refused else None
        self.end(Chunk(finish="error", error=reason, refusal=refusal, lost=lost))

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless the request is over already."""
        if not self.over:
            self.ids += chunk.token_ids
            self.answered = chunk.finish != "error"
            self._leave()
            self._sink.push(chunk)

    def break_off(self) -> None:
        """Leave the child, without an end of the request."""
        if self._stream is not None:
            self._stream.leave()

    def _push(self, chunk: Chunk) -> None:
        if self._before:  # what the first child found in its cache has been told
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
