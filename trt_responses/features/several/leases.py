"""Gives each run the engines of its model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trt_responses.backends.settings import EngineSettings
from trt_responses.errors import EngineUnavailable
from trt_responses.feature import Step
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted
    from trt_responses.dialect import Dialect
    from trt_responses.features.several.engine import SeveralEngines
    from trt_responses.features.several.group import Group
    from trt_responses.run.draft import Draft
    from trt_responses.run.parts import Parts
    from trt_responses.run.request import RunRequest
    from trt_responses.settings import Settings
    from trt_responses.steering.steering import Steering


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model as the list of models and metrics name it: a version without a number."""

    label: str
    kind: str = "several"
    number: int | None = None
    digest: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.label,)


class Model:
    """A model beside the first one, as names find it."""

    adapters: Sequence[str] = ()
    """Only the first model's are served."""

    def __init__(self, name: str) -> None:
        self.version = ModelName(name)


class ModelLease:
    """One run's hold on the engines of its model. Nothing is to be given back."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def headers(self) -> Mapping[str, str]:
        return {}

    def release(self) -> None:
        """The engines count their requests themselves."""


class ModelLeases:
    """Leases by the models' names; any other name is the first model's."""

    def __init__(
        self,
        engines: SeveralEngines,
        settings: Settings,
        new_steering: Callable[[Dialect], Steering],
    ) -> None:
        self._engines = engines
        self._settings = settings
        self._new_steering = new_steering
        self._leases: dict[Group, ModelLease] = {}

    def lease(self, request: RunRequest, model: str, parts: Parts) -> ModelLease:
        group = self._engines.groups.get(model, self._engines.first)
        if not (health := group.health()).ready:
            raise EngineUnavailable(
                f"The model '{group.model}' is not ready: {health.reason}.", retry_after_s=5
            )
        return self._lease(group, parts)

    def _lease(self, group: Group, parts: Parts) -> ModelLease:
        if (lease := self._leases.get(group)) is None:
            lease = self._leases[group] = ModelLease(self._parts_of(group, parts))
        return lease

    def parts_of(self, model: str, parts: Parts) -> Parts:
        """The parts of a model's runs, from those of the server."""
        return self._lease(self._engines.groups.get(model, self._engines.first), parts).parts

    def _parts_of(self, group: Group, parts: Parts) -> Parts:
        waits = parts.recovery
        parts = replace(parts, engine=group, recovery=None if waits is None else waits.over(group))
        if group is self._engines.first:
            return parts
        dialect = self._engines.dialects[group.model]
        return replace(
            parts,
            model=group.model,
            dialect=dialect,
            steering=self._new_steering(dialect),
            max_calls=EngineSettings.of(self._settings).max_calls or dialect.takes.calls,
        )


class Counted:
    """Has the tokens of a prompt counted as its model reads it."""

    reads = ("input",)  # every request has one

    def __init__(self, leases: ModelLeases, first: str) -> None:
        self._leases, self._first = leases, first

    def accept(self, accepted: Accepted) -> Step | None:
        return None if accepted.echo.model == self._first else CountStep(self._leases)


class CountStep(Step):
    """Sets the parts of a request that has no lease, as one has that is only counted."""

    order = -10  # all that is offered is of this model

    def __init__(self, leases: ModelLeases) -> None:
        self._leases = leases

    async def offer(self, draft: Draft) -> None:
        draft.parts = self._leases.parts_of(draft.accepted.echo.model, draft.parts)
        draft.limits = draft.parts.engine.limits()
