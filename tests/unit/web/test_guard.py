"""The guard on its own: hosts, origins and keys, as headers write them."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from trt_responses.errors import Forbidden, Unauthorized
from trt_responses.web.guard import ANYONE, Guard


def request(**headers: str) -> Request:
    raw = [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in headers.items()]
    scope: dict[str, Any] = {"type": "http", "headers": raw}
    return Request(scope)


def guard(hosts: str = "localhost", origins: str = "", **owners: str) -> Guard:
    return Guard(hosts=hosts.split(), origins=origins.split(), owners=owners)


def test_without_keys_anyone_at_a_known_host_is_one_owner() -> None:
    assert guard().owner(request(host="localhost:8000")) == ANYONE
    assert guard().owner(request(host="LocalHost", authorization="Bearer anything")) == ANYONE


def test_a_key_stands_for_its_owner() -> None:
    keys = guard(k1="ann", k2="bob")
    assert keys.owner(request(host="localhost", authorization="Bearer k2")) == "bob"
    with pytest.raises(Unauthorized, match="No API key"):
        keys.owner(request(host="localhost"))
    with pytest.raises(Unauthorized, match="not one of"):
        keys.owner(request(host="localhost", authorization="Bearer k3"))


@pytest.mark.parametrize(
    ("hosts", "host", "good"),
    [
        *[("a.example", "a.example", True), ("A.example", "a.EXAMPLE:1", True)],
        *[("a.example", "b.a.example", False), ("a.example", "a.example.b", False)],
        *[("*", "anything", True), ("*", "", True), ("[fd00::A]", "[FD00::a]:1", True)],
        *[("[::1]", "[::2]", False), ("localhost", "localhost.", False)],
    ],
)
def test_only_the_hosts_that_are_allowed_are_answered(hosts: str, host: str, good: bool) -> None:
    if good:
        assert guard(hosts).owner(request(host=host)) == ANYONE
    else:
        with pytest.raises(Forbidden, match="ALLOWED_HOSTS"):
            guard(hosts).owner(request(host=host))


@pytest.mark.parametrize(
    ("origins", "origin", "good"),
    [
        *[("", "http://localhost:8000", True), ("", "https://localhost:8000", True)],
        *[("", "http://localhost", False), ("", "null", False), ("", "", False)],
        *[("https://a.example", "https://a.example", True), ("*", "https://any.example", True)],
        *[("https://a.example", "http://a.example", False), ("*", "null", True)],
        *[("", "http://[", False), ("", "http://localhost:8000@evil.example", False)],
    ],
)
def test_only_pages_of_this_server_or_of_allowed_origins_may_ask(
    origins: str, origin: str, good: bool
) -> None:
    asked = request(host="localhost:8000", origin=origin)
    if good:
        assert guard(origins=origins).owner(asked) == ANYONE
    else:
        with pytest.raises(Forbidden, match="ALLOWED_ORIGINS"):
            guard(origins=origins).owner(asked)


def test_the_host_is_checked_before_the_key() -> None:
    with pytest.raises(Forbidden):
        guard(k="ann").owner(request(host="evil.example", authorization="Bearer k"))
