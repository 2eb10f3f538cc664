"""What an engine's card says to users: a note about the model, its default
temperature, and whether arguments of functions are guided."""

from __future__ import annotations

import logging

from trt_responses.features.card.feature import CardTemperature, StrictTools
from trt_responses.setup.server import Server

logger = logging.getLogger(__name__)


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
