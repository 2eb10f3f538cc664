"""The settings, their defaults and bounds, read from variables named `TRT_RESPONSES_<FIELD>`.

A value that cannot be used stops the start with the field's name and the reason; a variable with
our prefix that is no setting is named in the log. Defaults are such that a laptop survives them.
"""

from __future__ import annotations

import logging
import os
import re
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

PREFIX = "TRT_RESPONSES_"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
MIB = 1024 * 1024
YEAR_S = 366 * 86_400
LARGEST = 2**53 - 1
"""The largest whole number that every store and every JSON reader keeps exactly."""
REDIS_OPTIONS = {"db", "protocol"}
"""Options in a Redis URL's query, besides those of TLS, which begin with `ssl_`."""


def _words(value: Any) -> Any:
    """Split a text at its commas; a tuple stays as it is."""
    return (
        tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value
    )


def _text(value: str) -> str:
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", value):
        raise ValueError("it holds a control character, or bytes that are no UTF-8")
    return value


def _date(value: str) -> str:
    if date.fromisoformat(value).isoformat() != value:
        raise ValueError("expected the form 2026-01-31")
    return value


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not re.fullmatch(r"\*|[\w.~-]+|\[[0-9a-f:.]+\]", value, re.ASCII | re.IGNORECASE):
            raise ValueError(
                f"{value!r} is no host: give its name or address alone, without scheme and port, "
                "an IPv6 address in brackets"
            )
    return values


