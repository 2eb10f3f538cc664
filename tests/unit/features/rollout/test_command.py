"""`trt-responses rollout` against servers that answer as this one does, and load nothing."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from trt_responses.cli.client import ServerFault
from trt_responses.cli.main import main
from trt_responses.features.rollout.command import RemoteVersions, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Output = pytest.CaptureFixture[str]

PATH = "/admin/engines/gpt"


class Server(ThreadingHTTPServer):
    """One server's versions."""

    def __init__(self, *refuses: int, breaks: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.serves = 1
        self.canary: int | None = None
        self.ready = True
        """Whether its canary is."""
        self.loading: str | None = None
        self.last: dict[str, Any] | None = None
        self.acts: list[tuple[str, dict[str, Any]]] = []
        self.refuses = refuses
        self.breaks = breaks
        """Whether the connection breaks before a load has been answered."""

    def state(self) -> dict[str, Any]:
        canary = None if self.canary is None else version(self.canary) | {"ready": self.ready}
        return {
            "promoted": version(self.serves),
            "canary": canary,
            "loading": self.loading,
            "last_load": self.last,
            "prepared": [f"openai/gpt@{number}" for number in (3, 2, 1)],
        }

    def load(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = int(body["version"], 16)
        if number in self.refuses:
            why = f"gpt@{number} is not served: it is slow."
            self.last = {"state": "refused", "reason": why}
            return 409, {"error": {"message": why}}
        if body.get("canary"):
            self.canary, state = number, "canary"
        else:
            self.serves, self.canary, state = number, None, "promoted"
        self.last = version(number) | {"state": state}
        return 200, self.last


def version(number: int) -> dict[str, Any]:
    """A version under the name that clients know."""
    return {"version": f"openai/gpt@{number}", "digest": f"{number:012x}"}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        allowed = self.headers["authorization"] == "Bearer boss" and self.path == PATH
        self._reply(*((200, self.server.state()) if allowed else (401, {})))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        act = self.path.removeprefix(f"{PATH}/")
        self.server.acts.append((act, body))
        if act == "unload":
            self.server.canary = None
            self._reply(200, {})
            return
        answer = self.server.load(body)
        if not self.server.breaks:
            self._reply(*answer)

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        sent = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def serving(*servers: Server) -> Iterator[list[str]]:
    """The servers' URLs, while they answer."""
    threads = [threading.Thread(target=server.serve_forever, args=[0.01]) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield [server.url for server in servers]
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def rolled_out(urls: list[str], *options: str) -> int:
    return main(["rollout", "gpt", "2", "--servers", ",".join(urls), *options])


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRT_RESPONSES_ADMIN_KEY", "boss")


def test_servers_move_one_after_the_other(capsys: Output) -> None:
    one, other = Server(), Server()
    with serving(one, other) as urls:
        assert rolled_out(urls) == 0
    assert capsys.readouterr().out.endswith("All 2 servers serve gpt@2.\n")
    assert (one.serves, other.serves) == (2, 2)
    assert [act for act, _ in one.acts] == ["load"]


def test_the_first_refusal_brings_back_those_that_moved_and_spares_the_rest(
    capsys: Output,
) -> None:
    one, bad, last = Server(), Server(2), Server()
    with serving(one, bad, last) as urls:
        assert rolled_out(urls, "--canary", "0.1", "--watch", "0") == 1
    assert (one.serves, bad.serves, last.serves) == (1, 1, 1)
    assert [body.get("canary") for _, body in one.acts] == [0.1, None, None]
    assert one.acts[-1][1] == {
        "version": f"{1:012x}",
        "gate": False,
        "reason": "rollout: going back",
    }
    assert not last.acts
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(
        f"Stopped and went back: every server serves its earlier version. {bad.url}: gpt@2 is not "
        "served: it is slow."
    )


def test_a_server_that_cannot_go_back_is_named(capsys: Output) -> None:
    one, bad = Server(1), Server(2)
    with serving(one, bad) as urls:
        assert rolled_out(urls) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"NOT all servers are back: look at {one.url}." in said


def test_a_dry_run_changes_nothing_and_what_cannot_be_moved_is_found_first(
    capsys: Output, tmp_path: Path
) -> None:
    one, busy = Server(), Server()
    busy.loading = "comparing gpt@3 with gpt@1"
    file = tmp_path / "key"
    file.write_text("boss\n", "utf-8")
    with serving(one, busy) as urls:
        assert rolled_out(urls[:1], "--dry-run", "--key", str(file)) == 0
        assert "Nothing was changed: 1 servers would go to gpt@2." in capsys.readouterr().out
        assert rolled_out(urls) == 1
        assert "is busy: comparing gpt@3" in capsys.readouterr().out
        assert main(["rollout", "gpt", "9", "--server", urls[0]]) == 1
        assert "has no gpt@9, only openai/gpt@3, " in capsys.readouterr().out
    assert rolled_out(urls) == 1
    assert "does not answer" in capsys.readouterr().out
    assert not one.acts


def test_without_a_key_nothing_is_sent(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRT_RESPONSES_ADMIN_KEY")
    assert rolled_out(["http://127.0.0.1:1"]) == 2
    assert "pass --key FILE" in capsys.readouterr().err


def test_a_canary_that_fails_while_it_is_watched_is_unloaded() -> None:
    server, looks = Server(), []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        server.ready = len(looks) < 3

    with serving(server) as (url,):
        versions = RemoteVersions(url, "gpt", "boss")
        rollout = Rollout([versions], "gpt@2", canary=0.1, watch_s=9, tell=print, sleep=sleep)
        rollout.look()
        assert rollout.go() == f"{url}: gpt@2 has failed as a canary."
    assert (len(looks), server.canary, server.serves) == (3, None, 1)


@pytest.mark.parametrize(("refuses", "state"), [((), "promoted"), ((2,), "refused")])
def test_a_load_whose_connection_breaks_is_asked_for_its_end(
    refuses: tuple[int, ...], state: str
) -> None:
    server = Server(*refuses, breaks=True)
    server.loading = "loading gpt@2"

    def sleep(seconds: float) -> None:
        server.loading = None

    with serving(server) as (url,):
        versions = RemoteVersions(url, "gpt", "boss", sleep)
        if state == "promoted":
            assert versions.load("2")["state"] == "promoted"
        else:
            with pytest.raises(ServerFault, match="gpt@2 is not served: it is slow"):
                versions.load("2")
