"""The OpenAPI document of a server, with our shape of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document_of(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document. A parameter that is wrong is a 400 here, and never its 422."""
    if app.openapi_schema is None:
        document = app.openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Error"] = ERROR
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return app.openapi_schema or {}
