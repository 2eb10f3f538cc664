"""Who is to blame when the child dies, who may go on, and who takes a first step beside whom.

A prompt or a guide kills, if it does, at a request's first step, before it has given an id: so the
silent are blamed, and a suspect takes its first step with no other silent one beside it. Knows
requests; knows no process and no line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.engines.llamacpp.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from trt_responses.engine import GenerateOptions
    from trt_responses.engines.llamacpp.quarantine import Charge
    from trt_responses.engines.llamacpp.request import Request
    from trt_responses.errors import InvalidRequest

TOLD_ALREADY = ""
"""Stands for the reason of the death itself, which the request is told in its place."""


class Blame:
    """Decides which requests killed a child, and which may go on."""

    def __init__(self) -> None:
        self._quarantine = Quarantine()
        self._blamed: frozenset[Request] = frozenset()
        self._owners: set[str | None] = set()
        """The owners whose requests were to blame since the last answer."""

    def refusal(self, prompt_ids: Sequence[int], options: GenerateOptions) -> InvalidRequest | None:
        """The reason why a new request is refused; None when it is not."""
        if not self._quarantine:
            return None
        return self._quarantine.refusal(self._quarantine.charge(prompt_ids, options.guide))

    def judge(self, at_work: Collection[Request]) -> bool:
        """Blame those who may have killed the child. Whether that excuses the engine.

        It does so once for each owner since the last answer: no owner alone makes it give up, and
        an engine that dies with everybody's requests does.
        """
        suspects = [request for request in at_work if request.silent] or [
            request for request in at_work if request.options.guide is not None
        ]
        self._blamed = frozenset(suspects or at_work)
        for request in self._blamed:
            self._quarantine.blame(self._charge(request))
        owners = {request.options.cache_salt for request in suspects}
        known = bool(owners) and owners <= self._owners
        self._owners |= owners
        return known

    def why_not(self, request: Request) -> str | None:
        """The reason why a request does not go on in the next child; None when it does."""
        if request in self._blamed:
            if (refusal := self._quarantine.refusal(self._charge(request))) is not None:
                return refusal.message
            if request.stalled:
                return TOLD_ALREADY
        return None if request.can_go_on else TOLD_ALREADY

    def allows(self, request: Request, running: Iterable[Request]) -> bool:
        """Whether a request may take its first step beside those that run."""
        if not self._quarantine:
            return True
        silent = [other for other in running if other.silent]
        return not silent or not any(
            self._quarantine.suspects(self._charge(each)) for each in (request, *silent)
        )

    def begun(self, request: Request) -> None:
        """Note that a request was given its first ids."""
        if request.options.guide is not None:
            self._quarantine.prove(request.options.guide)

    def answered(self, request: Request) -> None:
        """Note that a request was answered: nobody is to blame for anything any more."""
        self._owners.clear()
        self.begun(request)
        if self._quarantine:
            self._quarantine.acquit(self._charge(request))

    def _charge(self, request: Request) -> Charge:
        return self._quarantine.charge(request.prompt_ids, request.options.guide)
