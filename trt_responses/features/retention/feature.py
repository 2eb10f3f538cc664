"""Requests of owners without retention: `store` is false, and the response says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.feature import Step
from trt_responses.features.retention.store import nothing_is_kept
from trt_responses.frozen import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.draft import Draft


class Retention:
    """`keeps` says whether anything of an owner is kept."""

    reads = ("input",)

    def __init__(self, keeps: Callable[[str], bool]) -> None:
        self._keeps = keeps

    def accept(self, accepted: Accepted) -> Step | None:
        return _Forgets(self._keeps) if accepted.store else None


class _Forgets(Step):
    order = -10

    def __init__(self, keeps: Callable[[str], bool]) -> None:
        self._keeps = keeps

    async def acquire(self, draft: Draft) -> None:
        if self._keeps(draft.owner):
            return
        accepted = draft.accepted
        for param, given in (
            ("background", accepted.echo.background),
            ("conversation", accepted.conversation),
        ):
            if given:
                raise nothing_is_kept(param)
        echo = replace(accepted.echo, store=False)
        draft.accepted = replace(accepted, store=False, echo=echo)
