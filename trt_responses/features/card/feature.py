"""The temperature that an engine's card gives to requests that set none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trt_responses.feature import Step
from trt_responses.frozen import replace as replace_frozen

if TYPE_CHECKING:
    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.draft import Draft


class CardTemperature:
    """Draws by the card's temperature where a request sets none."""

    reads = ("own_temperature",)

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def accept(self, accepted: Accepted) -> Step | None:
        return None if accepted.own_temperature else TemperatureStep(self._temperature)


class TemperatureStep(Step):
    """Gives one run the card's temperature. Its response says so."""

    order = 5  # before what reads the sampling

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    async def acquire(self, draft: Draft) -> None:
        accepted = draft.accepted
        draft.accepted = replace(
            accepted,
            sampling=replace_frozen(accepted.sampling, temperature=self._temperature),
            echo=replace_frozen(accepted.echo, temperature=self._temperature),
        )
