"""Shells and patches that the client runs."""

from __future__ import annotations

from trt_responses.features.action_tools.calls import CALLS as ACTION_CALLS
from trt_responses.features.action_tools.tools import CHOICES as ACTION_CHOICES
from trt_responses.features.action_tools.tools import KINDS
from trt_responses.log.item_events import CALLS
from trt_responses.setup.server import Server
from trt_responses.wire.choice import CHOICES
from trt_responses.wire.tools import TOOLS


def install(server: Server) -> None:
    TOOLS.update(KINDS)
    CHOICES.update(ACTION_CHOICES)
    CALLS.update(ACTION_CALLS)
