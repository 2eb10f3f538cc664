"""Items that change the request in which they come: tools, and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trt_responses.accept.echo import NO_REASONING, NO_TEXT
from trt_responses.setup.server import Server
from trt_responses.wire.base import ClientObject, ListOf
from trt_responses.wire.choice import Effort, TextFormat
from trt_responses.wire.past_calls import KINDS, Amending
from trt_responses.wire.request import Request
from trt_responses.wire.tools import Tool


class AdditionalTools(Amending):
    """Tools that come with a conversation's items; they count as the request's own."""

    prefix = "at"
    type: Literal["additional_tools"]
    role: Literal["developer"]
    tools: ListOf[Tool]

    @property
    def offered(self) -> Sequence[Tool]:
        return self.tools

    def amended(self, request: Request) -> Request:
        return request.model_copy(update={"tools": [*(request.tools or ()), *self.tools]})


class UpdatedReasoning(ClientObject):
    """New settings of reasoning."""

    effort: Effort | None = None


class UpdatedText(ClientObject):
    """New settings of the answer's form."""

    format: TextFormat


class ConfigurationUpdate(Amending):
    """Settings that replace the request's own, and those of updates before it."""

    prefix = "cu"
    type: Literal["configuration_update"]
    reasoning: UpdatedReasoning | None = None
    text: UpdatedText | None = None

    def amended(self, request: Request) -> Request:
        changes = dict[str, Any]()
        if self.reasoning is not None:
            before = request.reasoning or NO_REASONING
            changes["reasoning"] = before.model_copy(update={"effort": self.reasoning.effort})
        if self.text is not None:
            before_text = request.text or NO_TEXT
            changes["text"] = before_text.model_copy(update={"format": self.text.format})
        return request.model_copy(update=changes)


ITEMS: Mapping[str, type[Amending]] = {
    "additional_tools": AdditionalTools,
    "configuration_update": ConfigurationUpdate,
}


def install(server: Server) -> None:
    KINDS.update(ITEMS)
