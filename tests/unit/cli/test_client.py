"""Commands that ask a server, at an address where something else answers."""

from __future__ import annotations

import asyncio
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest

from tests.support.small_site import Page, site_of
from tests.support.story import story
from trt_responses.cli.client import Server, ServerFault
from trt_responses.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

Output = pytest.CaptureFixture[str]


async def fault_of(page: Page, path: str, ask: Callable[[Server], object]) -> str:
    async with site_of({path: page}) as site:
        server = Server(site.url(""), None)
        with pytest.raises(ServerFault) as fault:
            await asyncio.to_thread(ask, server)
    return str(fault.value)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b"{}"])
@story
async def test_a_page_where_the_api_should_be_is_told(body: bytes) -> None:
    told = await fault_of(Page(body), "/models", Server.models)
    assert told.startswith("What answers at http://127.0.0.1:")


@pytest.mark.parametrize("event", [b'{"type', b"5"])
@story
async def test_an_event_that_is_no_object_ends_the_answer(event: bytes) -> None:
    stream = Page(b"data: %b\n\n" % event)
    told = await fault_of(stream, "/responses", lambda it: list(it.events("/responses", {})))
    assert "is no such API" in told


@story
async def test_a_reply_that_breaks_off_is_told() -> None:
    async def cut(writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"data"')

    page = Page(headers=("Content-Length: 1000",), writes=cut)
    assert "The connection broke" in await fault_of(page, "/models", Server.models)


@story
async def test_a_drain_has_ended_when_something_else_answers(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_ADMIN_KEY", "k")
    async with site_of({"/admin/drain": Page(b"{}"), "/health": Page(b"<html>")}) as site:
        arguments = ("drain", "--wait", f"--port={site.port}")
        assert await asyncio.to_thread(main, arguments) == 0
    assert "is draining" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["key\r", "clé"])
def test_a_key_that_no_header_can_have_is_told(
    key: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a file with the ends of lines of Windows."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("TRT_RESPONSES_ADMIN_KEY", key)
    for arguments in (["explain", "resp_1", "--url=http://127.0.0.1:9"], ["drain"]):
        assert main(arguments) == 2
        assert "has a character that no header can have" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["drain", "--host=a b"], "No server answers at a b:8000"),
        (["drain", "--host=a..b"], "No server answers at a..b:8000"),
        (["explain", "resp_1", "--url=http://a..b"], "http://a..b does not answer"),
        (["engine", "unload", "\udcff"], "can't encode character"),
    ],
)
def test_a_name_that_cannot_be_is_told(
    typed: list[str], words: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_ADMIN_KEY", "k")
    with redirect_stdout(sys.stdout):
        assert main(typed) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
