"""What an engine's card sets for requests: a temperature where they set none, strict functions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from trt_responses.accept.accepted import Accepted, Tool
from trt_responses.errors import InvalidRequest
from trt_responses.feature import Step
from trt_responses.features.guides.schemas import schema_of
from trt_responses.frozen import replace as replace_frozen
from trt_responses.run.draft import Draft
from trt_responses.schema.closed import closed
from trt_responses.schema.compile import Allowance, Forms
from trt_responses.setup.server import Server

logger = logging.getLogger(__name__)


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


class StrictTools:
    """Guides the arguments of functions that are not strict, too, as if they were. Only the
    members that a schema lists are written, even where it does not forbid others."""

    reads = ("tools",)

    def __init__(self, schema_s: float) -> None:
        self._forms = Forms()
        self._schema_s = schema_s

    def accept(self, accepted: Accepted) -> Step | None:
        return StrictStep(self._strict)

    def _strict(self, tool: Tool) -> Tool:
        """The tool with strict arguments, if a guide can follow the whole of its schema."""
        if tool.promise is not None or tool.server is not None or tool.callee.custom:
            return tool
        strict = replace(tool, strict=True, parameters=tool.parameters and closed(tool.parameters))
        with suppress(InvalidRequest):
            self._forms.form(*schema_of(strict), strict=True, allowance=Allowance(self._schema_s))
            return strict
        return tool


class StrictStep(Step):
    """Makes one run's functions strict. Its response shows them as the request has them."""

    def __init__(self, strict: Callable[[Tool], Tool]) -> None:
        self._strict = strict

    async def prompted(self, draft: Draft) -> None:
        given = draft.accepted.tools
        if "json_schema" not in draft.limits.guides:
            return
        tools = await asyncio.to_thread(lambda: [self._strict(tool) for tool in given])
        draft.accepted = replace(draft.accepted, tools=tools)


def install(server: Server) -> None:
    if server.served.selection is None:
        return
    card = server.served.selection.card
    if card.note is not None:
        server.model_facts["description"] = card.note
        logger.info("%s: %s", card.label, card.note)
    if card.temperature is not None:
        server.features.append(CardTemperature(card.temperature))
    if card.strict_tools:
        server.features.append(StrictTools(server.settings.schema_s))
