"""The two spellings of the API's events: the OpenAI SDKs', and the Open Responses specification's.

They name reasoning differently and put an error in different places, so no stream satisfies both.
A log is written in one of them. Imports nothing of this package but `wire`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.wire.events import Event


class Dialect(NamedTuple):
    """How events are spelled. `names` holds those that differ from our own."""

    name: str
    names: Mapping[str, str]
    nests_errors: bool

    def spelled(self, event: Event) -> tuple[str, bytes]:
        """An event's name, and its JSON without the number that the log gives it."""
        own, written = event.type, orjson.dumps(event)
        if own not in self.names and not (self.nests_errors and own == "error"):
            return own, written
        name = self.names.get(own, own)
        body: dict[str, Any] = orjson.loads(written) | {"type": name}
        return name, orjson.dumps(_nested(body) if name == "error" else body)


def _nested(error: dict[str, Any]) -> dict[str, Any]:
    kind = error.pop("type")
    return {"type": kind, "error": {"type": "server_error", **error}}


OPENAI = Dialect("openai", {}, nests_errors=False)
OPEN_RESPONSES = Dialect(
    "open-responses",
    {
        "response.reasoning_text.delta": "response.reasoning.delta",
        "response.reasoning_text.done": "response.reasoning.done",
    },
    nests_errors=True,
)
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (OPENAI, OPEN_RESPONSES)}
