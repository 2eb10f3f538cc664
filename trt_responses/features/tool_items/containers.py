"""What a request may ask of a container that the server makes, and what of that is not built."""

from __future__ import annotations

from typing import Protocol

from trt_responses.errors import unsupported_value
from trt_responses.wire.base import NonEmpty, Options


class NetworkPolicy(Options):
    """What code in a container may reach."""

    type: NonEmpty


class ContainerOptions(Protocol):
    """What a request may ask of a new container."""

    @property
    def memory_limit(self) -> str | None: ...

    @property
    def network_policy(self) -> NetworkPolicy | None: ...


def check_container_options(options: ContainerOptions, place: str) -> None:
    """Refuse, by name, options of containers that are not built."""
    if options.memory_limit:
        why = "the operator sets the memory of all containers. Leave the field out"
        raise unsupported_value(f"{place}memory_limit", why)
    policy = options.network_policy
    if policy is not None and policy.type != "disabled":
        why = "code in a container has no network. Leave the field out"
        raise unsupported_value(f"{place}network_policy", why)
