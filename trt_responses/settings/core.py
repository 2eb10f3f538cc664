"""The settings of the core, and the numbers of the core that no operator turns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trt_responses.settings.values import (
    MIB,
    YEAR_S,
    FixedGroup,
    Folder,
    Positive,
    Seconds,
    SettingGroup,
    Text,
    Words,
    day,
    hosts,
)


class CoreSettings(SettingGroup):
    """What the core reads, in the order of `listed.txt`."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    engine: str | None = Field(
        None,
        description="Name of the prepared engine to serve: its promoted version, or name@3. For"
        " an engine of another server: grpc://host:port/model (`trtllm-serve "
        "--grpc`) or triton://host:port/model (a Triton that serves an export of "
        "`trt-responses export triton`), or that of an installed package, as NAME://PLACE. "
        "Several: several://NAME=ENGINE,NAME=ENGINE.",
    )
    engines_dir: Folder = Field(Path("engines"), description="Directory of prepared engines.")
    model: Words = Field(
        (),
        description="Model names for clients, the first in answers (default: the engine's name);"
        " `*` accepts every name: agents request other models for small tasks.",
    )
    allowed_hosts: Annotated[Words, AfterValidator(hosts)] = Field(
        (), description="Host headers to accept besides loopback names; `*` accepts any."
    )
    insecure: bool = Field(
        False,
        description="Listen beyond the loopback without keys: everybody who can connect may use"
        " the server.",
    )
    max_body_bytes: Positive = Field(
        4 * MIB,
        description="Maximum size of a request body; each MiB can delay other streams by about "
        "5 ms.",
    )
    note_images: bool = Field(
        False,
        description="Replace images, files and audio by a text note instead of refusing them.",
    )
    max_running: Positive | None = Field(
        None, description="Maximum responses generated at once (default: what the engine supports)."
    )
    store: str | None = Field(
        None,
        description="Where responses are kept: memory://, sqlite:///path, redis://host:port or "
        "postgresql://user@host/database (default: a file in DATA_DIR; memory when embedded). "
        "sqlite:///path?synchronous=full survives a power cut. An installed package's store is "
        "NAME://PLACE.",
    )
    data_dir: Folder = Field(
        Path("data"), description="Directory of the default history file and the sealing key."
    )
    stall_s: Seconds = Field(
        120.0,
        description="Seconds without progress of a busy engine after which the server is not "
        "ready and an embedded engine is restarted. A process without heartbeats is restarted "
        "after a sixth of them.",
    )
    linger_s: float = Field(
        5.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="Seconds in which a stopping server still accepts requests, so that proxies"
        " notice; 0 on SIGINT.",
    )
    drain_s: float = Field(
        20.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="Seconds that running responses get after LINGER_S; then they fail.",
    )
    identity: Text = Field(
        "You are ChatGPT, a large language model trained by OpenAI.",
        description="First line of the system message.",
    )
    date: Annotated[str, AfterValidator(day)] | None = Field(
        None, description="Fixed date in the system message (default: today)."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Format of log lines: text or json."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum severity to log: debug, info, warning or error."
    )

    @property
    def model_name(self) -> str | None:
        """The model's name in answers, if it is not the engine's."""
        return next((name for name in self.model if name != "*"), None)


class Fixed(FixedGroup):
    """Fixed numbers."""

    max_body_values: int = Field(
        64_000,
        description="Values in a request body. 1,000 can hold other streams for some 0.5 ms, and a "
        "long history meets the bound of its items first.",
    )
    read_timeout_s: float = Field(
        60.0,
        description="To begin a request, to end its head, and to send 64 KiB of its body: as nginx "
        "has it.",
    )
    max_tools: int = Field(1024, description="Tools in a request: eight times the API's own bound.")
    max_input: int = Field(
        10_000, description="Items in a request's input: more than any context holds."
    )
    schema_s: float = Field(
        1.0, description="To compile one request's schemas: real ones take a hundredth of it."
    )
    max_backlog_bytes: int = Field(
        4 * MIB, description="That wait for a slow client of a stream: a whole long answer."
    )
    keep_alive_event_s: float = Field(
        30.0,
        description="Silence after which an event is repeated: half the shortest time after which "
        "a client gives up that counts events alone.",
    )
    knowledge_cutoff: str = Field(
        "2024-06", description="Second line of the system message: a fact of gpt-oss."
    )
    engine_pause_s: float = Field(
        600.0,
        description="For which running responses wait for an engine that is restarting or being "
        "replaced: a large one loads in half of it; 0: they fail at once.",
    )
    keep_alive_s: float = Field(
        10.0,
        description="Silence after which a stream gets a comment line: a third of the shortest "
        "timeout of proxies.",
    )
