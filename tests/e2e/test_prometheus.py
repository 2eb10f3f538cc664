"""A real Prometheus scrapes a loaded server: it takes what we print, every rule holds, and every
expression of the dashboard has an answer."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import PATIENCE_S, Client
from tests.support.scripted.engine import Die, ScriptedEngine
from tests.support.served import CALL, SETTINGS, THOUGHT, WEATHER, script
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.features.limits.key_file import changing
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="needs prometheus and promtool: apt-get install prometheus",
)


def promtool(*arguments: str, given: bytes = b"") -> tuple[int, str]:
    ran = subprocess.run(
        ["promtool", *arguments], input=given, capture_output=True, check=False, timeout=60
    )
    return ran.returncode, (ran.stdout + ran.stderr).decode()


def app_with(folder: Path, **settings: Any) -> Any:
    keys = folder / "keys.json"
    with changing(keys) as write:
        write([])
    given = Settings(**SETTINGS, api_keys="ann:good", keys_file=keys, data_dir=folder, **settings)
    failing = script("<|channel|>final<|message|>Hello th", Die("out of memory"))
    mended = script("Hello, with no header<|return|>")
    written = [script(THOUGHT), script(CALL), mended, failing]
    turns = iter(range(10**9))
    engine = ScriptedEngine(lambda ids, options: written[next(turns) % len(written)])
    return create_app(given, engine=engine)


async def load(app: Any) -> None:
    """One of each kind of response."""
    headers = {
        "host": "127.0.0.1",
        "content-type": "application/json",
        "authorization": "Bearer good",
    }
    body = json.dumps({"model": "demo", "input": "Hello", "tools": [WEATHER]}).encode()
    for _ in range(4):
        await Client(app).send("POST", "/v1/responses", body, headers)


def test_promtool_finds_nothing_wrong_with_the_rules_and_they_tell_what_they_should() -> None:
    for arguments in (
        ("check", "rules", str(MONITORING / "rules.yml")),
        ("check", "config", str(MONITORING / "prometheus.yml")),
        ("test", "rules", str(MONITORING / "rules_test.yml")),
    ):
        status, said = promtool(*arguments)
        assert status == 0, said


def test_promtool_finds_nothing_wrong_with_the_metrics(tmp_path: Path) -> None:
    async def story() -> bytes:
        app = app_with(tmp_path)
        async with serving(app):
            await load(app)
            return (await Client(app).get("/metrics")).body

    _, said = promtool("check", "metrics", given=asyncio.run(story()))
    sins = [line for line in said.splitlines() if "should not contain ':'" not in line]
    assert sins == [], "but for the colons in vLLM's names"


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[str]:
    """One that scrapes the target five times a second and applies our rules; its URL."""
    config = (MONITORING / "prometheus.yml").read_text()
    config = config.replace("127.0.0.1:8000", target).replace("15s", "200ms")
    config = config.replace("rules.yml", str(MONITORING / "rules.yml"))
    (folder / "prometheus.yml").write_text(config)
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}",
        "--web.listen-address=127.0.0.1:0",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = None
            while found is None:
                line = (await process.stderr.readline()).decode()
                assert line, "it has ended"
                found = re.search(r'msg="Listening on" address=(\S+)', line)
        reading = asyncio.create_task(process.stderr.read())
        yield f"http://{found[1]}"
        reading.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def asked(url: str, path: str, **query: str) -> Any:
    """What its HTTP API answers; None before it answers anything."""

    def ask() -> Any:
        whole = f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(whole, timeout=100) as reply:
                return json.load(reply)["data"]
        except (urllib.error.HTTPError, ConnectionError):
            return None

    return await asyncio.to_thread(ask)


def expressions() -> list[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(found) > 15
    return [expr.replace("$__rate_interval", "1m").replace("$instance", ".*") for expr in found]


def test_every_expression_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    """Budget: 10 s."""

    async def story() -> None:
        app = app_with(tmp_path)
        async with (
            serving(app) as address,
            prometheus(tmp_path, f"{address.host}:{address.port}") as url,
            asyncio.timeout(PATIENCE_S),
        ):
            for expression in expressions():
                answer: list[Any] = []
                while not answer or answer[0]["value"][1] == "NaN":
                    await load(app)
                    answer = (await asked(url, "query", query=expression) or {}).get("result", [])
            (target,) = (await asked(url, "targets"))["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            groups = (await asked(url, "rules"))["groups"]
            assert [rule["lastError"] for rule in groups[0]["rules"] if "lastError" in rule] == []
            ours = await asked(url, "query", query="trt_responses_first_token_seconds_count")
            theirs = await asked(url, "query", query="trtllm_time_to_first_token_seconds_count")
            assert ours["result"][0]["value"][1]
            assert theirs["result"][0]["metric"]["model_name"] == "demo"

    asyncio.run(story())
