"""The guard on its own: hosts, origins and keys, as headers write them."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from trt_responses.errors import Forbidden, InvalidRequest, Unauthorized
from trt_responses.features.cors.cors import Origins
from trt_responses.features.limits.keys import KeyRing
from trt_responses.web.guard import ANYONE, KNOWN_HOSTS, Guard


def request(**headers: str) -> Request:
    raw = [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in headers.items()]
    scope: dict[str, Any] = {"type": "http", "headers": raw}
    return Request(scope)


def guard(hosts: str = "localhost", origins: str = "", **owners: str) -> Guard:
    return Guard(hosts=hosts.split(), origins=Origins(origins.split()).allow, keys=KeyRing(owners))


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


def test_of_two_keys_the_first_counts() -> None:
    """Whatever reads a request before us may look at that one alone."""
    two = request(host="localhost", authorization="Bearer k1")
    two.scope["headers"].append((b"authorization", b"Bearer k2"))
    assert guard(k1="ann", k2="bob").owner(two) == "ann"


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
        *[("", "http://localhost:8000", True), ("", "https://localhost:8000", False)],
        *[("", "HTTP://localhost:8000", False), ("", "localhost:8000", False)],
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


@pytest.mark.parametrize(
    ("scheme", "host", "origin", "good"),
    [
        *[("http", "localhost", "http://localhost", True)],
        *[("http", "localhost:80", "http://localhost", True)],
        *[("http", "LocalHost", "http://localhost:80", True)],
        *[("https", "localhost", "https://localhost", True)],
        *[("https", "localhost:443", "https://localhost", True)],
        *[("https", "localhost:80", "https://localhost", False)],
        *[("https", "localhost", "http://localhost", False)],
        *[("http", "localhost:443", "https://localhost", False)],
        *[("http", "[::1]", "http://[::1]:80", True), ("http", "[::1]:80", "http://[::1]", True)],
        *[("http", "[::1]:8", "http://[::1]", False)],
    ],
)
def test_a_page_of_this_server_has_its_scheme_host_and_port(
    scheme: str, host: str, origin: str, good: bool
) -> None:
    asked = request(host=host, origin=origin)
    asked.scope["scheme"] = scheme
    if good:
        assert guard("localhost [::1]").owner(asked) == ANYONE
    else:
        with pytest.raises(Forbidden, match="ALLOWED_ORIGINS"):
            guard("localhost [::1]").owner(asked)


@pytest.mark.parametrize("hosts", ["localhost", "*"])
@pytest.mark.parametrize(
    "host",
    [
        *("localhost:80@evil.example", "localhost:80:80", "localhost:port", "localhost:999999"),
        *("user@localhost", "localhost/path", "localhost?x", "localhost#x", "local host", "a,b"),
        *("[::1", "[::1]x", "::1", "localhost ", "löcalhost", "localhost%2eevil", "[x]"),
    ],
)
def test_a_host_that_is_none_is_no_request(hosts: str, host: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        guard(hosts).owner(request(host=host))
    assert (caught.value.status, caught.value.code) == (400, "invalid_host")


@pytest.mark.parametrize("hosts", ["localhost", "*"])
def test_a_request_has_one_host(hosts: str) -> None:
    for values in ([], ["localhost", "localhost"], ["localhost", "evil.example"]):
        asked = request()
        asked.scope["http_version"] = "1.1"
        asked.scope["headers"] = [(b"host", value.encode()) for value in values]
        with pytest.raises(InvalidRequest):
            guard(hosts).owner(asked)
    asked.scope["http_version"], asked.scope["headers"] = "1.0", []
    assert guard("*").owner(asked) == ANYONE


def test_a_host_is_remembered_only_once_it_was_allowed() -> None:
    guarded = guard("a.example")
    for _ in range(2):
        with pytest.raises(Forbidden, match="ALLOWED_HOSTS"):
            guarded.owner(request(host="b.example"))
        assert guarded.owner(request(host="a.example:1")) == ANYONE
    two = request(host="a.example:1")
    two.scope["headers"] *= 2
    with pytest.raises(InvalidRequest, match="got 2"):
        guarded.owner(two)


def test_the_hosts_of_a_server_that_answers_for_any_are_remembered_within_a_bound() -> None:
    guarded = guard("*")
    for number in range(10 * KNOWN_HOSTS):
        assert guarded.owner(request(host=f"h{number}.example")) == ANYONE
    assert guarded.known_hosts == KNOWN_HOSTS


def test_the_host_is_checked_before_the_key() -> None:
    with pytest.raises(Forbidden):
        guard(k="ann").owner(request(host="evil.example", authorization="Bearer k"))


def test_a_server_without_the_feature_of_keys_asks_for_none_and_has_no_admin() -> None:
    bare = Guard(hosts=("localhost",))
    brings = request(host="localhost", authorization="Bearer anything")
    assert bare.owner(brings) == ANYONE
    with pytest.raises(Forbidden, match="no admin's"):
        bare.admin(brings)
