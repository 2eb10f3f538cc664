"""`/v1/files` in the app: uploads, lists, contents, ends, and files in the box of code."""

from __future__ import annotations

import base64
import errno
import os
import zlib
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import until
from tests.support.boxed import no_box
from tests.support.files import FORM, form
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import served
from tests.support.story import story

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.asgi import Call
    from tests.support.served import Served

OWNERS: dict[str, Any] = {"api_keys": "ann:key-a,bob:key-b"}
boxed = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")


def headers(key: str = "key-a", kind: str = "application/json") -> dict[str, str]:
    return {"host": "127.0.0.1:8000", "content-type": kind, "authorization": f"Bearer {key}"}


async def upload(app: Served, data: bytes, key: str = "key-a", **fields: str) -> Call:
    return await app.client.send("POST", "/v1/files", form(data, **fields), headers(key, FORM))


async def ask(app: Served, method: str, path: str, key: str = "key-a", body: Any = None) -> Call:
    data = b"" if body is None else orjson.dumps(body)
    return await app.client.send(method, path, data, headers(key))


def opened_below(folder: Path) -> list[str]:
    links = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return [link for link in links if link.startswith(str(folder))]


@story
async def test_a_file_is_sent_listed_fetched_and_deleted_by_its_owner_alone(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path, **OWNERS) as app:
        data = bytes(range(256)) * 9000  # two blocks and a half
        made = (await upload(app, data, name="a.bin")).json()
        assert made["id"].startswith("file-")
        assert (made["bytes"], made["filename"], made["purpose"]) == (
            len(data),
            "a.bin",
            "user_data",
        )
        assert made["expires_at"] - made["created_at"] == 30 * 86_400
        other = (await upload(app, b"", purpose="batch")).json()
        path = f"/v1/files/{made['id']}"
        assert (await ask(app, "GET", path)).json() == made
        fetched = await ask(app, "GET", f"{path}/content")
        assert fetched.body == data
        assert fetched.headers["content-disposition"] == "attachment"
        assert (await ask(app, "GET", f"/v1/files/{other['id']}/content")).body == b""
        listed = (await ask(app, "GET", "/v1/files?order=asc")).json()
        assert {each["id"] for each in listed["data"]} == {made["id"], other["id"]}
        listed = (await ask(app, "GET", "/v1/files?purpose=batch&limit=10000")).json()
        assert [each["id"] for each in listed["data"]] == [other["id"]]
        assert (await ask(app, "GET", "/v1/files", "key-b")).json()["data"] == []
        for method, end in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            foreign = await ask(app, method, path + end, "key-b")
            assert (foreign.status, foreign.error["code"]) == (404, "file_not_found")
        gone = await ask(app, "DELETE", path)
        assert gone.json() == {"id": made["id"], "object": "file", "deleted": True}
        assert (await ask(app, "GET", path)).status == 404


@story
async def test_a_list_names_what_its_query_says_in_vain(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path, **OWNERS) as app:
        talk = (await ask(app, "POST", "/v1/conversations", body={})).json()["id"]
        for path in ("files", "batches", f"conversations/{talk}/items"):
            found = await ask(app, "GET", f"/v1/{path}?include[]=x&limit=1&before=y&before=z")
            assert found.headers["x-trt-ignored"] == "before, include[]", path
            assert "x-trt-ignored" not in (await ask(app, "GET", f"/v1/{path}?limit=1")).headers


