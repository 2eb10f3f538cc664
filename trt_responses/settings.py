"""Every setting, its default, and where it comes from: `TRT_RESPONSES_<FIELD>`.

A value that will not parse stops the start with the field's name. Defaults are such that a laptop
survives them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    max_body_values: Positive = Field(
        131_072, description="Lists and objects in a body, counted before it is parsed."
    )
    max_header_bytes: Positive = Field(
        64 * 1024, description="Largest head of a request; larger ones get a 431."
    )
    read_timeout_s: float = Field(
        60.0,
        gt=0,
        description="Seconds in which a client has to begin a request, to end its head, and to "
        "send its body or 64 KiB more of it; then a 408, and the connection is closed.",
    )
    max_tools: Positive = Field(1024, description="Tools in one request.")
    max_input: Positive = Field(20_000, description="Items in one request's input.")
    max_metadata: int = Field(16, ge=0, le=16, description="Pairs in a request's metadata.")
    max_calls: int = Field(
        1, ge=1, le=64, description="Calls in one turn; models were trained to make one."
    )
    schema_s: float = Field(
        1.0, gt=0, description="Seconds that compiling one request's schemas may take; then a 400."
    )
    note_images: bool = Field(
        False,
        description="Let a line of text stand for images, files and sounds; else they are refused.",
    )
    dialect: Literal["openai", "open-responses"] = Field(
        "openai", description="How events are spelled unless `x-trt-dialect` says otherwise."
    )
    max_running: Positive = Field(256, description="Responses made at once; more get a 429.")
    store: str | None = Field(
        None,
        description="Where responses are kept: memory://, sqlite:///path or redis://host:port; "
        "a file in data_dir when served, memory when embedded.",
    )
    data_dir: Path = Field(
        Path("data"), description="Where the default history file and the sealing key are."
    )
    store_bytes: Positive = Field(256 * MIB, description="Bytes of stored responses, at rest.")
    store_records: Positive = Field(10_000, description="Number of stored responses.")
    store_age_s: float | None = Field(
        30 * 86_400, gt=0, description="Age at which stored responses expire."
    )
    store_frame_bytes: Positive = Field(
        64 * MIB, description="Bytes kept of background streams, to replay them."
    )
    store_synchronous: Literal["normal", "full"] = Field(
        "normal",
        description="SQLite: what survives; normal the server's death, full the machine's too.",
    )
    lease_s: float = Field(
        30.0, gt=0, description="How long a dead server's background responses look alive."
    )
    max_background: Positive = Field(
        32, description="Background responses of one owner made at once; more get a 429."
    )
    max_backlog_bytes: Positive = Field(
        4 * MIB, description="Bytes that wait for a slow client of a stream before it is dropped."
    )
    keep_alive_s: float = Field(
        10.0, gt=0, description="Silence after which a stream gets a comment line."
    )
    idempotency_keys: Positive = Field(
        256, description="Requests with an Idempotency-Key that are remembered at once."
    )
    idempotency_ttl_s: float = Field(600.0, gt=0, description="How long they are remembered.")
    seal_keys: Words = Field(
        (),
        description="Keys that seal reasoning, base64 of 32 bytes each, shared by replicas; the "
        "first seals, all open; none: a key file in data_dir.",
    )
    drain_s: float = Field(
        20.0, ge=0, description="How long running responses may go on when the server is stopped."
    )
    context_tokens: Positive = Field(
        8192, description="Context of one response on the embedded engine."
    )
    slots: Positive = Field(4, description="Responses the embedded engine makes at once.")
    threads: int | None = Field(
        None, ge=1, description="Threads of the embedded engine, or of onnxruntime."
    )
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
        owners: dict[str, str] = {}
        for place, entry in enumerate(self.api_keys, 1):
            owner, _, key = entry.partition(":")
            if not (owner and key):
                raise StartupError(f"{PREFIX}API_KEYS: entry {place} is not of the form owner:key.")
            if owners.setdefault(key, owner) != owner:
                raise StartupError(f"{PREFIX}API_KEYS: entry {place} gives another owner's key.")
        return owners

    def hosts(self) -> tuple[str, ...]:
        """Host headers that are answered. With a key asked for, any host may be allowed by `*`."""
        return (*LOOPBACK, self.host, f"[{self.host}]", *self.allowed_hosts)

    def check_exposure(self) -> None:
        """A server that others can reach needs keys, unless the operator insists."""
        if self.host not in LOOPBACK and not self.owners() and not self.insecure:
            raise StartupError(
                f"Listening on {self.host} without API keys lets anybody who can reach it use it: "
                f"set {PREFIX}API_KEYS, or {PREFIX}INSECURE=1 to insist."
            )
