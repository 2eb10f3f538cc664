"""Gives each run the engines of its model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trt_responses.errors import EngineUnavailable
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.features.several.engine import SeveralEngines
    from trt_responses.features.several.group import Group
    from trt_responses.run.parts import Parts
    from trt_responses.run.request import RunRequest


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

    def __init__(self, engines: SeveralEngines) -> None:
        self._engines = engines
        self._leases: dict[Group, ModelLease] = {}

    def lease(self, request: RunRequest, model: str, parts: Parts) -> ModelLease:
        group = self._engines.groups.get(model, self._engines.first)
        if not (health := group.health()).ready:
            raise EngineUnavailable(
                f"The model '{group.model}' is not ready: {health.reason}.", retry_after_s=5
            )
        if (lease := self._leases.get(group)) is None:
            lease = self._leases[group] = ModelLease(_parts_of(group, parts, self._engines.first))
        return lease


def _parts_of(group: Group, parts: Parts, first: Group) -> Parts:
    waits = parts.recovery
    return replace(
        parts,
        engine=group,
        model=parts.model if group is first else group.model,
        recovery=None if waits is None else waits.over(group),
    )
