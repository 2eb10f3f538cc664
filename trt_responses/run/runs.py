"""Starts runs, counts those that are going on, and ends them all.

Knows when a run may begin; how one is put together is in `assembly.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from trt_responses import frozen
from trt_responses.engine import GenerateOptions
from trt_responses.errors import ApiError, EngineUnavailable
from trt_responses.features.rollout.versions import Asked
from trt_responses.run.assembly import Assembly
from trt_responses.run.inputs import RunInputs
from trt_responses.run.origin import ORIGIN
from trt_responses.store import Lock
from trt_responses.tool import IgnoresOptions
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted
    from trt_responses.features.background.replayed import Before
    from trt_responses.features.conversations.locks import HeldLock, Locks
    from trt_responses.features.rollout.loaded import Lease, Loaded
    from trt_responses.run.commit import Keep, Memory
    from trt_responses.run.inputs import NewSpelling
    from trt_responses.run.lifecycle import Lifecycle
    from trt_responses.run.parts import Parts
    from trt_responses.run.run import Progress, Run
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.response import Response

UNSET = GenerateOptions(0, ())


class Runs:
    """Starts runs, knows those that are going on, and ends them when the server must."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle, locks: Locks) -> None:
        self._parts = parts
        self._assembly = Assembly(parts)
        self._lifecycle = lifecycle
        self._running: set[Run] = set()
        self._starting = 0
        self._locks = locks
        self._leases: dict[Run, Lease] = {}
        self._of_versions: WeakKeyDictionary[Loaded, Assembly] = WeakKeyDictionary()

    def __len__(self) -> int:
        return self._starting + len(self._running)

    @property
    def built_in(self) -> Mapping[str, Sequence[str]]:
        """The kinds of tools that the server runs, and the recipients of their calls."""
        return {kind: tool.recipients for kind, tool in self._parts.tools.items()}

    def ignored(self, accepted: Accepted) -> list[str]:
        """The fields of a request that change nothing: with any engine, with this one, or with
        these tools."""
        sampling = accepted.sampling
        asked = (
            name
            for name in sorted(self._parts.engine.limits().ignores)
            if getattr(sampling, name) != getattr(UNSET, name)
        )
        return [*accepted.ignored, *asked, *self._ignored_options(accepted)]

    def _ignored_options(self, accepted: Accepted) -> Iterator[str]:
        for built_in in accepted.built_in:
            tool = self._parts.tools.get(built_in.kind)
            if isinstance(tool, IgnoresOptions):
                yield from (f"tools[].{name}" for name in tool.ignored(built_in.options))

    def progress(self) -> Iterator[Progress]:
        """The progress of all runs that are being made."""
        return (run.progress for run in self._running)

    def made_by(self, loaded: Loaded) -> Iterator[Run]:
        """Those that a version of the engine has begun and not ended."""
        return (run for run, lease in self._leases.items() if lease.loaded is loaded and run.begun)

    async def start(
        self,
        accepted: Accepted,
        *,
        owner: str,
        arrival_ns: int,
        keep: Keep | None = None,
        dialect: Dialect = OPENAI,
        spelling: NewSpelling | None = None,
        memory: Memory | None = None,
        before: Before | None = None,
    ) -> Run:
        """A run that its owner has to `make` or `release`, or an `ApiError` before any token.

        It has its place from here on, for its prompt may take long to tokenise. `keep` takes its
        record instead of the store; `spelling` writes its log as another API's, and is made from
        the response and the number of the prompt's tokens; `memory` is asked for what it continues,
        and told of what can be continued, be it stored or not. `before` is what another server left
        of it.
        """
        self._check_ready()
        accepted, base = self._with_adapter(accepted)
        place = self._parts.admission.enter(owner)
        lease = held = None
        self._starting += 1
        try:
            lease = self._lease(accepted, base, before)
            assembly = self._assembly_for(lease)
            response_id = before.id if before is not None else assembly.new_id()
            held = await self._locked(accepted, owner, response_id, before)
            inputs = RunInputs(
                response_id,
                accepted,
                owner,
                arrival_ns,
                keep=keep,
                dialect=dialect,
                spelling=spelling,
                memory=memory,
                before=before,
            )
            run = await assembly.run(inputs, place)
        except BaseException:
            place.leave()
            if lease is not None:
                lease.release()
            if held is not None and before is not None:
                held.leave()  # the next server to go on with the run takes it
            elif held is not None:
                await held.free()
            raise
        finally:
            self._starting -= 1
        self._running.add(run)
        if lease is not None:
            self._leases[run] = lease
            run.version, run.version_gone = lease.loaded.version.label, lease.gone
        run.limit_headers = place.headers()
        run.lock = held
        return run

    async def _locked(
        self, accepted: Accepted, owner: str, response_id: str, before: Before | None
    ) -> HeldLock | None:
        """The lock of the conversation in which it is made; None where it is made in none."""
        if accepted.conversation is None:
            return None
        term = before.term if before is not None else 1
        return await self._locks.take(Lock(accepted.conversation, owner, response_id, term))

    def _with_adapter(self, accepted: Accepted) -> tuple[Accepted, str]:
        """The request with the adapter that its model names, and that model's name without it."""
        model, names = accepted.echo.model, self._parts.names
        base, adapter = names.wanted(model) if names is not None else (model, None)
        if adapter is None:
            return accepted, base
        sampling = frozen.replace(accepted.sampling, adapter=adapter)
        return replace(accepted, sampling=sampling), base

    def _lease(self, accepted: Accepted, model: str, before: Before | None) -> Lease | None:
        """A lease on the version of the engine that is to make the run; None where there is one
        engine without versions."""
        if (versions := self._parts.versions) is None:
            return None
        echo, origin = accepted.echo, ORIGIN.get()
        root = accepted.conversation or echo.prompt_cache_key or origin.session
        continued = accepted.previous_response_id if before is None else before.id
        asked = Asked(model, continued, root, accepted.sampling.adapter)
        return versions.lease(asked, origin.request_id)

    def _assembly_for(self, lease: Lease | None) -> Assembly:
        if lease is None:
            return self._assembly
        loaded, mint = lease.loaded, self._parts.mint
        if (found := self._of_versions.get(loaded)) is None:
            parts = replace(
                self._parts,
                engine=loaded,
                recovery=waits.over(loaded) if (waits := self._parts.recovery) else None,
                mint=lambda prefix: (
                    loaded.version.marked(mint(prefix)) if prefix == "resp" else mint(prefix)
                ),
            )
            found = self._of_versions[loaded] = Assembly(parts)
        return found

    async def count(self, accepted: Accepted, *, owner: str) -> int:
        """The input tokens of a response to the request."""
        return await self._assembly.count(accepted, owner)

    async def release(self, run: Run) -> None:
        """Free the run's place; a run that has not been made will not be."""
        self._leave(run)
        run.abandon()
        if run.lock is not None:
            await run.lock.free()

    async def make(self, run: Run) -> Response:
        """Make a run, and free its place at its end."""
        try:
            return await run.make()
        finally:
            self._leave(run)
            if run.lock is not None:
                await run.lock.free()

    def _leave(self, run: Run) -> None:
        self._running.discard(run)
        if (lease := self._leases.pop(run, None)) is not None:
            lease.release()

    def pause(self, loaded: Loaded) -> int:
        """Take the runs of a version from its engine; they go on when another version is in its
        place. Returns how many there are."""
        return sum(run.pause() for run in tuple(self.made_by(loaded)))

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
        self._lifecycle.check_takes_work()
        if not (health := self._parts.engine.health()).ready:
            reason = (health.reason or "it is starting").removesuffix(".")
            raise EngineUnavailable(f"The engine is not ready: {reason}.", retry_after_s=5)
