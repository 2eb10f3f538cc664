"""Which URLs of a request stand at or below one that the operator allows."""

from __future__ import annotations

import pytest

from trt_responses.tools.mcp.servers import place_of

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
