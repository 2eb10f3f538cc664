"""The spelling of the API's events: the OpenAI SDKs'. A folder may bring another one, which a
request chooses by its name. A log is written in one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.wire.events import Event
    from trt_responses.wire.tools import Tool


class Dialect:
    """How events are spelled."""

    name = "openai"

    def spelled(self, event: Event) -> tuple[str, bytes]:
        """An event's name, and its JSON without the number that the log gives it."""
        return event.type, orjson.dumps(event)

    def check(self, effort: str | None, tools: Sequence[Tool]) -> None:
        """Raise an `InvalidRequest` for what a request asks for and the dialect cannot say."""


OPENAI = Dialect()
DIALECTS: dict[str, Dialect] = {OPENAI.name: OPENAI}
"""Those that are installed, by their names."""
