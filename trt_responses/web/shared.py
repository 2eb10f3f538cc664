"""What the endpoints of a server share, and how a folder brings its own: by one function `routes`
of what is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence

    from fastapi import APIRouter
    from starlette.routing import BaseRoute

    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.parts import Parts
    from trt_responses.run.runs import Runs
    from trt_responses.settings import Settings
    from trt_responses.web.guard import Guard
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.jobs import Jobs
    from trt_responses.web.repeats import Repeats
    from trt_responses.web.stream.sse import StreamLimits
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.limits import RequestLimits

    Steps = Callable[[bytes, Dialect], Generator[None, None, tuple[Accepted, bool, Any]]]
    """Gives what a request asks for, whether it wants a stream, and what is known besides."""
    Routes = Callable[["Shared"], Iterable[BaseRoute | "Cold"]]

T = TypeVar("T")


class Cold(Protocol):
    """Endpoints that FastAPI serves."""

    def router(self) -> APIRouter: ...


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts of a server that its endpoints use."""

    settings: Settings
    parts: Parts
    runs: Runs
    guard: Guard
    headers: ReplyHeaders
    limits: RequestLimits
    steps: Steps
    """Reads a body of the Responses API, in short pieces of work."""
    stream_limits: StreamLimits
    about: Callable[[], Mapping[str, Any]]
    """Returns the model, the versions and the engine's kind."""
    card_of: Callable[[str], Mapping[str, Any]]
    """Returns what is known of the engine that made a response, by the response's id."""
    sleep: Callable[[float], Awaitable[None]]
    jobs: Jobs | None
    """Background responses; None: not installed."""
    repeats: Repeats | None
    """Idempotency keys; None: not installed."""
    on_delete: Sequence[Callable[[str, str], None]]
    """Called with the id of each deleted response and its owner."""
    by_class: Mapping[type, object]

    def of(self, kind: type[T]) -> T:
        """The part of this class. Raises a `KeyError` when the server has none."""
        part = self.by_class[kind]
        assert isinstance(part, kind)
        return part
