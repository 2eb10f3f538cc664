"""Bodies of the containers API: requests, and containers and files as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from trt_responses.features.tool_items.containers import NetworkPolicy
from trt_responses.tools.containers import ContainerFacts, FileFacts
from trt_responses.wire.base import ListOf, NonEmpty, Options


class ExpiresAfter(Options):
    """When an unused container ends."""

    anchor: Literal["last_active_at"]
    minutes: Annotated[int, Field(ge=1, le=20)]


class ContainerRequest(Options):
    """A request for a container."""

    name: NonEmpty
    expires_after: ExpiresAfter | None = None
    file_ids: ListOf[str] | None = None
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: NetworkPolicy | None = None


class SentFile(Options):
    """An uploaded file for a container."""

    file_id: NonEmpty


def file_body(container_id: str, file: FileFacts) -> dict[str, Any]:
    """A file of a container as the API gives it."""
    return {
        "id": file.id,
        "object": "container.file",
        "bytes": file.size_bytes,
        "container_id": container_id,
        "created_at": file.created_at,
        "path": file.path,
        "source": "user" if file.is_users else "assistant",
    }


def container_body(container: ContainerFacts) -> dict[str, Any]:
    """A container as the API gives it."""
    minutes = max(1, round(container.idle_s / 60))
    return {
        "id": container.id,
        "object": "container",
        "created_at": container.created_at,
        "name": container.name,
        "status": "running",
        "last_active_at": container.last_active_at,
        "expires_after": {"anchor": "last_active_at", "minutes": minutes},
        "network_policy": {"type": "disabled"},
    }