def _origins(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+", value, re.IGNORECASE):
            raise ValueError(
                f"{value!r} is no origin: expected scheme://host or scheme://host:port, "
                "without a path and without a slash at the end"
            )
    return tuple(map(str.lower, values))  # as browsers write them


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Text = Annotated[str, AfterValidator(_text)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Seconds = Annotated[float, Field(ge=0.001, le=YEAR_S, allow_inf_nan=False)]


class StorePlace(NamedTuple):
    """Where responses are kept, as the setting STORE names it."""

    kind: Literal["memory", "sqlite", "redis"]
    where: str
    """A file's path, a Redis server's URL, or nothing."""


class Settings(BaseModel):
    """All that an operator chooses for one server."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    frontends: int = Field(
        1, ge=1, le=64, description="Processes that serve HTTP, on one port over one engine."
    )
    engine: str | None = Field(
        None,
        description="Name of the prepared engine to serve: its promoted version, or name@3.",
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
    engine_start_s: Seconds = Field(
        1800.0, description="Seconds that an engine's own process may take to load."
    )
    engine_silence_s: Seconds = Field(
        20.0,
        ge=2,
        description="Seconds without a sign of life after which an engine's own process is ended.",
    )
    engine_restarts: int = Field(
        5,
        ge=0,
        le=LARGEST,
        description="Deaths in a row of an engine's own process that are followed by another "
        "start; then the server ends.",
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
    triton: str | None = Field(
        None,
        description="host:port/model of a Triton that serves what `trt-responses export triton` "
        "wrote, in place of an engine of this machine.",
    )
    engines_dir: Path = Field(Path("engines"), description="Where prepared engines are.")
    model: Text | None = Field(None, description="Model id that clients send; the engine's name.")
    model_aliases: Words = Field((), description="More names by which clients may ask for it.")
    any_model: bool = Field(
        False, description="Answer to every model's name; agents ask for small ones of their own."
    )
    api_keys: Words = Field((), description="`owner:key,…`; none: no key is asked for.")
    keys_file: Path | None = Field(
        None, description="File of keys, beside API_KEYS; see `trt-responses keys`. It is watched."
    )
    admin_key: str | None = Field(
        None,
        description="An admin's key, which may drain the server and read the metrics; "
        "`trt-responses drain` sends it.",
    )
    metrics_key: str | None = Field(
        None, description="Key that /metrics asks for, or an admin's; none: anybody may read it."
    )
    metrics_names: Literal["trtllm", "vllm", "none"] = Field(
        "trtllm", description="Whose names the metrics have too, beside our own."
    )
    audit_file: Path | None = Field(
        None, description="Where changes of keys are noted; none: audit.jsonl in data_dir."
    )
    allowed_hosts: Annotated[Words, AfterValidator(_hosts)] = Field(
        (), description="Host headers answered besides the loopback's; `*` allows any."
    )
    allowed_origins: Annotated[Words, AfterValidator(_origins)] = Field(
        (),
        description="Origins whose pages may use the whole API, `https://app.example,…`; `*` "
        "allows any.",
    )
    insecure: bool = Field(
        False, description="Listen beyond the loopback without keys, for anybody who can reach it."
    )
    max_body_bytes: Positive = Field(
        4 * MIB, description="Largest request body; each MiB can hold other streams for some 5 ms."
    )
    max_body_values: Positive = Field(
        50_000,
        description="Values in a request body, counted before it is parsed; each 1,000 can hold "
        "other streams for some 0.5 ms.",
    )
    max_header_bytes: Positive = Field(
        64 * 1024, description="Largest head of a request; larger ones get a 431."
    )
    read_timeout_s: Seconds = Field(
        60.0,
        description="Seconds in which a client has to begin a request, to end its head, and to "
        "send its body or 64 KiB more of it; then a 408, and the connection is closed.",
    )
    max_tools: Positive = Field(1024, description="Tools in one request.")
    max_input: Positive = Field(20_000, description="Items in one request's input.")
    max_metadata: int = Field(16, ge=0, le=16, description="Pairs in a request's metadata.")
    max_calls: int = Field(
        1, ge=1, le=64, description="Calls in one turn; models were trained to make one."
    )
    max_tool_calls: Positive = Field(
        32, description="Calls of the server's own tools in one response, whatever it asks for."
    )
    python: Literal["off", "boxed", "unboxed"] = Field(
        "off",
        description="Whether `code_interpreter` runs here: shut in a box, or, for who insists, "
        "with all rights of the server.",
    )
    shell: Literal["off", "boxed"] = Field(
        "off",
        description="Whether `shell` with a container runs here: shut in a box. Its commands take "
        "what is set for code: seconds, memory, containers.",
    )
    python_executable: Path | None = Field(
        None, description="Interpreter for the model's code, 3.11 or newer; none: the server's own."
    )
    python_s: Seconds = Field(30.0, description="Seconds after which a call's code is ended.")
    python_bytes: int = Field(
        1024 * MIB, ge=256 * MIB, le=LARGEST, description="Memory of one interpreter, addressed."
    )
    container_bytes: int = Field(
        256 * MIB, ge=MIB, le=LARGEST, description="Bytes of files in one container."
    )
    container_files: Positive = Field(10_000, description="Files and directories in one container.")
    container_idle_s: Seconds = Field(
        1200.0, description="Seconds after which a container that nobody uses is removed."
    )
    containers: Positive = Field(16, description="Containers at once, each with an interpreter.")
    containers_per_owner: Positive = Field(4, description="Containers of one owner at once.")
    browser: Literal["off", "boxed", "unboxed"] = Field(
        "off",
        description="Whether `web_search` runs here: pages are read by a process in a box, or, for "
        "who insists, by one without.",
    )
    browser_opens: Literal["seen", "any"] = Field(
        "seen",
        description="URLs that the model may open: those it was shown or given, or any.",
    )
    browser_s: Seconds = Field(20.0, description="Seconds for one page to arrive.")
    browser_page_bytes: int = Field(
        4 * MIB, ge=1024, le=64 * MIB, description="Bytes of one page; what is longer is cut."
    )
    browser_memory_bytes: int = Field(
        768 * MIB, ge=256 * MIB, le=LARGEST, description="Memory of a process that reads a page."
    )
    browser_ports: Words = Field(("80", "443"), description="Ports that pages may be fetched from.")
    private_networks: Words = Field(
        (),
        description="Networks, such as `10.1.0.0/16`, that are not public and may be reached for a "
        "model or a client all the same.",
    )
    search_service: Literal["searxng", "brave"] | None = Field(
        None, description="The service that searches for the browser."
    )
    search_url: str | None = Field(
        None, description="Where it is, such as http://localhost:8080; Brave's own by default."
    )
    search_key: str | None = Field(
        None, repr=False, description="Its key, which Brave asks for; SearXNG: a bearer token."
    )
    mcp_servers: Path | None = Field(
        None,
        description="JSON file of MCP servers by their labels, whose tools requests may use; see "
        "tools.md. Secrets may stand in it.",
    )
    mcp_urls: Words = Field(
        (),
        description="URLs at or below which a request may name an MCP server of its own; none: no "
        "request may.",
    )
    mcp_connect_s: Seconds = Field(
        20.0, description="Seconds for an MCP server to be reached and to list its tools."
    )
    mcp_call_s: Seconds = Field(60.0, description="Seconds after which an MCP call is given up.")
    mcp_bytes: int = Field(
        MIB, ge=1024, le=LARGEST, description="Bytes that an MCP server may send for one request."
    )
    mcp_tools: Positive = Field(
        128, description="Tools of one MCP server in a request; of more, `allowed_tools` chooses."
    )
    mcp_list_s: float = Field(
        300.0, ge=0, le=YEAR_S, description="Seconds for which a list of MCP tools is remembered."
    )
    schema_s: float = Field(
        1.0,
        gt=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="Seconds that compiling one request's schemas may take; then a 400.",
    )
    note_images: bool = Field(
        False,
        description="Let a line of text stand for images, files and sounds; else they are refused.",
    )
    thought_summaries: bool = Field(
        False,
        description="Give thoughts as reasoning summaries to clients that ask for those: some show "
        "nothing else.",
    )
    dialect: Literal["openai", "open-responses"] = Field(
        "openai", description="How events are spelled unless `x-trt-dialect` says otherwise."
    )
    websockets: int = Field(
        64,
        ge=0,
        le=LARGEST,
        description="WebSocket connections open at once; 0: none, and each upgrade gets a 426.",
    )
    websocket_s: Seconds = Field(
        3600.0, description="How long a WebSocket connection lives; clients then open another."
    )
    websocket_running: Positive = Field(
        16, description="Responses made at once on one WebSocket connection; others wait."
    )
    websocket_lanes: Positive = Field(
        32, description="Values of `stream_id` on one WebSocket connection."
    )
    websocket_bytes: Positive = Field(
        8 * MIB,
        description="Bytes of unstored responses that one WebSocket connection can continue.",
    )
    max_running: Positive | None = Field(
        None, description="Responses that the engine makes at once; none: as many as it can."
    )
    max_waiting: int = Field(
        256,
        ge=0,
        le=LARGEST,
        description="Responses that wait for a place in the engine; more get a 503 `server_busy`.",
    )
    max_waiting_tokens: Positive = Field(
        1_000_000, description="Tokens of the prompts that wait; with more a prompt gets a 503."
    )
    owner_running: Positive | None = Field(
        None, description="Responses of one owner that the engine makes at once; its others wait."
    )
    owner_waiting: int | None = Field(
        None,
        ge=0,
        le=LARGEST,
        description="Responses of one owner that wait; more get a 429. None: half of MAX_WAITING "
        "where keys are asked for.",
    )
    owner_requests_per_minute: Positive | None = Field(
        None, description="Responses that one owner may ask for in a minute; more get a 429."
    )
    owner_tokens_per_minute: Positive | None = Field(
        None, description="Tokens, read and written, that one owner may use in a minute."
    )
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
    conversation_items: Positive = Field(
        10_000, description="Items of one conversation; a conversation counts as a response does."
    )
    store_age_s: float | None = Field(
        30 * 86_400,
        gt=0,
        le=100 * YEAR_S,
        allow_inf_nan=False,
        description="Age at which stored responses expire.",
    )
    store_frame_bytes: Positive = Field(
        64 * MIB, description="Bytes kept of background streams, to replay them."
    )
    store_synchronous: Literal["normal", "full"] = Field(
        "normal",
        description="SQLite: what survives; normal the server's death, full the machine's too.",
    )
    lease_s: Seconds = Field(
        30.0, ge=0.1, description="How long a dead server's background responses look alive."
    )
    takeover_s: float = Field(
        300.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="How long after that another server over the same history may go on with them, "
        "before they read as failed; 0: none does.",
    )
    max_background: Positive = Field(
        32, description="Background responses of one owner made at once; more get a 429."
    )
    max_backlog_bytes: Positive = Field(
        4 * MIB, description="Bytes that wait for a slow client of a stream before it is dropped."
    )
    keep_alive_s: Seconds = Field(
        10.0, ge=0.1, description="Silence after which a stream gets a comment line."
    )
    keep_alive_event_s: Seconds = Field(
        30.0,
        ge=0.1,
        description="Silence after which an event is repeated: some clients count nothing else.",
    )
    playground: bool = Field(
        True, description="Show browsers a page at `/` with which to try the server."
    )
    explain: Literal["full", "redacted", "off"] = Field(
        "full",
        description="What GET /v1/responses/{id}/explain tells a response's owner; redacted: "
        "counts in the place of texts.",
    )
    explain_bytes: int = Field(
        8 * MIB,
        ge=0,
        le=LARGEST,
        description="Bytes kept of the newest runs, to explain them.",
    )
    idempotency_keys: Positive = Field(
        256, description="Requests with an Idempotency-Key that are remembered at once."
    )
    idempotency_ttl_s: Seconds = Field(600.0, description="How long they are remembered.")
    seal_keys: Words = Field(
        (),
        description="Keys that seal reasoning, base64 of 32 bytes each, shared by replicas; the "
        "first seals, all open; none: a key file in data_dir.",
    )
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
        description="How long a server that is told to stop still serves everything, for proxies "
        "that learn late; 0 on SIGINT.",
    )
    drain_s: float = Field(
        20.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="How long running responses may go on behind that; then they fail.",
    )
    context_tokens: Positive = Field(
        8192, le=2**24, description="Context of one response on the embedded engine."
    )
    slots: Positive = Field(4, le=4096, description="Responses the embedded engine makes at once.")
    threads: int | None = Field(
        None, ge=1, le=4096, description="Threads of the embedded engine, or of onnxruntime."
    )
    identity: Text = Field(
        "You are ChatGPT, a large language model trained by OpenAI.",
        description="First line of the system message.",
    )
    knowledge_cutoff: Text = Field("2024-06", description="Second line of the system message.")
    date: Annotated[str, AfterValidator(_date)] | None = Field(
        None, description="Fixed date for the system message."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="How a line of the log is written; each request has one."
    )
    otlp_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        description="Where spans are sent over OTLP/HTTP, `http://collector:4318/v1/traces`; needs "
        "the extra `otel`. None: nowhere.",
    )
    otlp_names: Literal["gen_ai", "none"] = Field(
        "gen_ai", description="Names of a span's values: the conventions' for AI, or ours alone."
    )
    log_level: str = Field(
        "info", pattern="^(debug|info|warning|error)$", description="How much is logged."
    )

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, **given: Any
    ) -> Settings:
        """Settings from the environment; those in `given` that are not None come before them."""
        for sentence in misspelt(environment):
            logger.warning("%s", sentence)
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
            why = first["msg"].removeprefix("Value error, ")
            raise StartupError(f"{name}: {why} (got {first['input']!r}).") from None

    def owners(self) -> dict[str, str]:
        """The owner that each API key stands for."""
        owners: dict[str, str] = {}
        for place, entry in enumerate(self.api_keys, 1):
            owner, _, key = entry.partition(":")
            if not (owner and key):
                raise StartupError(f"{PREFIX}API_KEYS: entry {place} is not of the form owner:key.")
            if not (key.isascii() and key.isprintable()):
                raise StartupError(
                    f"{PREFIX}API_KEYS: the key of entry {place} has a character that clients "
                    "cannot send in a header: use letters, digits and signs of ASCII."
                )
            if owners.setdefault(key, owner) != owner:
                raise StartupError(f"{PREFIX}API_KEYS: entry {place} gives another owner's key.")
        return owners

    @property
    def asks_for_keys(self) -> bool:
        return bool(self.api_keys) or self.keys_file is not None

    @property
    def audit_path(self) -> Path:
        return self.audit_file or self.data_dir / "audit.jsonl"

    def hosts(self) -> tuple[str, ...]:
        """Host headers that are answered. With a key asked for, any host may be allowed by `*`."""
        return (*LOOPBACK, self.host, f"[{self.host}]", *self.allowed_hosts)

    def store_place(self) -> StorePlace:
        """Where responses are kept; a STORE that names no place stops the start with the reason.
        Passwords are not repeated."""
        url = self.store or "memory://"
        kind, _, rest = url.partition("://")
        if kind == "memory" and not rest:
            return StorePlace("memory", "")
        if kind == "sqlite" and (path := rest.removeprefix("/")):
            return StorePlace("sqlite", path)
        if kind in ("redis", "rediss", "unix"):
            if why := _redis_fault(url):
                raise StartupError(f"{PREFIX}STORE: {why}.")
            return StorePlace("redis", url)
        raise StartupError(
            f"{PREFIX}STORE: expected memory://, sqlite:///path or redis://host:port/number, "
            f"got {kind + '://…' if '://' in url else url!r:.60}."
        )

    def check_exposure(self) -> None:
        """A server that others can reach needs keys, unless the operator insists."""
        if self.host in LOOPBACK or self.keys_file is not None or self.insecure:
            return
        if not self.owners():
            raise StartupError(
                f"Listening on {self.host} without API keys lets anybody who can reach it use it: "
                f"set {PREFIX}KEYS_FILE or {PREFIX}API_KEYS, or {PREFIX}INSECURE=1 to insist."
            )


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that has our prefix and is no setting, with the nearest one."""
    known = [name.upper() for name in Settings.model_fields]
    sentences = []
    for variable in sorted(environment):
        prefix, name = variable[: len(PREFIX)], variable[len(PREFIX) :]
        if prefix.upper() != PREFIX or (prefix == PREFIX and name in known):
            continue
        near = get_close_matches(name.upper(), known, 1)
        meant = f"did you mean {PREFIX}{near[0]}?" if near else "docs/settings.md lists them all."
        sentences.append(f"{variable} is no setting and is ignored: {meant}")
    return sentences


def _redis_fault(url: str) -> str | None:
    """The reason why a Redis URL names no server; None when it names one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the port of the Redis server is no number from 1 to 65535"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    number = options.get("db", "0")
    if parts.scheme == "unix":
        place = parts.path
    else:
        place, number = parts.hostname or "", parts.path.strip("/") or number
    if not place or port == 0:
        return "expected redis://host:port/number or unix:///path/of/socket"
    if not (number.isascii() and number.isdecimal() and len(number) < 6):
        return f"the database of the Redis server must be a number, got {number!r:.60}"
    for name in options:
        if name not in REDIS_OPTIONS and not name.startswith("ssl_"):
            return f"{name!r:.60} is no option of a Redis URL that this server knows"
    return None
