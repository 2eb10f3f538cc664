"""What the server serves, to which clients, and how it starts, stops and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trt_responses.settings.values import (
    YEAR_S,
    Positive,
    Seconds,
    SettingGroup,
    Text,
    Words,
    day,
    hosts,
    origins,
)


class Listening(SettingGroup):
    """Where it listens, and what it serves."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    frontends: int = Field(
        1, ge=1, le=64, description="Processes that serve HTTP, on one port over one engine."
    )
    engine: str | None = Field(
        None,
        description="Name of the prepared engine to serve: its promoted version, or name@3. Of "
        "another server: grpc://host:port/model of a `trtllm-serve --grpc`, "
        "triton://host:port/model of a Triton that serves what `trt-responses export triton` "
        "wrote.",
    )
    gate_prompts: Path | None = Field(
        None,
        description="File of prompts that a new version of the engine is compared by, one body of "
        "POST /v1/responses a line; none: six that come with the server.",
    )
    engine_process: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether the engine runs in a process of its own; auto: TensorRT-LLM's does.",
    )
    engine_silence_s: Seconds = Field(
        20.0,
        ge=2,
        description="Seconds without a sign of life after which an engine's own process, or one of "
        "several front ends, is ended.",
    )
    trtllm_python: Path | None = Field(
        None,
        description="Interpreter that has TensorRT-LLM, 3.11 or newer; none: the server's own.",
    )
    engine_pause_s: float = Field(
        600.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="How long running responses wait for an engine that died or is exchanged, and "
        "then go on; 0: they fail at once.",
    )
    engines_dir: Path = Field(Path("engines"), description="Where prepared engines are.")
    model: Text | None = Field(None, description="Model id that clients send; the engine's name.")
    model_aliases: Words = Field(
        (),
        description="More names by which clients may ask for it; `*` answers to every name, for "
        "agents that ask for small models of their own.",
    )


class Access(SettingGroup):
    """Who is let in."""

    api_keys: Words = Field((), description="`owner:key,…`; none: no key is required.")
    keys_file: Path | None = Field(
        None, description="File of keys, beside API_KEYS; see `trt-responses keys`. It is watched."
    )
    admin_key: str | None = Field(
        None,
        description="An admin's key, which may drain the server, load and unload versions of the "
        "engine, change the log's level and read the metrics; `trt-responses drain` sends it.",
    )
    metrics_key: str | None = Field(
        None, description="Key that /metrics asks for, or an admin's; none: anybody may read it."
    )
    metrics_names: Literal["trtllm", "vllm", "none"] = Field(
        "trtllm", description="Whose names the metrics have too, beside our own."
    )
    allowed_hosts: Annotated[Words, AfterValidator(hosts)] = Field(
        (), description="Host headers answered besides the loopback's; `*` allows any."
    )
    allowed_origins: Annotated[Words, AfterValidator(origins)] = Field(
        (),
        description="Origins whose pages may use the whole API, `https://app.example,…`; `*` "
        "allows any.",
    )
    insecure: bool = Field(
        False, description="Listen beyond the loopback without keys, for anybody who can reach it."
    )


class Lifecycle(SettingGroup):
    """Start and stop."""

    stall_s: Seconds = Field(
        120.0,
        description="Seconds without a step of an engine that has work, after which the server is "
        "not ready; the embedded engine then starts anew.",
    )
    linger_s: float = Field(
        5.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="How long a stopping server still serves everything, for proxies "
        "that learn late; 0 on SIGINT.",
    )
    drain_s: float = Field(
        20.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="How long running responses may go on behind that; then they fail.",
    )


class LocalEngine(SettingGroup):
    """Engines in this process."""

    context_tokens: Positive = Field(
        8192, le=2**24, description="Context of one response on the embedded engine."
    )
    slots: Positive = Field(4, le=4096, description="Responses the embedded engine makes at once.")
    threads: int | None = Field(
        None, ge=1, le=4096, description="Threads of the embedded engine, or of onnxruntime."
    )


class SystemMessage(SettingGroup):
    """The system message."""

    identity: Text = Field(
        "You are ChatGPT, a large language model trained by OpenAI.",
        description="First line of the system message.",
    )
    date: Annotated[str, AfterValidator(day)] | None = Field(
        None, description="Fixed date for the system message."
    )


class Logs(SettingGroup):
    """Logs and traces."""

    log_format: Literal["text", "json"] = Field(
        "text", description="How a line of the log is written; each request has one."
    )
    otlp_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        description="Where spans are sent over OTLP/HTTP, `http://collector:4318/v1/traces`; needs "
        "the extra `otel`. None: nowhere.",
    )
    log_level: str = Field(
        "info", pattern="^(debug|info|warning|error)$", description="How much is logged."
    )
