"""What we use of uvicorn that uvicorn does not promise: each name, in the pinned version.

uvicorn is pinned exactly. When the pin moves, this test names what has to be looked at.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http import flow_control, httptools_impl
from uvicorn.protocols.websockets import websockets_sansio_impl

import trt_responses
import trt_responses.features.connections as connections
from trt_responses.apis.websocket.protocol import SocketProtocol
from trt_responses.features.connections.protocol import Protocol
from trt_responses.features.connections.silence import Flow
from trt_responses.serve.server import Server

CONNECTION = {
    *("_get_upgrade", "answered", "app_state", "config", "cycle", "flow", "headers", "loop"),
    *("parser", "pipeline", "scope", "server_state", "transport", "url"),
}
"""Attributes of a connection that we read or set; `answered` is ours."""
CYCLE = {
    *("disconnected", "keep_alive", "message_event", "response_complete", "response_started"),
    "transport",
}
"""Attributes of a request and its reply."""
FLOW = {"read_paused", "resume_reading"}
SOCKET = {
    *("app", "close_sent", "close_timer", "config", "conn", "curr_msg_data_type"),
    *("disconnected", "frames", "handshake_complete", "logger", "loop", "queue", "read_paused"),
    *("scope", "send", "send_500_response", "transport", "writable"),
}
"""Attributes of a WebSocket connection that we read or set."""
OVERRIDDEN = {
    Protocol: {
        *("_should_upgrade", "_start_asgi_task", "_unsupported_upgrade_warning"),
        *("connection_lost", "connection_made", "data_received", "handle_websocket_upgrade"),
        *("on_body", "on_headers_complete", "on_message_begin"),
        *("on_message_complete", "on_response_complete", "send_400_response"),
    },
    Flow: {"__init__", "resume_reading"},
    SocketProtocol: {
        *("__init__", "connection_lost", "connection_made", "data_received", "handle_cont"),
        *("handle_parser_exception", "handle_ping", "on_task_complete", "receive", "run_asgi"),
        *("send_receive_event_to_app", "shutdown", "start_keepalive"),
    },
    Server: {"__init__", "handle_exit", "on_tick", "shutdown", "startup"},
}
"""Methods of uvicorn's that ours take the place of, or come before."""
BASES = {
    Protocol: httptools_impl.HttpToolsProtocol,
    Flow: flow_control.FlowControl,
    SocketProtocol: websockets_sansio_impl.WebSocketsSansIOProtocol,
    Server: uvicorn.Server,
}


def test_the_version_is_pinned_and_is_the_one_that_is_tested() -> None:
    root = Path(trt_responses.__path__[0]).parent
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"uvicorn[standard]=={version('uvicorn')}" in wanted
    constraints = (root / "constraints.txt").read_text().split()
    assert f"uvicorn=={version('uvicorn')}" in constraints


@pytest.mark.parametrize("ours", OVERRIDDEN, ids=lambda ours: ours.__name__)
def test_what_ours_override_is_there_and_takes_the_same(ours: type) -> None:
    base = BASES[ours]
    lines = [kind for kind in ours.__mro__ if kind.__module__.startswith("trt_responses")]
    overridden = {
        name
        for kind in lines
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and name in vars(base)
    }
    overridden -= {"__init__"} if ours is Protocol else set()
    assert overridden == OVERRIDDEN[ours]
    declared = _declared(base)
    for name in overridden - {"__init__"}:
        assert list(inspect.signature(getattr(ours, name)).parameters) == declared[name], name


def _declared(kind: type) -> dict[str, list[str]]:
    """The parameters of each method as uvicorn's source has them.

    A package may put a wrapper in a method's place when it is imported: sse_starlette, which the
    MCP SDK brings, wraps `Server.handle_exit`.
    """
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    methods = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name: [arg.arg for arg in node.args.args]
        for node in tree.body
        if isinstance(node, methods)
    }


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (httptools_impl.HttpToolsProtocol, CONNECTION - {"answered"}),
        (httptools_impl.RequestResponseCycle, CYCLE),
        (flow_control.FlowControl, FLOW),
        (websockets_sansio_impl.WebSocketsSansIOProtocol, SOCKET),
        (uvicorn.Server, {"server_state", "servers", "should_exit"}),
        (uvicorn.server.ServerState, {"tasks"}),
        (uvicorn.Server, {"started"}),
    ],
)
def test_what_ours_read_and_set_is_there(kind: type, names: set[str]) -> None:
    source = inspect.getsource(kind)
    for name in names:
        assert re.search(rf"self\.{name}\b|def {name}\b", source), name


def test_no_other_name_of_a_connection_a_cycle_or_a_flow_is_used() -> None:
    """Read from the files themselves, so that a name cannot come in unnoticed."""
    used: dict[str, set[str]] = {"cycle": set(), "flow": set(), "self": set()}
    defined: set[str] = set()
    for name in ("protocol.py", "silence.py"):
        tree = ast.parse((Path(connections.__path__[0]) / name).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                defined.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                defined.add(node.target.id)
            elif isinstance(node, ast.Assign):
                defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Attribute):
                owner = node.value
                held = owner.attr if isinstance(owner, ast.Attribute) else ""
                held = owner.id if isinstance(owner, ast.Name) else held
                if held in used:
                    used[held].add(node.attr)
    ours = {name for name in defined if name not in CONNECTION} | {"_now", "resumed"}
    assert used["cycle"] <= CYCLE
    assert used["flow"] <= FLOW | {"resumed"}
    theirs = used["self"] - ours - FLOW
    assert theirs <= CONNECTION | OVERRIDDEN[Protocol], theirs
