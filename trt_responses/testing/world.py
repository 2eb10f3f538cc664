"""What a test sees of its server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trt_responses.features.script.rules import Script


@dataclass(frozen=True)
class Sent:
    """A request as the client sent it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    """The JSON; None for none, bytes for what is not JSON."""


@dataclass
class ResponsesServer:
    """A server, and what a test sees of it."""

    base_url: str
    requests: list[Sent]
    played: Script = field(repr=False)

    def script(self, *rules: Mapping[str, Any], seed: int = 0) -> None:
        """Play these rules from now on; their keys are those of a script file."""
        from trt_responses.features.script.rules import script_of

        new = script_of(list(rules), "given to `script`", seed)
        new.by_header = True
        vars(self.played).update(vars(new))
