"""Serves from copies of the package that lack a folder: `python -m tests.support.without`.

Takes the directories of the copies as JSON, by the folder that each lacks. Each copy is served in a
process of its own, which is forked when the app is loaded, for the app loads none of the folders:
that is checked. What comes after is loaded from the copy. Prints what is wrong.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from tests.support.asgi import Client
    from tests.support.served import Served
    from trt_responses.run.runs import Runs

    Json = dict[str, Any]

PACKAGE = "trt_responses"
SHARED = (f"{PACKAGE}.app", "tests.support.served", "numpy")
"""What every copy imports, and what takes the time."""
LOGPROBS = "message.output_text.logprobs"
FUNCTION = {"type": "function", "name": "look"}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
ASKED = {"input": "Hello"}
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
SEVERAL = SimpleNamespace(frontends=2, option=str)
NO_ROUTE = ("unknown_url", "method_not_allowed")
"""The latter where the path is that of a response, whose id it would be."""


class Post(NamedTuple):
    """A request for a response that asks for what is missing, and the field that is named."""

    fields: Json
    field: str
    path: str = "/v1/responses"
    headers: Mapping[str, str] = {}


class Ignored(NamedTuple):
    """A request with a field that has no meaning then, which a header says."""

    fields: Json
    field: str
    path: str = "/v1/responses"


class Start(NamedTuple):
    """A server that does not start with these settings."""

    settings: Json


REFUSED: Mapping[str, Sequence[Post | Ignored | Start | str]] = {
    "features.action_tools": [
        Post(ASKED | {"tools": [{"type": kind}]}, "tools[0]")
        for kind in ("shell", "local_shell", "apply_patch")
    ],
    "features.agent_messages": [
        Post({"input": [{"type": "agent_message", "author": "a"}]}, "input[0]")
    ],
    "features.background": [
        Post(ASKED | {"background": True}, "background"),
        Ignored(
            ASKED | {"stream": True, "stream_options": {"resumable_seconds": 1}},
            "stream_options.resumable_seconds",
        ),
    ],
    "features.batches": ["/v1/batches"],
    "features.cache_diagnostics": [
        Post(
            ASKED | {"prompt_cache_options": {"comparison_response_id": "resp_1"}},
            "prompt_cache_options",
        )
    ],
    "features.card": [],
    "features.cassette": [Start({"engine": "replay://c.jsonl"})],
    "features.compaction": [
        Post(ASKED | {"context_management": [{"type": "compaction"}]}, "context_management"),
        Post({"input": [{"type": "compaction_trigger"}]}, "input[0]"),
        "/v1/responses/compact",
    ],
    "features.connections": [],
    "features.containers": ["/v1/containers"],
    "features.conversations": [
        Post(ASKED | {"conversation": "conv_1"}, "conversation"),
        "/v1/conversations",
    ],
    "features.cors": [Start({"allowed_origins": "https://app.example"})],
    "features.engine_headers": [],
    "features.description": ["GET /v1/fields", "GET /docs", "GET /openapi.json"],
    "features.encryption": [Start({"store_keys": "store.keys"})],
    "features.explain": ["GET /v1/responses/resp_1/explain"],
    "features.files": [Start({"files": "files"}), "/v1/files", "/v1/batches"],
    "features.forms": [Start({"files": "files"}), "/v1/files", "/v1/containers"],
    "features.guides": [
        Post(ASKED | {"text": {"format": {"type": "json_object"}}}, "text.format"),
        Post(ASKED | {"tools": [FUNCTION], "tool_choice": "required"}, "tool_choice"),
        Post(ASKED | {"tools": [FUNCTION | {"strict": True}]}, "tools[0].strict"),
        Post(ASKED | {"reasoning": {"max_tokens": 9}}, "reasoning.max_tokens"),
    ],
    "features.health": [
        *("GET /health", "GET /health/live", "GET /v1/health/ready"),
        *("GET /metrics", "GET /v2/health/ready"),
    ],
    "features.hosted_tools": [Post(ASKED | {"tools": [CODE]}, "tools[0]")],
    "features.idempotency": [Post(ASKED, "idempotency-key", headers={"idempotency-key": "k"})],
    "features.include": [Post(ASKED | {"include": ["metrics"]}, "include")],
    "features.input_settings": [
        Post({"input": [{"type": "additional_tools", "role": "developer"}]}, "input[0]"),
        Post({"input": [{"type": "configuration_update"}]}, "input[0]"),
    ],
    "features.known_tools": [],
    "features.limits": [
        Start({"keys_file": "keys.json"}),
        Start({"api_keys": "ann:key-a"}),
        "/admin/drain",
    ],
    "features.listing": ["GET /v1/responses/resp_1/input_items", "/v1/conversations"],
    "features.logprobs": [Post(ASKED | {"include": [LOGPROBS]}, "include")],
    "features.long_runs": [Post({"input": "a" * 513}, "input")],
    "features.metrics": ["GET /metrics"],
    "features.models": ["GET /v1/models", "GET /v1/models/demo"],
    "features.open_responses": [
        Post(ASKED, "x-trt-dialect", headers={"x-trt-dialect": "open-responses"})
    ],
    "features.migrate": [],
    "features.owners": ["DELETE /admin/owners/ann", "GET /admin/owners/ann/export"],
    "features.parallel_calls": [Start({"max_calls": 2})],
    "features.peer_words": [
        *(
            Ignored(ASKED | {name: value}, name)
            for name, value in (
                ("guided_json", {"type": "object"}),
                ("min_tokens", 1),
                ("stop_token_ids", [1]),
                ("repetition_penalty", 1.1),
                ("logit_bias", {"1": 1}),
            )
        ),
        Ignored(CHAT | {"logit_bias": {"1": 1}}, "logit_bias", "/v1/chat/completions"),
    ],
    "features.prefill": [],
    "features.programs": [
        Post({"input": [{"type": "program", "id": "p", "call_id": "c"}]}, "input[0]"),
        Post(ASKED | {"tools": [{"type": "programmatic_tool_calling"}]}, "tools[0]"),
    ],
    "features.recovery": [Post(ASKED | {"background": True}, "background")],
    "features.references": [
        Post({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        Start({"seal_keys": "a"}),
    ],
    "features.regions": [Start({"regions": "eu,us"})],
    "features.retention": [Start({"keys_file": "keys.json"})],
    "features.rollout": ["/admin/engines/demo/load"],
    "features.run_traces": [
        Post(ASKED | {"include": ["metrics"]}, "include"),
        "GET /v1/responses/resp_1/explain",
    ],
    "features.script": [Start({"engine": "script://auto"})],
    "features.seal": [
        Post(ASKED | {"include": ["reasoning.encrypted_content"]}, "include"),
        Start({"seal_keys": "a"}),
    ],
    "features.second_chance": [],
    "features.several": [Start({"engine": "several://gpt=grpc://127.0.0.1:1/gpt"})],
    "features.shapes": [],
    "features.stall": [],
    "features.steer": ["/v1/responses/resp_1/steer"],
    "features.stop": [Post(CHAT | {"stop": "x"}, "stop", "/v1/chat/completions")],
    "features.stored": [
        "GET /v1/responses/resp_1",
        "DELETE /v1/responses/resp_1",
        "GET /v1/responses/resp_1/input_items",
    ],
    "features.summaries": [Start({"thought_summaries": True})],
    "features.tool_items": [
        Post({"input": [{"type": "web_search_call"}]}, "input[0]"),
        Post(ASKED | {"tools": [{"type": "custom", "name": "run"}]}, "tools[0]"),
        Post({"input": [{"type": "shell_call", "call_id": "c", "action": {}}]}, "input[0]"),
    ],
    "features.tool_search": [
        Post(ASKED | {"tools": [{"type": "tool_search"}]}, "tools[0]"),
        Post({"input": [{"type": "tool_search_output", "tools": []}]}, "input[0]"),
    ],
    "features.traces": [Start({"otlp_endpoint": "http://127.0.0.1:1/v1/traces"})],
    "features.turn_usage": [
        Post(ASKED | {"tools": [CODE]}, "tools[0]"),
        "/v1/responses/compact",
    ],
    "features.truncation": [Post(ASKED | {"truncation": "auto"}, "truncation")],
    "features.vocabularies": [],
    "features.webhooks": [Start({"webhook_url": "http://127.0.0.1:1"})],
    "apis.chat": ["/v1/chat/completions"],
    "apis.decisions": ["/v1/decisions", "/v1/systemone"],
    "apis.kserve": ["GET /v2/health/ready"],
    "apis.messages": ["/v1/messages"],
    "apis.playground": ["GET /"],
    "apis.websocket": [],
    "engines.grpc": [Start({"engine": "grpc://127.0.0.1:1/demo"})],
    "engines.llamacpp": [Start({"engine": "llama-server://127.0.0.1:1"})],
    "engines.remote": [],
    "engines.sglang": [Start({"engine": "sglang://127.0.0.1:1"})],
    "engines.tensorrt": [],
    "engines.triton": [Start({"engine": "triton://127.0.0.1:1/demo"})],
    "engines.trtllm": [],
    "engines.vllm": [Start({"engine": "vllm://127.0.0.1:1"})],
    "stores.objects": [Start({"store": "postgresql://127.0.0.1:1/x?objects=https://h/b"})],
    "stores.postgres": [Start({"store": "postgresql://127.0.0.1:1/x"})],
    "stores.redis": [Start({"store": "redis://127.0.0.1:1"})],
    "stores.sqlite": [Start({"store": "sqlite:///kept.db"})],
    "tools.browser": [Start({"browser": "boxed", "search_url": "http://localhost"})],
    "tools.mcp": [Start({"mcp_urls": ["https://example.com"]})],
    "tools.python": [Start({"python": "boxed"})],
    "dialects.templates": [],
    "fleet": [Start({"frontends": 2})],
}
"""What each folder brings and nothing else does: it is refused, by the name of the field or the
setting, or no route has the path."""

CALLED: Mapping[str, tuple[str, str, Sequence[object]]] = {
    "engines.llamacpp": ("backends.engines", "llamacpp_over", (None, None)),
    "engines.remote": ("cli.serve", "server_for", (SEVERAL,)),
    "engines.tensorrt": ("backends.engines", "tensorrt_over", (None, None, None)),
    "engines.trtllm": ("backends.engines", "trtllm_over", (None, {}, {})),
    "dialects.templates": ("backends.dialects", "template_dialect", (None, None)),
    "fleet": ("cli.serve", "server_for", (SEVERAL,)),
}
"""A function that needs the folder, and says that it is not installed."""


async def faults(folder: str) -> list[str]:
    """What is wrong with a server that lacks this folder."""
    from tests.support.served import served
    from trt_responses.backends.stores import store_of
    from trt_responses.settings import Settings
    from trt_responses.stores.whole import says_nothing

    store, tools = store_of(Settings(store="memory"), says_nothing), []
    if folder in ("features.hosted_tools", "features.turn_usage"):
        from tests.support.scripted_tool import ScriptedTool

        tools = [ScriptedTool("4")]
    async with served(store=store, tools=tools) as s:
        found = [fault async for fault in _answered(s)]
        for one in REFUSED[folder]:
            if isinstance(one, Post):
                found += await _refused(s.client, one)
            elif isinstance(one, Ignored):
                found += await _ignored(s.client, one)
            elif isinstance(one, str):
                found += await _no_route(s.client, one)
        if folder == "apis.websocket" and s.app.state.sockets is not None:
            found.append("there is a route for sockets")
        if folder == "features.cors" and s.app.state.server.preflight is not None:
            found.append("there are preflights")
        if folder == "features.connections" and s.app.state.server.http is not None:
            found.append("there are connections of its own")
        if folder == "features.prefill":
            found += await _prefilled(s.runs)
    return [*found, *_started(folder), *_called(folder)]


async def _answered(s: Served) -> AsyncIterator[str]:
    plain = await s.client.create()
    if plain.status != 200 or b"Hello there, friend." not in plain.body:
        yield f"a plain answer: {plain.body!r}"
    streamed = await s.client.create(stream=True)
    last = streamed.events[-1]
    if last["type"] != "response.completed" or b"Hello there, friend." not in streamed.body:
        yield f"a streamed answer: {streamed.body!r}"


async def _refused(client: Client, one: Post) -> list[str]:
    from tests.support.asgi import JSON

    body = orjson.dumps({"model": "demo"} | one.fields)
    reply = await client.send("POST", one.path, body, JSON | dict(one.headers))
    error = reply.error if reply.status == 400 else {}
    named = error.get("param") == one.field and "not installed" in error["message"]
    return [] if named else [f"{one.fields}: {reply.status} {reply.body!r}"]


async def _ignored(client: Client, one: Ignored) -> list[str]:
    reply = await client.send("POST", one.path, orjson.dumps({"model": "demo"} | one.fields))
    named = reply.headers.get("x-trt-ignored", "").split(", ")
    return [] if one.field in named else [f"{one.fields}: {reply.status} {reply.body!r}"]


async def _no_route(client: Client, one: str) -> list[str]:
    method, _, path = one.rpartition(" ")
    reply = await client.send(method or "POST", path, b"" if method else b"{}")
    return [] if reply.error["code"] in NO_ROUTE else [f"{one}: {reply.status} {reply.body!r}"]


async def _prefilled(runs: Runs) -> list[str]:
    """A request over a socket may have its prompt read, and no other."""
    from dataclasses import replace

    from trt_responses.accept.responses import accept
    from trt_responses.errors import InvalidRequest
    from trt_responses.run.request import RunRequest
    from trt_responses.wire.request import Request

    wanted = replace(accept(Request(model="demo", input="Hello")), generates=False)
    try:
        await runs.start(RunRequest(wanted, "", 0))
    except InvalidRequest as error:
        return [] if error.param == "generate" else [error.message]
    return ["a prompt is read"]


def _started(folder: str) -> Iterator[str]:
    from tests.support.scripted.engine import ScriptedEngine, StepClock
    from trt_responses.app import create_app
    from trt_responses.errors import StartupError
    from trt_responses.settings import Settings

    for one in REFUSED[folder]:
        if isinstance(one, Start):
            engine = (
                None
                if folder.startswith("engines.") or "engine" in one.settings
                else ScriptedEngine((), clock=StepClock.free())
            )
            try:
                create_app(Settings(**({"store": "memory"} | one.settings)), engine=engine)
            except StartupError as error:
                if "is not installed" not in str(error):
                    yield f"{one.settings}: {error}"
            else:
                yield f"{one.settings}: it starts"


def _called(folder: str) -> Iterator[str]:
    from trt_responses.errors import StartupError

    if folder not in CALLED:
        return
    module, name, arguments = CALLED[folder]
    try:
        getattr(import_module(f"{PACKAGE}.{module}"), name)(*arguments)
    except StartupError as error:
        if "is not installed" not in str(error):
            yield f"{name}: {error}"
    else:
        yield f"{name}: no error"


def serve_without(folder: str, directory: str) -> list[str]:
    """In a process of its own: what is wrong with the copy in this directory."""
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE and hasattr(module, "__path__"):
            module.__path__ = [str(Path(directory, *name.split(".")))]
    return asyncio.run(faults(folder))


def load_shared() -> None:
    for name in SHARED:
        import_module(name)
    loaded = [folder for folder in REFUSED if f"{PACKAGE}.{folder}" in sys.modules]
    assert loaded == [], f"{loaded}: the app loads them, so a copy without them would not start"
    from tests.support import tokens
    from trt_responses.harmony.dialect import harmony
    from trt_responses.schema.matching import pieces_of

    pieces_of(
        harmony(tokens.vocabulary()).lexicon.token_bytes
    )  # their tables are kept, for any app
    gc.disable()  # a process ends before it would be worth it


def main(copies: Mapping[str, str]) -> int:
    load_shared()
    return max([_in_a_process(*each) for each in copies.items()])


def _in_a_process(folder: str, directory: str) -> int:
    if (child := os.fork()) != 0:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        found = serve_without(folder, directory)
        print(*(f"without {folder}: {fault}" for fault in found), sep="\n", end="", flush=True)
        status = int(bool(found))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])) != 0)