@pytest.mark.parametrize(
    ("body", "kind", "status", "param"),
    [
        (form(b"x", purpose="fine-tune"), FORM, 400, "purpose"),
        (form(b"x").replace(b"purpose", b"porpoise"), FORM, 400, "purpose"),
        (form(b"x").replace(b'name="file"', b'name="fail"'), FORM, 400, "file"),
        (form(b"x").replace(b"--edge--", b""), FORM, 400, "file"),
        (form(b"x", purpose="u" * 300), FORM, 400, "file"),
        (form(b"x" * 2000), FORM, 413, "file"),
        (form(b"x") + form(b"y"), FORM, 200, None),
        (form(b"x").replace(b"\r\n--edge--", b"\r\n--edgewise"), FORM, 400, "file"),
        (form(b"x").replace(b'filename="notes.txt"', b"filename*=idna''%ff"), FORM, 400, "file"),
        (form(b"x").replace(b'filename="notes.txt"', b"filename*=utf-7''+2AA-"), FORM, 400, "file"),
        (form(b"x").replace(b'filename="notes.txt"', b"filename*=utf-8''a%0Ab"), FORM, 200, None),
        (b"{}", "application/json", 415, None),
        (
            form(b"x", **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "60"}),
            FORM,
            400,
            "expires_after[seconds]",
        ),
    ],
)
@story
async def test_a_malformed_upload_is_refused_and_leaves_nothing(
    tmp_path: Path, body: bytes, kind: str, status: int, param: str | None
) -> None:
    async with served(data_dir=tmp_path, files_bytes=1500, **OWNERS) as app:
        reply = await app.client.send("POST", "/v1/files", body, headers(kind=kind))
        assert reply.status == status
        if status != 200:
            assert reply.error["param"] == param
            assert not [path for path in (tmp_path / "files").rglob("*") if path.is_file()]


@story
async def test_a_client_that_hangs_up_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(data_dir=tmp_path, **OWNERS) as app:
        body = [form(b"x" * 100)[:-30], b"never sent"]
        call = app.client.open("POST", "/v1/files", body, headers(kind=FORM))
        call.cut_body()
        call.hang_up()
        await call.done()
        assert (await ask(app, "GET", "/v1/files")).json()["data"] == []
        assert not [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("path", ["/v1/files/{}/content", "/admin/owners/ann/export"])
@story
async def test_a_client_that_leaves_while_it_reads_leaves_no_open_file(
    tmp_path: Path, path: str
) -> None:
    async with served(data_dir=tmp_path, admin_key="key-admin", **OWNERS) as app:
        file_id = (await upload(app, bytes(3_000_000))).json()["id"]
        key = "key-a" if "{}" in path else "key-admin"
        calls = [app.client.open("GET", path.format(file_id), b"", headers(key)) for _ in range(5)]
        for call in calls:
            await call.until(lambda call: len(call.body) > 1000)
            call.reading.clear()
            call.hang_up()
            await call.done()
        await until(lambda: not opened_below(tmp_path / "files"))


@pytest.mark.parametrize("before", [b"", form(b"x")])
@story
async def test_what_stands_around_a_form_is_bounded(tmp_path: Path, before: bytes) -> None:
    async with served(data_dir=tmp_path, files_bytes=1500, **OWNERS) as app:
        pieces = [before, *[bytes(16_384)] * 5]
        call = app.client.open("POST", "/v1/files", pieces, headers(kind=FORM))
        assert (await call.done()).status == 413
        assert not [path for path in (tmp_path / "files").rglob("*") if path.is_file()]


@story
async def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with served(data_dir=tmp_path, **OWNERS) as app:
        monkeypatch.setattr(os, "fsync", full)  # patched: a full disk
        reply = await upload(app, b"x")
        assert reply.status == 503
        assert "No space left on device" in reply.error["message"]
        assert not [path for path in (tmp_path / "files").rglob("*") if path.is_file()]


@story
async def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path, files=tmp_path / "kept", **OWNERS) as app:
        (tmp_path / "kept").write_bytes(b"")
        reply = await upload(app, b"x")
        assert (reply.status, reply.headers["retry-after"]) == (503, "60")
        assert "could not be stored" in reply.error["message"]


def png(width: int = 2) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + crc

    size = width.to_bytes(4, "big") * 2
    rows = zlib.compress((b"\0" + b"\x80" * width) * width)
    head = chunk(b"IHDR", size + b"\x08\0\0\0\0")
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def calling(code: str) -> str:
    return f"<|channel|>analysis to=python code<|message|>{code}<|call|>"


