"""The description of the API: for machines, for people, and field by field."""

from __future__ import annotations

from trt_responses.accept.model_names import ModelNames
from trt_responses.features.description.docs import Docs
from trt_responses.features.description.fields import Fields
from trt_responses.setup.server import Server
from trt_responses.web.shared import Shared
from trt_responses.wire.fields import FIELDS


def install(server: Server) -> None:
    def fields(shared: Shared) -> list[Fields]:
        tables = {"/v1/responses": [*FIELDS, *server.own_fields], **server.field_tables}
        return [Fields(shared.headers, tables, lambda: shared.parts.engine.limits().ignores)]

    server.add_routes(59, fields)
    server.add_routes(90, lambda shared: [Docs(shared.headers, shared.of(ModelNames).served)])
