"""Decides which requests to blame for a child's death, which may resume, and which may run
together.

A prompt or a guide that kills the child does so at the request's first step, before its first id.
So requests without an id are blamed, and a suspect takes its first step without another such
request beside it. Requests only: no process and no queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trt_responses.engine import GenerateOptions
from trt_responses.engines.llamacpp.quarantine import Charge, Quarantine
from trt_responses.engines.llamacpp.request import Request
from trt_responses.errors import InvalidRequest

DEATH_REASON = ""
"""Placeholder for the reason of the child's death, which the request receives instead."""


class Blame:
    """Decides which requests killed a child, and which may go on."""

    def __init__(self) -> None:
        self._quarantine = Quarantine()
        self._blamed: frozenset[Request] = frozenset()
        self._owners: set[str | None] = set()
        """The owners whose requests were blamed since the last answer."""

    def refusal(self, prompt_ids: Sequence[int], options: GenerateOptions) -> InvalidRequest | None:
        """The error of a quarantined request, or None."""
        if not self._quarantine:
            return None
        return self._quarantine.refusal(self._quarantine.charge(prompt_ids, options.guide))

    def judge(self, at_work: Collection[Request]) -> bool:
        """Blame the requests that may have killed the child. Returns whether that excuses the
        engine.

        After one death per owner, further deaths with the same owners excuse it: a single owner
        cannot make the engine give up, but deaths with all owners' requests can.
        """
        suspects = [request for request in at_work if request.silent] or [
            request for request in at_work if request.options.guide is not None
        ]
        self._blamed = frozenset(suspects or at_work)
        for request in self._blamed:
            self._quarantine.blame(self._charge(request))
        owners = {request.options.cache_salt for request in suspects}
        repeated = bool(owners) and owners <= self._owners
        self._owners |= owners
        return repeated

    def why_not(self, request: Request) -> str | None:
        """The reason why a request does not resume in the next child; None if it does."""
        if request in self._blamed:
            if (refusal := self._quarantine.refusal(self._charge(request))) is not None:
                return refusal.message
            if request.stalled:
                return DEATH_REASON
        return None if request.can_go_on else DEATH_REASON

    def allows(self, request: Request, running: Iterable[Request]) -> bool:
        """Whether a request may take its first step beside the running ones."""
        if not self._quarantine:
            return True
        silent = [other for other in running if other.silent]
        return not silent or not any(
            self._quarantine.suspects(self._charge(each)) for each in (request, *silent)
        )

    def begun(self, request: Request) -> None:
        """Note that a request received its first ids."""
        if request.options.guide is not None:
            self._quarantine.prove(request.options.guide)

    def answered(self, request: Request) -> None:
        """Note that a request was answered, which clears all blame of owners."""
        self._owners.clear()
        self.begun(request)
        if self._quarantine:
            self._quarantine.acquit(self._charge(request))

    def _charge(self, request: Request) -> Charge:
        return self._quarantine.charge(request.prompt_ids, request.options.guide)
