"""Starts runs, counts those that are going on, and ends them all.

Knows when a run may begin; how one is put together is in `assembly.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trt_responses import frozen
from trt_responses.accept.accepted import Accepted
from trt_responses.accept.model_names import ModelNames
from trt_responses.engine import GenerateOptions
from trt_responses.errors import ApiError, EngineUnavailable
from trt_responses.feature import Features, not_installed, refuse_fields
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.run.assembly import assembled, counted
from trt_responses.run.draft import Draft
from trt_responses.run.facts import Progress
from trt_responses.run.parts import Lease, Parts
from trt_responses.run.request import RunRequest
from trt_responses.run.run import Run
from trt_responses.tool import IgnoresOptions
from trt_responses.wire.response import Response

UNSET = GenerateOptions(0, ())


class Runs:
    """Starts runs, knows those that are going on, and ends them when the server must."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle) -> None:
        self._parts = parts
        self._lifecycle = lifecycle
        self._running: dict[Run, Lease | None] = {}
        self._starting = 0
        self._features = Features(parts.features)
        self._not_installed = not_installed(parts.features)
        self.built_in: Mapping[str, Sequence[str]] = {
            kind: tool.recipients for kind, tool in parts.tools.items()
        }
        """The kinds of tools that the server runs, and the recipients of their calls."""

    def __len__(self) -> int:
        return self._starting + len(self._running)

    def ignored(self, accepted: Accepted) -> list[str]:
        """The fields of a request that change nothing: with any engine, with this one, or with
        these tools."""
        sampling, ignores = accepted.sampling, self._parts.engine.limits().ignores
        names = [*self._unread(accepted.ignored)] if accepted.ignored else []
        if ignores:
            names += [n for n in sorted(ignores) if getattr(sampling, n) != getattr(UNSET, n)]
        for built_in in accepted.built_in:
            tool = self._parts.tools.get(built_in.kind)
            if isinstance(tool, IgnoresOptions):
                names += [f"tools[].{name}" for name in tool.ignored(built_in.options)]
        return names

    def _unread(self, ignored: Iterable[str]) -> Iterator[str]:
        return (path for path in ignored if path not in self._parts.own_fields)

    def progress(self) -> Iterator[Progress]:
        """The progress of all runs that are being made."""
        return (run.progress for run in self._running)

    def leased(self) -> Iterator[tuple[Run, Lease | None]]:
        """All runs that are being made, each with its lease."""
        return iter(tuple(self._running.items()))

    async def start(self, request: RunRequest) -> Run:
        """A run that its owner has to `make` or `release`, or an `ApiError` before any token.

        It holds a slot from here on: tokenising can be slow.
        """
        self._check_ready()
        accepted, parts, lease = request.accepted, self._parts, None
        model, names = accepted.echo.model, parts.names
        if names is not None and model not in names.known:
            accepted, model = _with_adapter(accepted, names)
            request = frozen.replace(request, accepted=accepted)
        if self._not_installed:
            refuse_fields(self._not_installed, accepted)
        steps = self._features.steps(accepted, request.steps)
        place = parts.admission.enter(request.owner)
        self._starting += 1
        try:
            if parts.leases is not None:
                lease = parts.leases.lease(request, model, parts)
                parts = lease.parts
            draft = Draft(request, steps, parts)
            draft.place = place
            try:
                run = await assembled(draft)
            except BaseException:
                await draft.release()
                raise
        except BaseException:
            place.leave()
            if lease is not None:
                lease.release()
            raise
        finally:
            self._starting -= 1
        self._running[run] = lease
        run.headers |= place.headers()
        if lease is not None:
            run.headers |= lease.headers()
        return run

    async def check(self, owner: str, tokens: int = 0) -> None:
        """Raise an `ApiError` that each response of the owner would be refused with, had it used
        so many tokens more."""
        self._check_ready()
        self._parts.admission.check_rates(owner, tokens)
        await self._parts.store.check()

    async def count(self, accepted: Accepted, *, owner: str) -> int:
        """The input tokens of a response to the request."""
        parts = self._parts
        refuse_fields(self._not_installed, accepted)
        request = RunRequest(accepted, owner, parts.clock_ns())
        return await counted(Draft(request, self._features.steps(accepted), parts))

    async def release(self, run: Run) -> None:
        """Free the run's place; a run that has not been made will not be."""
        if run in self._running or not run.log.closed:  # else it was made
            self._leave(run)
            await run.abandon()

    async def make(self, run: Run) -> Response:
        """Make a run, and free its place at its end."""
        draft = run.draft
        try:
            return await run.make()
        finally:
            self._leave(run)
            if draft is not None:
                await draft.release()

    def _leave(self, run: Run) -> None:
        if (lease := self._running.pop(run, None)) is not None:
            lease.release()

    def fail_begun(self, error: ApiError) -> None:
        """Fail all runs that the engine works on; those that wait for it go on waiting."""
        for run in tuple(self._running):
            if run.begun:
                run.fail(error)

    def shut_down(self) -> None:
        """Fail all runs, but those that another server goes on with, since this server ends."""
        for run in tuple(self._running):
            run.shut_down()

    @property
    def takes_work(self) -> bool:
        """Whether a run would be begun now."""
        try:
            self._check_ready()
        except ApiError:
            return False
        return True

    def _check_ready(self) -> None:
        if not self._lifecycle.open:
            self._lifecycle.check_takes_work()
        if not (health := self._parts.engine.health()).ready:
            reason = (health.reason or "it is starting").removesuffix(".")
            raise EngineUnavailable(f"The engine is not ready: {reason}.", retry_after_s=5)


def _with_adapter(accepted: Accepted, names: ModelNames) -> tuple[Accepted, str]:
    """The request with the adapter that its model names, and that model's name without it."""
    base, adapter = names.wanted(accepted.echo.model)
    if adapter is None:
        return accepted, base
    sampling = frozen.replace(accepted.sampling, adapter=adapter)
    return frozen.replace(accepted, sampling=sampling), base
