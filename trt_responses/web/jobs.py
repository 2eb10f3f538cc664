"""The seam of background responses: how they are started, streamed and read."""

from __future__ import annotations

from typing import Protocol

from starlette.types import ASGIApp

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import unsupported_value
from trt_responses.run.run import Run
from trt_responses.store import Job, Record
from trt_responses.wire.dialect import Dialect


class Jobs(Protocol):
    """Starts background responses and finds them again, also those of other servers."""

    def keep(self, accepted: Accepted, *, stream: bool) -> bool:
        """Whether they make the response to this foreground request. Raises what it is refused
        with."""
        ...

    async def start(
        self, accepted: Accepted, *, owner: str, arrival_ns: int, dialect: Dialect, request: bytes
    ) -> Run:
        """A run that is being made. Raises an `ApiError`, and keeps nothing, when it cannot be."""
        ...

    def stream(self, run: Run, headers: dict[str, str]) -> ASGIApp:
        """The stream of a run that was just started."""
        ...

    async def replay(
        self, found: Record | Job, owner: str, headers: dict[str, str], dialect: Dialect, after: int
    ) -> ASGIApp:
        """The stream of a background response, from the event behind number `after` on."""
        ...

    async def steer(self, response_id: str, owner: str) -> bytes:
        """Have the server that makes a response end it as steered; returns its request as it came,
        nothing where that is not known."""
        ...

    def snapshot(self, job: Job, owner: str) -> bytes:
        """The response as JSON: as of now if this server makes it, else as it was kept last."""
        ...


def maker(jobs: Jobs | None, accepted: Accepted, *, stream: bool) -> Jobs | None:
    """The jobs, if they make the response to a request; else its first reader does."""
    if accepted.echo.background:
        return installed(jobs)
    return jobs if jobs is not None and jobs.keep(accepted, stream=stream) else None


def installed(jobs: Jobs | None) -> Jobs:
    """The seam, or a refusal where nothing stands behind it."""
    if jobs is None:
        raise unsupported_value("background", "background responses are not installed here")
    return jobs