COPY = calling(
    "open('plot.png', 'wb').write(open('in.png', 'rb').read())\n"
    "open('table.csv', 'w').write('1,2')\nopen('fake.png', 'w').write('<svg><g></g></svg>')\n"
    "open('.hidden', 'w').close()"
)
ANSWER = "<|channel|>final<|message|>See [the plot](sandbox:/mnt/data/plot.png).<|return|>"


@boxed
@story
async def test_code_reads_uploads_and_what_it_writes_is_shown_and_cited(tmp_path: Path) -> None:
    async with served(COPY, ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as app:
        sent = (await upload(app, png(), name="in.png")).json()
        tool: Any = {
            "type": "code_interpreter",
            "container": {"type": "auto", "file_ids": [sent["id"]]},
        }
        asked = {"model": "demo", "input": "Hi", "tools": [tool], "stream": True}
        asked |= {"include": ["code_interpreter_call.outputs"]}
        reply = await ask(app, "POST", "/v1/responses", body=asked)
        last = reply.events[-1]["response"]
        call, message = last["output"]
        url = "data:image/png;base64," + base64.b64encode(png()).decode()
        assert call["outputs"] == [{"type": "image", "url": url}]
        text = message["content"][0]["text"]
        cited = message["content"][0]["annotations"]
        spans = {each["filename"]: text[each["start_index"] : each["end_index"]] for each in cited}
        assert spans == {"plot.png": "sandbox:/mnt/data/plot.png", "table.csv": "", "fake.png": ""}
        added = [e["annotation"] for e in reply.events if e["type"].endswith("annotation.added")]
        assert added == cited
        (plot,) = [each for each in cited if each["filename"] == "plot.png"]
        path = f"/v1/containers/{plot['container_id']}/files"
        fetched = await ask(app, "GET", f"{path}/{plot['file_id']}/content")
        assert fetched.body == png()
        kinds = {x["path"]: x["source"] for x in (await ask(app, "GET", path)).json()["data"]}
        assert kinds["in.png"] == "user"
        assert kinds["plot.png"] == "assistant"
        brought = await ask(app, "POST", path, body={"file_id": sent["id"]})
        assert brought.json()["path"] == "in.png"


@boxed
@pytest.mark.parametrize("kind", ["input_file", "input_image"])
@story
async def test_a_file_of_a_message_is_in_the_box_and_the_model_reads_its_name(
    tmp_path: Path, kind: str
) -> None:
    code = calling("print(open('in.csv').read())")
    async with served(code, ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as app:
        sent = (await upload(app, b"1,2", name="../in.csv")).json()
        part = {"type": kind, "file_id": sent["id"]}
        message = {"role": "user", "content": [{"type": "input_text", "text": "Sum"}, part]}
        tool = {"type": "code_interpreter", "container": {"type": "auto"}}
        asked = {"model": "demo", "input": [message], "tools": [tool]}
        asked |= {"include": ["code_interpreter_call.outputs"]}
        last = (await ask(app, "POST", "/v1/responses", body=asked)).json()
        assert last["output"][0]["outputs"] == [{"type": "logs", "logs": "1,2\n"}]
        assert "[The file 'in.csv' is in the working directory" in app.prompt_text(0)
        foreign = await ask(app, "POST", "/v1/responses", "key-b", asked)
        assert foreign.error["param"] == "input[0].content[1].file_id"
        without = await ask(app, "POST", "/v1/responses", body=asked | {"tools": []})
        assert (without.status, without.error["param"]) == (400, "input[0].content[1]")


@boxed
@story
async def test_files_of_one_name_stand_beside_each_other(tmp_path: Path) -> None:
    code = calling("import glob\nfor n in sorted(glob.glob('*.csv')): print(n, open(n).read())")
    async with served(code, ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as app:
        one, two = [(await upload(app, text, name="in.csv")).json() for text in (b"1", b"2")]
        parts = [{"type": "input_file", "file_id": sent["id"]} for sent in (one, two, one)]
        tool = {"type": "code_interpreter", "container": {"type": "auto"}}
        asked = {"model": "demo", "input": [{"role": "user", "content": parts}], "tools": [tool]}
        asked |= {"include": ["code_interpreter_call.outputs"]}
        last = (await ask(app, "POST", "/v1/responses", body=asked)).json()
        other = f"{two['id'][-8:]}-in.csv"
        printed = "".join(sorted([f"{other} 2\n", "in.csv 1\n"]))
        assert last["output"][0]["outputs"] == [{"type": "logs", "logs": printed}]
        prompt = app.prompt_text(0)
        assert (prompt.count("file 'in.csv' is"), prompt.count(f"file '{other}' is")) == (2, 1)
        body = {"name": "x", "file_ids": [one["id"], two["id"]]}
        made = (await ask(app, "POST", "/v1/containers", body=body)).json()
        listed = await ask(app, "GET", f"/v1/containers/{made['id']}/files")
        assert {each["path"] for each in listed.json()["data"]} == {other, "in.csv"}


@boxed
@story
async def test_a_container_that_its_files_do_not_fit_into_is_not_made(tmp_path: Path) -> None:
    room: dict[str, Any] = {"python": "boxed", "data_dir": tmp_path, "container_bytes": 1000}
    async with served(**room, **OWNERS) as app:
        sent = [(await upload(app, bytes(600), name=name)).json()["id"] for name in "ab"]
        body = {"name": "x", "file_ids": sent}
        reply = await ask(app, "POST", "/v1/containers", body=body)
        assert (reply.status, reply.error["code"]) == (400, "container_full")
        assert reply.error["param"] == "file_ids"
        assert (await ask(app, "GET", "/v1/containers")).json()["data"] == []


@boxed
@story
async def test_a_later_turn_s_file_of_one_name_takes_the_place_of_the_first(tmp_path: Path) -> None:
    code = calling("import glob\nfor n in glob.glob('*.csv'): print(n, open(n).read())")
    async with served(code, ANSWER, code, ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as s:
        asked: dict[str, Any] = {
            "model": "demo",
            "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
            "include": ["code_interpreter_call.outputs"],
        }
        for text in ("1", "2"):
            sent = (await upload(s, text.encode(), name="in.csv")).json()
            part = {"type": "input_file", "file_id": sent["id"]}
            asked["input"] = [{"role": "user", "content": [part]}]
            last = (await ask(s, "POST", "/v1/responses", body=asked)).json()
            assert last["output"][0]["outputs"] == [{"type": "logs", "logs": f"in.csv {text}\n"}]
            asked["previous_response_id"] = last["id"]


@story
async def test_a_tool_without_containers_takes_no_files() -> None:
    async with served(tools=[ScriptedTool("2")]) as app:
        container = {"type": "auto", "file_ids": ["file-1"]}
        call = await app.client.create(tools=[{"type": "code_interpreter", "container": container}])
        assert (call.status, call.error["param"]) == (400, "tools[0].container.file_ids")


@boxed
@story
async def test_a_file_that_cannot_be_had_is_refused_before_anything_runs(tmp_path: Path) -> None:
    async with served(COPY, ANSWER, python="boxed", data_dir=tmp_path, **OWNERS) as app:
        sent = (await upload(app, png(), "key-b")).json()
        named = {"name": "mine", "file_ids": [sent["id"]]}
        reply = await ask(app, "POST", "/v1/containers", body=named)
        assert (reply.status, reply.error["param"]) == (404, "file_ids[0]")
        assert (await ask(app, "GET", "/v1/containers")).json()["data"] == []
        container = {"type": "auto", "file_ids": [sent["id"]]}
        tools = [{"type": "code_interpreter", "container": container}]
        body = {"model": "demo", "input": "Hi", "tools": tools}
        reply = await ask(app, "POST", "/v1/responses", body=body)
        assert (reply.status, reply.error["param"]) == (404, "tools[0].container.file_ids[0]")
        assert not app.engine.requests
