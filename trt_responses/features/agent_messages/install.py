"""Messages between a client's agents."""

from __future__ import annotations

from trt_responses.features.agent_messages.items import AgentMessage
from trt_responses.setup.server import Server
from trt_responses.wire.past_calls import KINDS


def install(server: Server) -> None:
    KINDS["agent_message"] = AgentMessage
