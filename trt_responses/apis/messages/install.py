"""Anthropic's Messages."""

from __future__ import annotations

from functools import partial

from trt_responses.apis.messages.endpoint import routes
from trt_responses.apis.messages.fields import FIELDS
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.field_tables["/v1/messages"] = FIELDS
    server.add_routes(45, partial(routes, seals=server.sealing is not None))
