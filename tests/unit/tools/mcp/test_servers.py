"""Which URLs of a request stand at or below one that the operator allows; files of servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from trt_responses.errors import StartupError
from trt_responses.tools.mcp.servers import Local, Remote, Server, place_of, servers_in

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED = "https://mcp.example.com/team"
WITHIN = [
    "https://mcp.example.com/team",
    "https://mcp.example.com/team/",
    "https://mcp.example.com/team/mcp?key=1",
    "https://mcp.example.com:443/team",
    "HTTPS://MCP.Example.COM/team",
    "https://mcp.example.com./team",
    "https://mcp.example.com/team#part",
]
ELSEWHERE = [
    "http://mcp.example.com/team",
    "https://mcp.example.com:8443/team",
    "https://mcp.example.com/teams",
    "https://mcp.example.com/Team",
    "https://mcp.example.com/",
    "https://mcp.example.com",
    "https://mcp.example.com//team",
    "https://evil.example/https://mcp.example.com/team",
    "https://mcp.example.com.evil.example/team",
    "https://evil-mcp.example.com/team",
    "https://evil.example?@mcp.example.com/team",
    "https://evil.example#@mcp.example.com/team",
]
REFUSED = [
    ("https://user@mcp.example.com/team", "user name"),
    ("https://mcp.example.com@evil.example/team", "user name"),
    ("https://:word@mcp.example.com/team", "user name"),
    ("https://mcp.example.com/team/../admin", "steps"),
    ("https://mcp.example.com/team/./admin", "steps"),
    ("https://mcp.example.com/team/%2e%2e/admin", "characters"),
    ("https://mcp.example.com/team/%2E./admin", "characters"),
    ("https://mcp.example.com/team%2f..%2fadmin", "characters"),
    ("https://mcp.example.com/team/..%5cadmin", "characters"),
    ("https://mcp.example.com\\@evil.example/team", "characters"),
    ("https://mcp.example.com/team\n/x", "characters"),
    (" https://mcp.example.com/team", "characters"),
    ("https://mcp.examp\u200ble.com/team", "characters"),
    ("https://ｍcp.example.com/team", "characters"),
    ("https:///team", "no host"),
    ("https://./team", "no host"),
    ("https:mcp.example.com/team", "no host"),
    ("//mcp.example.com/team", "https://"),
    ("file:///team", "https://"),
    ("ftp://mcp.example.com/team", "https://"),
    ("https://mcp.example.com:99999/team", "Port"),
    ("https://mcp.example.com:4x3/team", "Port"),
    ("https://[::1/team", "IPv6"),
    ("https://mcp.example.com:0/team", "port 0"),
]


@pytest.mark.parametrize("url", WITHIN)
def test_a_url_within_an_allowed_one(url: str) -> None:
    assert place_of(ALLOWED).holds(place_of(url))


@pytest.mark.parametrize("url", ELSEWHERE)
def test_a_url_elsewhere(url: str) -> None:
    assert not place_of(ALLOWED).holds(place_of(url))


@pytest.mark.parametrize(("url", "why"), REFUSED)
def test_a_url_that_not_everybody_reads_alike_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        place_of(url)


def test_a_whole_host_and_a_port_of_its_own_can_be_allowed() -> None:
    host = place_of("http://[::1]:8080")
    assert host.holds(place_of("http://[::1]:8080/any/path"))
    assert not host.holds(place_of("http://[::1]/any/path"))


SERVERS: dict[str, Any] = {
    "files": {"command": "run", "args": ["a"], "env": {"A": "b"}, "cwd": "/", "shared": True},
    "docs": {"type": "http", "url": "https://a.test/mcp", "headers": {"X": "y"}, "tools": ["z"]},
    "slow": {"url": "https://a.test/slow", "timeout_s": 300},
    "quick": {"command": "run", "timeout_s": 0.5},
}


@pytest.mark.parametrize("told", [SERVERS, {"mcpServers": SERVERS}], ids=["bare", "wrapped"])
def test_servers_of_a_file(tmp_path: Path, told: Any) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps(told))
    assert servers_in(path, "SETTING") == {
        "files": Server("files", Local("run", ("a",), {"A": "b"}, "/", True, "files")),
        "docs": Server("docs", Remote("https://a.test/mcp", {"X": "y"}), frozenset("z")),
        "slow": Server("slow", Remote("https://a.test/slow", {}), timeout_s=300.0),
        "quick": Server("quick", Local("run", (), {}, None, False, "quick"), timeout_s=0.5),
    }


FAULTY: dict[str, tuple[Any, str]] = {
    "no object": ([1], "an object of servers by label"),
    "a label": ({"a b": {"command": "x"}}, "server 'a b' in .*: a label must have 1 to 64 letters"),
    "no entry": ({"a": "x"}, "expected an object"),
    "an unknown key": ({"a": {"command": "x", "comand": "s3cret"}}, "unknown key 'comand'"),
    "neither": ({"a": {}}, "expected either 'url' or 'command'"),
    "both": (
        {"a": {"url": "https://s3cret", "command": "x"}},
        "expected either 'url' or 'command'",
    ),
    "a URL": ({"a": {"url": "https://s3cret:s3cret@a.test"}}, "a user name or a password"),
    "arguments": ({"a": {"command": "x", "args": "s3cret"}}, "'args' must be a list of strings"),
    "a value": ({"a": {"command": "x", "env": {"A": 5}}}, "'env' must be an object of strings"),
    "headers": ({"a": {"url": "https://a.test", "headers": ["s3cret"]}}, "'headers' must be"),
    **{
        f"a timeout of {value!r:.9}": (
            {"a": {"command": "x", "timeout_s": value}},
            "server 'a' in .*: 'timeout_s' must be a number of seconds, more than 0, at most 86400",
        )
        for value in (0, -1, "s3cret", True, [5], float("nan"), float("inf"), 86_401, 10**400)
    },
}


@pytest.mark.parametrize(("told", "why"), FAULTY.values(), ids=FAULTY)
def test_a_fault_of_the_file_is_named_and_no_value_of_it(
    tmp_path: Path, told: Any, why: str
) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps(told))
    with pytest.raises(StartupError, match=rf"^SETTING: .*{why}") as fault:
        servers_in(path, "SETTING")
    assert "s3cret" not in str(fault.value)


@pytest.mark.parametrize(
    ("written", "why"), [(None, "cannot be read"), (b"{", "JSON"), (b"\xff", "JSON")]
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, written: bytes | None, why: str
) -> None:
    path = tmp_path / "servers.json"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(StartupError, match=why):
        servers_in(path, "SETTING")
