"""Chat completions."""

from __future__ import annotations

from functools import partial

from trt_responses.apis.chat.endpoint import routes
from trt_responses.apis.chat.fields import FIELDS
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.field_tables["/v1/chat/completions"] = FIELDS
    server.add_routes(40, partial(routes, server=server))
