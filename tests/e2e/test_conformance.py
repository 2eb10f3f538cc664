"""The conformance kit against our own server, over sockets: as it is, and with planted faults."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import responses_conformance
from responses_conformance import cli
from responses_conformance.checks import CHECKS
from responses_conformance.client import Server
from responses_conformance.report import document, markdown
from responses_conformance.runner import judge

from tests.support.planted_faults import FAULTS, Planted
from tests.support.serving import threaded
from trt_responses.app import create_app
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from responses_conformance.checks.base import Profile
    from responses_conformance.runner import Outcome

pytestmark = pytest.mark.xdist_group("conformance")  # one process loads its engines


SCRIPT = Path(responses_conformance.__file__).with_name("script.yaml")
REFUSED_HERE = {
    "responses.errors.model": "takes any model's name",
    "responses.errors.key": "takes requests without a key",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that plays the kit's script; a fault is planted by the path."""
    settings = Settings(engine=f"script://{SCRIPT}", store="memory://", model="*", max_calls=16)
    app = create_app(settings)
    ws = app.state.sockets.protocol(settings.read_timeout_s)
    with threaded(Planted(app), ws) as address:
        yield address


def judged(
    address: str, *names: str, profile: Profile = "scripted"
) -> tuple[Server, list[Outcome]]:
    server = Server(address, model="any")
    chosen = [check for check in CHECKS if check.name.startswith(names or "")]
    return server, judge(server, chosen, profile, 1, lambda number, check: None)


def test_our_server_passes_and_offers_everything(url: str) -> None:
    _, outcomes = judged(url)
    found = {o.check.name: f"{o.verdict}: {o.why}" for o in outcomes if o.verdict != "passed"}
    assert found.keys() == REFUSED_HERE.keys(), found
    assert all(why in found[name] for name, why in REFUSED_HERE.items())


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(url: str, name: str) -> None:
    _, [outcome] = judged(f"{url}/{name}/v1", FAULTS[name].found_by)
    assert outcome.verdict == "failed"
    assert outcome.exchanges


def test_the_demo_passes_where_the_weights_are_unknown(demo_gguf: Path) -> None:
    engine = LlamaCppEngine(demo_gguf, context_tokens=2048, slots=2, threads=1)
    app = create_app(Settings(model="*", max_calls=2), engine=engine)
    judges = ("responses.stream", "responses.tools", "chat.stream", "messages.stream")
    with threaded(app) as address:
        _, outcomes = judged(address, *judges, profile="hosted")
    found = {o.check.name: o.why for o in outcomes if o.verdict in ("failed", "not offered")}
    assert found == {}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_failure_has_its_bytes_and_a_script_that_repeats_it(url: str) -> None:
    server, outcomes = judged(
        f"{url}/unknown_id_ignored/v1", "responses.state.unknown", "responses.state.chain"
    )
    found = {
        entry["name"]: entry for entry in document(server, {}, outcomes, "scripted", 1)["checks"]
    }
    assert '"previous_response_id":null' in found["responses.state.unknown"]["bytes"].replace(
        ": ", ":"
    )
    one, several = (found[f"responses.state.{name}"]["repeat"] for name in ("unknown", "chain"))
    assert one.startswith("curl ")
    assert len(several.splitlines()) <= 15
    for command in (["sh", "-c", one], [sys.executable, "-c", several]):
        again = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert '"previous_response_id": null' in again


def test_a_failure_over_a_websocket_has_a_command_that_repeats_it(url: str) -> None:
    server, outcomes = judged(
        f"{url}/an_error_without_message_over_websocket/v1", "responses.websocket.errors"
    )
    [entry] = document(server, {}, outcomes, "scripted", 1)["checks"]
    python, *words = shlex.split(entry["repeat"])
    command = [sys.executable, *words]
    again = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert python == "python"
    assert [json.loads(line)["type"] for line in again.splitlines()] == ["error"]
    assert again.replace(" ", "") in entry["bytes"].replace(" ", "")


def test_a_server_without_websockets_does_not_offer_them() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    with threaded(app) as address:
        _, outcomes = judged(address, "responses.websocket")
    assert {(o.verdict, o.why) for o in outcomes} == {
        ("not offered", "404 for an upgrade of GET /responses")
    }


def test_the_command_writes_a_report_in_three_forms(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{url}/role_in_each_chunk"
    given = [f"{place}/v1", "--only", "chat.stream", "--profile", "scripted"]
    assert cli.main([*given, "--report", str(tmp_path)]) == 1
    assert "✗ chat.stream.role: its roles are" in capsys.readouterr().out
    report = json.loads((tmp_path / "conformance.json").read_text("utf-8"))
    assert report["summary"] == {"passed": 5, "failed": 1}
    assert report["server"]["models"][0]["id"] == report["server"]["model"]
    assert report["server"]["openapi.json"]["version"]
    assert "| ✗ | `chat.stream.role` |" in (tmp_path / "conformance.md").read_text("utf-8")
    assert "5/6" in (tmp_path / "conformance.svg").read_text("utf-8")
    assert markdown(report).count("~~~") == 4


@pytest.mark.parametrize("reply", [b'{"data": [], "output": "x"}', b"<html>", b"data: 7\n\n", b""])
def test_a_server_of_something_else_fails_by_name_and_not_by_a_traceback(
    reply: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % len(reply))]
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": reply})

    with threaded(app) as address:
        assert cli.main([address, "--report", str(tmp_path), "--profile", "scripted"]) == 1
    assert "✗ responses.object: " in capsys.readouterr().out
    report = json.loads((tmp_path / "conformance.json").read_text("utf-8"))
    assert not report["summary"].get("passed", 0) > 12


def test_a_mock_ends_at_ctrl_c_without_a_traceback() -> None:
    heard = ("env", "--default-signal=INT")  # jobs in the background of a shell ignore it
    typed = (*heard, sys.executable, "-m", "trt_responses", "mock", "trtllm-grpc")
    with subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as mock:
        try:
            assert mock.stdout is not None
            assert "127.0.0.1" in mock.stdout.readline()
            mock.send_signal(signal.SIGINT)
            assert (mock.communicate()[1], mock.returncode) == ("", 130)
        finally:
            mock.kill()


def test_a_stream_that_never_ends_is_left() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await receive()
            left = asyncio.ensure_future(receive())
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not left.done():
                await send({"type": "http.response.body", "body": b": x\n\n", "more_body": True})
                await asyncio.wait([left], timeout=0.01)

    with threaded(app) as address, Server(address).stream("GET", "/x") as stream:
        stream.patience_s = 0
        with pytest.raises(TimeoutError, match="has not ended within 0 s"):
            list(stream)
        stream.hang_up()
