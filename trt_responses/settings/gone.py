"""Variables that earlier versions read, each with what to do instead. A start that finds one is
refused: it would not do what its operator expects."""

from __future__ import annotations

FIXED = "it is fixed at {}; unset it"

GONE = {
    "TRITON": "name the engine with TRT_RESPONSES_ENGINE=triton://host:port/model",
    "GRPC": "name the engine with TRT_RESPONSES_ENGINE=grpc://host:port/model",
    "ANY_MODEL": "set TRT_RESPONSES_MODEL_ALIASES=* instead",
    "SEARCH_SERVICE": "set TRT_RESPONSES_SEARCH_URL to the URL of a SearXNG server, or to brave",
    "STORE_SYNCHRONOUS": "add it to the store: TRT_RESPONSES_STORE=sqlite:///path?synchronous=full",
    "STORE_FRAME_BYTES": "it is a quarter of TRT_RESPONSES_STORE_BYTES; set that",
    "CONTAINERS_PER_OWNER": "it is a quarter of TRT_RESPONSES_CONTAINERS; set that",
    "AUDIT_FILE": "the file is audit.jsonl in TRT_RESPONSES_DATA_DIR; set that",
    "OTLP_NAMES": "spans have the conventions' names; unset it",
    "ENGINE_START_S": FIXED.format("1800 s"),
    "ENGINE_RESTARTS": FIXED.format(5),
    "MAX_BODY_VALUES": FIXED.format(64_000),
    "MAX_HEADER_BYTES": FIXED.format("64 KiB"),
    "READ_TIMEOUT_S": FIXED.format("60 s"),
    "MAX_TOOLS": FIXED.format(1024),
    "MAX_INPUT": FIXED.format(10_000),
    "MAX_METADATA": FIXED.format(16),
    "SCHEMA_S": FIXED.format("1 s"),
    "MAX_WAITING_TOKENS": FIXED.format("1,000,000"),
    "MAX_BACKLOG_BYTES": FIXED.format("4 MiB"),
    "KEEP_ALIVE_EVENT_S": FIXED.format("30 s"),
    "KNOWLEDGE_CUTOFF": FIXED.format("2024-06, which gpt-oss was trained with"),
    "MAX_BACKGROUND": FIXED.format("32 for each owner"),
    "EXPLAIN_BYTES": FIXED.format("8 MiB; TRT_RESPONSES_EXPLAIN=off keeps nothing"),
    "IDEMPOTENCY_KEYS": FIXED.format(256),
    "IDEMPOTENCY_TTL_S": FIXED.format("600 s"),
    "CONVERSATION_ITEMS": FIXED.format(10_000),
    "WEBSOCKET_S": FIXED.format("3600 s"),
    "WEBSOCKET_RUNNING": FIXED.format(16),
    "WEBSOCKET_LANES": FIXED.format(32),
    "WEBSOCKET_BYTES": FIXED.format("8 MiB"),
    "CONTAINER_FILES": FIXED.format(10_000),
    "CONTAINER_IDLE_S": FIXED.format("1200 s"),
    "BROWSER_S": FIXED.format("20 s"),
    "BROWSER_PAGE_BYTES": FIXED.format("4 MiB"),
    "BROWSER_MEMORY_BYTES": FIXED.format("768 MiB"),
    "MCP_CONNECT_S": FIXED.format("20 s"),
    "MCP_BYTES": FIXED.format("1 MiB"),
    "MCP_TOOLS": FIXED.format(128),
    "MCP_LIST_S": FIXED.format("300 s"),
}
