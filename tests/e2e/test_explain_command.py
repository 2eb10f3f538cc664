"""`trt-responses explain` against a served app, as somebody would type it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI

from tests.support.golden import told
from tests.support.replay import staged, transcript_from
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import CALL, SETTINGS, WEATHER, script
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.cli.main import main
from trt_responses.harmony.read.reader import Tables
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trt_responses.tokens.vocabulary import Vocabulary


@asynccontextmanager
async def answered(written: str, **asked: Any) -> AsyncIterator[tuple[str, str]]:
    """A server's base URL, and the id of the response that it has made."""
    app = create_app(
        Settings(**(SETTINGS | {"api_keys": "ann:a1"})), engine=ScriptedEngine([script(written)])
    )
    async with (
        serving(app) as address,
        AsyncOpenAI(base_url=f"{address.url}/v1", api_key="a1") as client,
    ):
        made = await client.responses.create(model="demo", input="Hello", **asked)
        yield f"{address.url}/v1", made.id


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a1")


def explain(*arguments: str, written: str = CALL) -> int:
    """`ID` and `URL` stand for those of the response."""

    async def story() -> int:
        async with answered(written, tools=[WEATHER]) as (url, response_id):
            given = [response_id if a == "ID" else a for a in arguments]
            return await asyncio.to_thread(main, ["explain", *given, "--url", url])

    return asyncio.run(story())


def test_it_prints_the_prompt_and_each_segment(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("ID") == 0
    out = capsys.readouterr().out
    assert "<|start|>user<|message|>Hello<|end|><|start|>assistant" in out
    assert 'functions.weather <|constrain|>json<|message|>{"city": "Bern"}<|call|>' in out
    for title in ("segment 1: free, completed", "repairs", "timeline", "engine"):
        assert f"\n{title}" in out


def test_a_model_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    explain("ID", written="<|channel|>final<|message|>\x1b]0;owned\x07 [red]Hi[/red]<|return|>")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "]0;owned\N{REPLACEMENT CHARACTER} [red]Hi[/red]" in out


def test_json_has_every_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("ID", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["segments"][0]["kept"][-1] == {"control": "<|call|>", "id": 200012}


def test_a_transcript_is_a_test_without_a_change(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = tmp_path / "seen_today.json"
    assert explain("ID", "--transcript", str(path)) == 0
    source = json.loads(path.read_text())
    stage = staged(transcript_from(source, vocabulary), Tables.of(vocabulary))
    asyncio.run(stage.play())
    assert told(stage) == {key: source[key] for key in ("log", "response", "repairs")}


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["resp_none"], 1, "No explanation for 'resp_none'"),
        (["ID", "--transcript", "Bug.txt"], 2, "use a file name of small letters"),
        (["ID", "--transcript", "/no/such/folder/bug.json"], 2, "No such file or directory"),
    ],
)
def test_what_cannot_be_explained_is_told_in_a_sentence(
    arguments: list[str], status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(*arguments) == status
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("url", "status"), [("http://127.0.0.1:9", 1), ("gopher://here", 2)])
def test_a_server_that_is_not_there_is_named(
    url: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "resp_1", "--url", url]) == status
    assert url in capsys.readouterr().err
