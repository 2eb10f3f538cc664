"""Messages between a client's agents, as Codex sends them."""

from __future__ import annotations

from typing import Annotated, Literal

from trt_responses.setup.server import Server
from trt_responses.wire.base import ByType, ClientObject, ListOf
from trt_responses.wire.items import TextPart
from trt_responses.wire.past_calls import KINDS, CallText, PastCall

UNREADABLE = "[Here was a part that cannot be read.]"


class SealedPart(ClientObject):
    """A part that only the server which made it can read."""

    type: Literal["encrypted_content"]
    encrypted_content: str


class AgentMessage(PastCall):
    """A message of one of a client's agents to another."""

    prefix = "agm"
    type: Literal["agent_message"]
    author: str
    recipient: str
    content: ListOf[Annotated[TextPart | SealedPart, ByType("input_text", "encrypted_content")]]

    def text(self) -> CallText:
        """The agent's words behind its name, for the model has no role for one."""
        texts = [part.text if isinstance(part, TextPart) else UNREADABLE for part in self.content]
        head = f"Message from {self.author} to {self.recipient}:"
        return CallText(message="\n".join((head, *texts)))


def install(server: Server) -> None:
    KINDS["agent_message"] = AgentMessage
