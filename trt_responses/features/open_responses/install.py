"""The spelling of the Open Responses specification.

It names reasoning differently from the OpenAI SDKs and puts an error in a different place, so no
stream satisfies both. It has functions alone for tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from trt_responses.errors import Unsupported, unsupported_value
from trt_responses.setup.server import Server
from trt_responses.wire.dialect import DIALECTS, Dialect
from trt_responses.wire.events import Event
from trt_responses.wire.tools import FunctionTool, OtherTool, Tool

NAMES = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
"""Those that differ from our own."""


class OpenResponses(Dialect):
    """How the specification spells events."""

    name = "open-responses"

    def spelled(self, event: Event) -> tuple[str, bytes]:
        own, written = super().spelled(event)
        if own not in NAMES and own != "error":
            return own, written
        name = NAMES.get(own, own)
        body: dict[str, Any] = orjson.loads(written) | {"type": name}
        return name, orjson.dumps(_nested(body) if name == "error" else body)

    def check(self, effort: str | None, tools: Sequence[Tool]) -> None:
        if effort in ("minimal", "max"):
            what = f"the dialect '{self.name}' has no '{effort}'"
            raise unsupported_value("reasoning.effort", what)
        for place, tool in enumerate(tools):
            if not isinstance(tool, FunctionTool | OtherTool):
                raise Unsupported(
                    f"Unsupported tool type '{tool.type}': the dialect '{self.name}' has "
                    "'function' tools only.",
                    param=f"tools[{place}].type",
                    code="unsupported_tool",
                )


def _nested(error: dict[str, Any]) -> dict[str, Any]:
    kind = error.pop("type")
    return {"type": kind, "error": {"type": "server_error", **error}}


OPEN_RESPONSES = OpenResponses()


def install(_: Server) -> None:
    DIALECTS[OPEN_RESPONSES.name] = OPEN_RESPONSES
