"""What the server serves, to which clients, and how it starts, stops and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trt_responses.settings.values import (
    YEAR_S,
    NumberOrAuto,
    Seconds,
    SettingGroup,
    Text,
    Words,
    day,
    hosts,
    origins,
)


class Listening(SettingGroup):
    """Listening and engine."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    frontends: NumberOrAuto = Field(
        1,
        ge=1,
        le=64,
        description="HTTP processes that share one port and one engine; `auto`: as many as fit.",
    )
    engine: str | None = Field(
        None,
        description="Name of the prepared engine to serve: its promoted version, or name@3. For"
        " an engine of another server: grpc://host:port/model (`trtllm-serve "
        "--grpc`) or triton://host:port/model (a Triton that serves an export of "
        "`trt-responses export triton`), or that of an installed package, as NAME://PLACE. "
        "Several: several://NAME=ENGINE,NAME=ENGINE.",
    )
    engine_process: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Run the engine in a separate process: `always`, `never`, or `auto` "
        "(TensorRT-LLM only).",
    )
    engine_pause_s: float = Field(
        600.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="Seconds that running responses wait for an engine that is restarting or "
        "being replaced; 0: they fail at once.",
    )
    engines_dir: Path = Field(Path("engines"), description="Directory of prepared engines.")
    model: Text | None = Field(
        None, description="Model name for clients (default: the engine's name)."
    )
    model_aliases: Words = Field(
        (),
        description="More model names that clients may use; `*` accepts every name, for agents "
        "that request other models for small tasks.",
    )


class Access(SettingGroup):
    """Access and keys."""

    api_keys: Words = Field((), description="Keys as `owner:key,…` (default: no key is required).")
    keys_file: Path | None = Field(
        None,
        description="File of keys, in addition to API_KEYS, reloaded when it changes; see "
        "`trt-responses keys`.",
    )
    admin_key: str | None = Field(
        None,
        description="Key of an admin, who may drain the server, load and unload engine "
        "versions, change the log level and read metrics; `trt-responses drain` "
        "sends it.",
    )
    allowed_hosts: Annotated[Words, AfterValidator(hosts)] = Field(
        (), description="Host headers to accept besides loopback names; `*` accepts any."
    )
    allowed_origins: Annotated[Words, AfterValidator(origins)] = Field(
        (),
        description="Origins whose web pages may call the API, `https://app.example,…`; `*` "
        "accepts any.",
    )
    insecure: bool = Field(
        False,
        description="Listen beyond the loopback without keys: everybody who can connect may use"
        " the server.",
    )


class Lifecycle(SettingGroup):
    """Start and stop."""

    stall_s: Seconds = Field(
        120.0,
        description="Seconds without progress of a busy engine after which the server is not "
        "ready and an embedded engine is restarted.",
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


class SystemMessage(SettingGroup):
    """The system message."""

    identity: Text = Field(
        "You are ChatGPT, a large language model trained by OpenAI.",
        description="First line of the system message.",
    )
    date: Annotated[str, AfterValidator(day)] | None = Field(
        None, description="Fixed date in the system message (default: today)."
    )


class Logs(SettingGroup):
    """Logs and traces."""

    log_format: Literal["text", "json"] = Field(
        "text", description="Format of log lines: text or json."
    )
    log_level: str = Field(
        "info",
        pattern="^(debug|info|warning|error)$",
        description="Minimum severity to log: debug, info, warning or error.",
    )
