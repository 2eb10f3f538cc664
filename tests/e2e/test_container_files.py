"""Files of containers through the openai client, while code does what it can to them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.support.boxed import no_box
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import script
from tests.support.serving import client_of, listening
from tests.support.story import story
from trt_responses.tools.python import files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

ANSWER = "<|channel|>final<|message|>Done.<|return|>"
MADE = """
import os
os.mkdir("below"); open("below/made", "w").write(open("data.csv").read().upper())
os.symlink("/etc/passwd", "link"); os.symlink("/etc", "etc"); os.link("data.csv", "again")
open(b"\\xff", "w").close()
"""


def calling(code: str) -> str:
    return f"<|channel|>analysis to=python code<|message|>{code}<|call|>"


@story
async def test_a_file_is_brought_used_and_what_code_made_is_fetched(tmp_path: Path) -> None:
    engine = ScriptedEngine([script(calling(MADE)), script(ANSWER)])
    async with (
        listening(engine, python="boxed", data_dir=tmp_path, container_bytes=2**20) as address,
        client_of(address) as client,
    ):
        held = (await client.containers.create(name="mine")).id
        theirs = client.containers.files
        data = b"a;b\r\n--x\r\n\r\n\x00\xff"
        added = await theirs.create(held, file=("data.csv", data))
        assert (added.path, added.bytes, added.source) == ("data.csv", len(data), "user")
        again = await theirs.retrieve(added.id, container_id=held)
        assert again.model_dump() == added.model_dump()
        got = await theirs.content.retrieve(added.id, container_id=held)
        assert got.content == data
        tool: Any = {"type": "code_interpreter", "container": held}
        text = b"a,b"
        await theirs.create(held, file=("data.csv", text))
        await client.responses.create(model="demo", input="Hi", tools=[tool])
        listed = {one.path: one async for one in theirs.list(held)}
        assert listed.keys() == {"data.csv", "again", "below/made", "\ufffd"}
        assert listed["below/made"].source == "assistant"
        made = await theirs.content.retrieve(listed["below/made"].id, container_id=held)
        assert made.content == b"A,B"
        await theirs.delete(listed["below/made"].id, container_id=held)
        for gone in (listed["below/made"].id, "cfile_" + "0" * 48):
            with pytest.raises(openai.NotFoundError):
                await theirs.content.retrieve(gone, container_id=held)
        with pytest.raises(openai.BadRequestError) as full:
            await theirs.create(held, file=("large", bytes(2**20)))
        assert full.value.code == "container_full"
        for name in ("../up", "below", "..", "n" * 300):
            with pytest.raises(openai.BadRequestError) as wrong:
                await theirs.create(held, file=(name, b"x"))
            assert wrong.value.param == "file"
        with pytest.raises(openai.NotFoundError) as missing:
            await theirs.create(held, file_id="file_1")
        assert missing.value.param == "file_id"
        sent = await client.files.create(
            file=("sent.csv", b"1,2"),
            purpose="user_data",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert await client.files.retrieve(sent.id) == sent
        assert [one async for one in client.files.list()] == [sent]
        assert (await client.files.content(sent.id)).content == b"1,2"
        assert (await theirs.create(held, file_id=sent.id)).path == "sent.csv"
        assert (await client.files.delete(sent.id)).deleted
        assert {one.path async for one in theirs.list(held)} == {
            *("data.csv", "again", "\ufffd", "sent.csv")
        }


@story
async def test_another_owners_container_is_one_that_nobody_has(tmp_path: Path) -> None:
    engine = ScriptedEngine([script(ANSWER)])
    settings: Any = {"api_keys": "ann:key-a,bob:key-b", "python": "boxed", "data_dir": tmp_path}
    async with listening(engine, **settings) as address, client_of(address) as client:
        ann, bob = client.with_options(api_key="key-a"), client.with_options(api_key="key-b")
        held = (await ann.containers.create(name="mine")).id
        added = await ann.containers.files.create(held, file=("f", b"x"))
        unknown = "cntr_" + "0" * 48
        for ask in (
            lambda it: bob.containers.files.create(it, file=("g", b"y")),
            lambda it: bob.containers.files.retrieve(added.id, container_id=it),
            lambda it: bob.containers.files.content.retrieve(added.id, container_id=it),
            lambda it: bob.containers.files.delete(added.id, container_id=it),
            lambda it: bob.containers.files.list(it),
        ):
            told = []
            for it in (held, unknown):
                with pytest.raises(openai.NotFoundError) as caught:
                    await ask(it)
                told.append(caught.value.response.text.replace(it, "ID"))
            assert told[0] == told[1]
        assert [one.path async for one in ann.containers.files.list(held)] == ["f"]


def test_no_name_leads_out_of_the_directory(tmp_path: Path) -> None:
    top, secret = tmp_path / "top", tmp_path / "secret"
    (top / "below").mkdir(parents=True)
    secret.write_text("secret")
    (top / "link").symlink_to(secret)
    (top / "up").symlink_to(tmp_path)
    (top / "below" / "back").symlink_to("..")
    os.mkfifo(top / "pipe")
    assert files.list_files(top, 100) == []
    for path in ("link", "up/secret", "below/back/link", "pipe", "below", "../secret", "none"):
        with pytest.raises(FileNotFoundError):
            os.close(files.open_file(top, path))
    files.add_file(top, "link", b"mine")
    for name in ("../up", "..", "a\0b"):
        with pytest.raises(ValueError, match=re.escape(name)):
            files.add_file(top, name, b"x")
    assert (secret.read_text(), (top / "link").read_text()) == ("secret", "mine")
    with pytest.raises(FileNotFoundError):
        files.remove_file(top, "up/secret")
    assert secret.exists()


def test_a_listing_of_very_deep_directories_ends(tmp_path: Path) -> None:
    here = tmp_path
    for _ in range(60):
        here = here / "d"
        here.mkdir()
    (here / "deep").touch()
    (tmp_path / "d" / "near").touch()
    assert [one.path for one in files.list_files(tmp_path, 1000)] == ["d/near"]
