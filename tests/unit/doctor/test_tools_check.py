"""What `doctor` says of the tools that the server runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from trt_responses.backends.tools import tools_of
from trt_responses.doctor.tools import (
    browser_tool_check,
    mcp_tool_check,
    python_tool_check,
    shell_tool_check,
)
from trt_responses.errors import StartupError
from trt_responses.settings import Settings
from trt_responses.tools.box import NoBox

if TYPE_CHECKING:
    from pathlib import Path


def refuses() -> int:
    raise NoBox("the kernel has no Landlock")


def listens(host: str, port: int) -> str | None:
    return None


def is_away(host: str, port: int) -> str | None:
    return f"nobody at {host} {port}"


@pytest.mark.parametrize(
    ("python", "boxed", "state"),
    [
        ("off", True, "ok"),
        ("boxed", True, "ok"),
        ("off", False, "note"),
        ("boxed", False, "fault"),
        ("unboxed", True, "note"),
    ],
)
def test_it_says_whether_code_is_shut_in(python: str, boxed: bool, state: str) -> None:
    settings = Settings.from_environment({"TRT_RESPONSES_PYTHON": python})
    check = python_tool_check(settings, (lambda: 4) if boxed else refuses)
    assert check.state == state
    assert ("Landlock 4" in check.found) == (boxed and python != "unboxed")


@pytest.mark.parametrize("executable", ["/no/python", "/bin/true"])
def test_an_interpreter_that_does_not_run_is_named(executable: str) -> None:
    settings = Settings(python="boxed", python_executable=executable)
    with pytest.raises(StartupError, match="PYTHON_EXECUTABLE: no Python runs there"):
        tools_of(settings)
    check = python_tool_check(settings, lambda: 4)
    assert check.state == "fault"
    assert "TRT_RESPONSES_PYTHON_EXECUTABLE" in check.found


@pytest.mark.parametrize(
    ("shell", "boxed", "state"),
    [("off", True, "ok"), ("boxed", True, "ok"), ("off", False, "note"), ("boxed", False, "fault")],
)
def test_it_says_whether_commands_are_shut_in(shell: str, boxed: bool, state: str) -> None:
    settings = Settings.from_environment({"TRT_RESPONSES_SHELL": shell})
    check = shell_tool_check(settings, (lambda: 4) if boxed else refuses)
    assert check.state == state
    assert check.found.startswith(f"switched {'off' if shell == 'off' else 'on'}")


SEARXNG: dict[str, Any] = {"search_url": "http://localhost:8080/x"}
BROWSERS: dict[str, tuple[dict[str, Any], bool, str, str]] = {
    "off": ({"browser": "off"}, False, "ok", "switched off"),
    "boxed": (SEARXNG, True, "ok", "searxng at localhost:8080 listens"),
    "no box": (SEARXNG, False, "fault", "cannot be read in a box: the kernel has no Landlock"),
    "unboxed": (SEARXNG | {"browser": "unboxed"}, False, "note", "WITHOUT A BOX"),
    "no service": ({}, True, "fault", "TRT_RESPONSES_SEARCH_URL"),
    "no key": ({"search_url": "brave"}, True, "fault", "TRT_RESPONSES_SEARCH_KEY"),
}


@pytest.mark.parametrize(("changes", "boxed", "state", "words"), BROWSERS.values(), ids=BROWSERS)
def test_it_says_who_searches_and_whether_pages_are_shut_in(
    changes: dict[str, Any], boxed: bool, state: str, words: str
) -> None:
    settings = Settings(**{"browser": "boxed", **changes})
    check = browser_tool_check(settings, (lambda: 4) if boxed else refuses, listens)
    assert check.state == state
    assert words in check.found


def test_it_says_what_pages_may_be_opened_and_that_nobody_searches() -> None:
    settings = Settings(browser="boxed", private_networks=("10.0.0.0/8",), **SEARXNG)
    found = browser_tool_check(settings, lambda: 4, listens).found
    assert "seen URLs at ports 80, 443, networks besides public addresses: 10.0.0.0/8" in found
    check = browser_tool_check(settings, lambda: 4, is_away)
    assert check.state == "fault"
    assert check.found == "cannot connect to searxng at localhost:8080 (nobody at localhost 8080)"


def test_a_key_of_a_search_service_is_not_told() -> None:
    settings = Settings(browser="boxed", search_url="brave", search_key="s3cret")
    check = browser_tool_check(settings, lambda: 4, listens)
    assert "brave at api.search.brave.com:443 listens" in check.found
    assert "s3cret" not in repr(check)


SERVERS: dict[str, Any] = {
    "files": {"command": sys.executable, "args": ["s3cret"], "env": {"KEY": "s3cret"}},
    "docs": {"url": "http://mcp.test/mcp?key=s3cret", "headers": {"authorization": "s3cret"}},
}


def mcp_check(tmp_path: Path, servers: object, where: Any = listens) -> Any:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps(servers))
    return mcp_tool_check(Settings(mcp_servers=path, mcp_urls=("https://a.test/x",)), where)


def test_it_says_which_mcp_servers_there_are_and_none_of_their_secrets(tmp_path: Path) -> None:
    check = mcp_check(tmp_path, SERVERS)
    assert check.state == "ok"
    assert "configured servers: docs, files;" in check.found
    assert "https://a.test:443/x" in check.found
    assert "s3cret" not in repr(check)
    assert mcp_tool_check(Settings()).state == "ok"


def test_it_says_which_mcp_servers_are_away(tmp_path: Path) -> None:
    servers = SERVERS | {"gone": {"command": "/no/such/program"}}
    check = mcp_check(tmp_path, servers, is_away)
    assert check.state == "note"
    assert "docs: nobody at mcp.test 80" in check.found
    assert "gone: program '/no/such/program' not found" in check.found
    assert "files:" not in check.found
    assert "s3cret" not in repr(check)


def test_it_says_what_is_wrong_with_the_file_of_mcp_servers(tmp_path: Path) -> None:
    check = mcp_check(tmp_path, {"files": {"comand": "s3cret"}})
    assert check.state == "fault"
    assert "TRT_RESPONSES_MCP_SERVERS: server 'files'" in check.found
    assert "unknown key 'comand'" in check.found
    assert "s3cret" not in repr(check)
