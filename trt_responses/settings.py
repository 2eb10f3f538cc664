"""Every setting, its default, and where it comes from: `TRT_RESPONSES_<FIELD>`.

A value that will not parse stops the start with the field's name. Defaults are such that a laptop
survives them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "TRT_RESPONSES_"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
MIB = 1024 * 1024


def _words(value: Any) -> Any:
    """`a,b` as a tuple; what is one already stays."""
    return (
        tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value
    )


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Positive = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """How one server behaves."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    engine: str | None = Field(None, description="Name of the prepared engine to serve.")
    engines_dir: Path = Field(Path("engines"), description="Where prepared engines are.")
    model: str | None = Field(None, description="Model id that clients send; the engine's name.")
    api_keys: Words = Field((), description="`owner:key,…`; none: no key is asked for.")
    allowed_hosts: Words = Field(
        (), description="Host headers answered besides the loopback's; `*` allows any."
    )
    allowed_origins: Words = Field((), description="Origins whose pages may use the server.")
    insecure: bool = Field(
        False, description="Listen beyond the loopback without keys, for anybody who can reach it."
    )
    max_body_bytes: Positive = Field(16 * MIB, description="Largest request body.")
    max_running: Positive = Field(256, description="Responses made at once; more get a 429.")
    store_bytes: Positive = Field(256 * MIB, description="Bytes of stored responses.")
    store_records: Positive = Field(10_000, description="Number of stored responses.")
    drain_s: float = Field(
        20.0, ge=0, description="How long running responses may go on when the server is stopped."
    )
    context_tokens: Positive = Field(
        8192, description="Context of one response on the embedded engine."
    )
    slots: Positive = Field(4, description="Responses the embedded engine makes at once.")
    threads: int | None = Field(None, ge=1, description="Threads of the embedded engine.")
    identity: str = Field(
        "You are ChatGPT, a large language model trained by OpenAI.",
        description="First line of the system message.",
    )
    knowledge_cutoff: str = Field("2024-06", description="Second line of the system message.")
    date: str | None = Field(
        None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="Fixed date for the system message."
    )
    log_level: str = Field(
        "info", pattern="^(debug|info|warning|error)$", description="How much is logged."
    )

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, **given: Any
    ) -> Settings:
        """The environment's settings; `given` ones, if not None, come before them."""
        found = {
            name: environment[PREFIX + name.upper()]
            for name in cls.model_fields
            if environment.get(PREFIX + name.upper())
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        try:
            return cls(**{**found, **chosen})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = PREFIX + str(first["loc"][0]).upper()
            raise StartupError(f"{name}: {first['msg']} (got {first['input']!r}).") from None

    def owners(self) -> dict[str, str]:
        """Keys to owners."""
        owners = {}
        for entry in self.api_keys:
            owner, colon, key = entry.partition(":")
            if not (owner and colon and key):
                raise StartupError(f"{PREFIX}API_KEYS: expected owner:key, got {entry[:8]!r}….")
            owners[key] = owner
        return owners

    def hosts(self) -> tuple[str, ...]:
        """Host headers that are answered. With a key asked for, any host may be allowed by `*`."""
        return (*LOOPBACK, self.host, *self.allowed_hosts)

    def check_exposure(self) -> None:
        """A server that others can reach needs keys, unless the operator insists."""
        if self.host not in LOOPBACK and not self.api_keys and not self.insecure:
            raise StartupError(
                f"Listening on {self.host} without API keys lets anybody who can reach it use it: "
                f"set {PREFIX}API_KEYS, or {PREFIX}INSECURE=1 to insist."
            )
