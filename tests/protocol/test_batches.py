"""`/v1/batches` in the app: many requests answered behind all others, also by the next server."""

from __future__ import annotations

import asyncio
import errno
import os
from base64 import b64encode
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openai import AsyncOpenAI
from openai.types import Batch
from openai.types.webhooks import (
    BatchCancelledWebhookEvent,
    BatchCompletedWebhookEvent,
    BatchExpiredWebhookEvent,
    BatchFailedWebhookEvent,
)

from tests.support.asgi import until
from tests.support.files import FORM, form
from tests.support.served import served
from tests.support.small_site import Page, site_of
from tests.support.story import story
from tests.support.ticks import settled
from tests.support.turns import turn
from trt_responses.backends.stores import store_of
from trt_responses.errors import StoreUnavailable
from trt_responses.features.batches import batches
from trt_responses.settings import Settings
from trt_responses.store import Job
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.stores.whole import Standing, says_nothing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.served import Served
    from trt_responses.store import Store

OWNERS: dict[str, Any] = {"api_keys": "ann:key-a,bob:key-b"}
RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
EVENTS = (
    BatchCancelledWebhookEvent,
    BatchCompletedWebhookEvent,
    BatchExpiredWebhookEvent,
    BatchFailedWebhookEvent,
)
CHAT_NAMES = {"input": "prompt", "output": "completion"}


async def ask(
    app: Served, method: str, path: str, body: Any = None, key: str = "key-a", kind: str = ""
) -> Any:
    data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
    headers = {"host": "127.0.0.1:8000", "authorization": f"Bearer {key}"}
    headers["content-type"] = kind or "application/json"
    return await app.client.send(method, path, data, headers)


def request(name: str, url: str = RESPONSES, **body: Any) -> dict[str, Any]:
    text = (
        {"input": name} if url == RESPONSES else {"messages": [{"role": "user", "content": name}]}
    )
    return {
        "custom_id": name,
        "method": "POST",
        "url": url,
        "body": {"model": "demo"} | text | body,
    }


async def created(
    app: Served, lines: bytes, url: str = RESPONSES, key: str = "key-a", **more: object
) -> Any:
    sent = await ask(app, "POST", "/v1/files", form(lines, purpose="batch"), key, FORM)
    asked = {"input_file_id": sent.json()["id"], "endpoint": url, "completion_window": "24h"}
    return await ask(app, "POST", "/v1/batches", asked | {"metadata": {"a": "b"}} | more, key)


async def begun(app: Served, lines: bytes, url: str = RESPONSES, **more: Any) -> dict[str, Any]:
    made = await created(app, lines, url, **more)
    assert made.status == 200, made.body
    batch: dict[str, Any] = made.json()
    assert batch["status"] == "validating"
    return batch


async def naps(_: float) -> None:
    await turn()


async def ended(app: Served, batch_id: str) -> dict[str, Any]:
    return await seen(app, batch_id, "completed", "failed", "cancelled", "expired")


async def seen(app: Served, batch_id: str, *statuses: str) -> dict[str, Any]:
    """The batch once it has one of these statuses, which its own server tells at its next beat."""
    while True:
        batch: dict[str, Any] = (await ask(app, "GET", f"/v1/batches/{batch_id}")).json()
        if batch["status"] in statuses:
            return batch
        await turn()


async def rows(app: Served, file_id: str | None) -> dict[str, dict[str, Any]]:
    if file_id is None:
        return {}
    text = (await ask(app, "GET", f"/v1/files/{file_id}/content")).body
    return {row["custom_id"]: row for row in map(orjson.loads, text.splitlines())}


def jsonl(*requests: object) -> bytes:
    return b"\n".join(map(orjson.dumps, requests))


def replace_uploads(folder: Path, content: bytes | None) -> None:
    """None: delete them."""
    for path in folder.rglob("file-*"):
        path.unlink() if content is None else path.write_bytes(content)


def summed(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """The usage of a batch with these answers."""
    uses = [body["usage"] for body in bodies]
    assert len(uses) > 1

    def of(name: str, part: str = "") -> int:
        """A sum of tokens, by the names of either API."""
        found = [use.get(f"{name}_tokens", use.get(f"{CHAT_NAMES[name]}_tokens")) for use in uses]
        if part:
            both = [f"{each}_tokens_details" for each in (name, CHAT_NAMES[name])]
            details = [next(use[key] for key in both if key in use) for use in uses]
            found = [each[f"{part}_tokens"] for each in details]
        return sum(found)

    assert of("input") > 0
    return {
        "input_tokens": of("input"),
        "input_tokens_details": {"cached_tokens": of("input", "cached")},
        "output_tokens": of("output"),
        "output_tokens_details": {"reasoning_tokens": of("output", "reasoning")},
        "total_tokens": of("input") + of("output"),
    }


def left_in(folder: Path) -> list[Path]:
    return [*folder.rglob("*.work"), *folder.rglob("*.part")]


@pytest.mark.parametrize("url", [RESPONSES, CHAT])
@story
async def test_each_request_is_answered_and_each_fault_is_a_row(tmp_path: Path, url: str) -> None:
    async with served(data_dir=tmp_path, **OWNERS) as app:
        lines = jsonl(
            request("one", url),
            request("two", url),
            request("bad", url, temperature=99),
            request("streams", url, stream=True),
            request("other", url, model="other"),
        )
        batch = await begun(app, lines, url)
        last = await ended(app, batch["id"])
        assert last["status"] == "completed"
        assert last["request_counts"] == {"total": 5, "completed": 2, "failed": 3}
        assert last["metadata"] == {"a": "b"}
        read = Batch.model_validate(last, strict=True)
        assert read.usage is not None
        assert read.usage.model_dump() == last["usage"]
        answers = await rows(app, last["output_file_id"])
        assert answers.keys() == {"one", "two"}
        assert last["usage"] == summed([row["response"]["body"] for row in answers.values()])
        body = answers["one"]["response"]["body"]
        assert answers["one"]["response"]["status_code"] == 200
        assert "Hello there, friend." in orjson.dumps(body).decode()
        assert body["object"] == ("response" if url == RESPONSES else "chat.completion")
        faults = await rows(app, last["error_file_id"])
        assert {name: row["response"]["status_code"] for name, row in faults.items()} == {
            "bad": 400,
            "streams": 400,
            "other": 404,
        }
        assert faults["bad"]["response"]["body"]["error"]["param"] == "temperature"
        assert app.engine.requests[-1].options.priority == 0.0
        listed = (await ask(app, "GET", "/v1/batches")).json()["data"]
        assert [one["id"] for one in listed] == [batch["id"]]
        assert (await ask(app, "GET", "/v1/batches", key="key-b")).json()["data"] == []
        foreign = await ask(app, "GET", f"/v1/batches/{batch['id']}", key="key-b")
        assert (foreign.status, foreign.error["code"]) == (404, "batch_not_found")
        await until(lambda: not left_in(tmp_path))


@story
async def test_a_batch_is_no_conversation(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path, **OWNERS) as app:
        batch = await ended(app, (await begun(app, jsonl(request("one"))))["id"])
        path = f"/v1/conversations/{batch['id']}"
        item = {"items": [{"role": "user", "content": "x"}]}
        body = {"model": "demo", "input": "x", "conversation": batch["id"]}
        for method, at, sent in (
            ("GET", path, None),
            ("POST", path, {"metadata": {}}),
            ("POST", f"{path}/items", item),
            ("POST", RESPONSES, body),
            ("DELETE", path, None),
        ):
            refused = await ask(app, method, at, sent)
            assert (refused.status, refused.error["code"]) == (404, "not_found"), (method, at)
        assert (await ask(app, "GET", f"/v1/batches/{batch['id']}")).json() == batch


@story
async def test_a_body_that_is_too_deep_is_a_fault_and_takes_no_place(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(250):
        deep = [deep]
    line = orjson.dumps(request("deep") | {"body": "here"})
    line = line.replace(b'"here"', b'{"input":%b}' % orjson.dumps(deep).join((b"[" * 9, b"]" * 9)))
    async with served(data_dir=tmp_path, max_batch=1, **OWNERS) as app:
        batch = await begun(app, line + b"\n" + jsonl(request("one")))
        last = await ended(app, batch["id"])
        assert last["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
        faults = await rows(app, last["error_file_id"])
        assert faults["deep"]["response"]["status_code"] == 400


@story
async def test_a_batch_whose_answer_cannot_be_kept_does_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with served(data_dir=tmp_path, **OWNERS) as app:
        batch = await begun(app, jsonl(request("one")))
        monkeypatch.setattr(os, "fsync", full)  # patched: a full disk
        assert (await ended(app, batch["id"]))["status"] == "failed"


@story
async def test_requests_in_one_conversation_wait_for_each_other(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path, sleep=naps, **OWNERS) as app:
        talk = (await ask(app, "POST", "/v1/conversations", {})).json()["id"]
        lines = jsonl(*(request(name, conversation=talk) for name in "abcd"))
        last = await ended(app, (await begun(app, lines))["id"])
        assert last["request_counts"] == {"total": 4, "completed": 4, "failed": 0}
        items = await ask(app, "GET", f"/v1/conversations/{talk}/items")
        assert len(items.json()["data"]) == 8


@story
async def test_a_batch_that_cannot_be_made_ends_with_its_window(tmp_path: Path) -> None:
    body = {"id": "batch_1", "endpoint": "/v1/gone", "status": "in_progress", "expires_at": 1}
    store = store_of(Settings(store=f"sqlite:///{tmp_path}/kept.db"), says_nothing)
    async with served(store=store, data_dir=tmp_path, sleep=naps, **OWNERS) as app:
        job = Job("batch_1", "ann", orjson.dumps(body), 1, source=b"{}", model="batches of demo")
        await store.put_job(job)
        await store.leave_job(job.id, term=1, to_others=True)
        last = await ended(app, job.id)
        assert last["status"] == "failed"
        assert last["errors"]["data"][0]["code"] == "server_error"


@story
async def test_a_heartbeat_outlives_a_store_that_is_away(tmp_path: Path) -> None:
    class Away(MemoryStore):
        beats = 0

        async def renew_job(self, *given: Any, **more: Any) -> Standing:
            self.beats += 1
            if self.beats == 1:
                raise StoreUnavailable("away")
            return await super().renew_job(*given, **more)

    async with served(data_dir=tmp_path, store=Away(), manual=True, sleep=naps, **OWNERS) as app:
        batch = await begun(app, jsonl(request("one")))
        await ask(app, "POST", f"/v1/batches/{batch['id']}/cancel")
        assert (await ended(app, batch["id"]))["status"] == "cancelled"


@story
async def test_a_batch_that_is_ended_twice_leaves_one_file(tmp_path: Path) -> None:
    class Away(MemoryStore):
        ends = 0

        async def finish_job(self, *given: Any, **more: Any) -> bool:
            self.ends += 1
            if self.ends == 1:
                raise StoreUnavailable("away")
            return await super().finish_job(*given, **more)

    store = Away(Bounds(takeover_s=60.0))
    async with served(data_dir=tmp_path, store=store, sleep=naps, **OWNERS) as app:
        batch = await begun(app, jsonl(request("one")))
        await until(lambda: store.ends == 2)
        last = await ended(app, batch["id"])
        listed = (await ask(app, "GET", "/v1/files?purpose=batch_output")).json()["data"]
        assert [file["id"] for file in listed] == [last["output_file_id"]]
        assert len(app.engine.requests) == 1


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (b"", "invalid_file"),
        (b"{", "invalid_json_line"),
        (jsonl(request("a"), request("a")), "duplicate_custom_id"),
        (jsonl(request("a", CHAT)), "mismatched_endpoint"),
        (jsonl(request("a", input="x" * 5_000_000)), "line_too_long"),
    ],
    ids=["empty", "JSON", "name", "endpoint", "length"],
)
@story
async def test_a_file_with_faults_fails_before_anything_runs(
    tmp_path: Path, lines: bytes, code: str
) -> None:
    async with served(data_dir=tmp_path, **OWNERS) as app:
        batch = await begun(app, lines)
        last = await ended(app, batch["id"])
        assert last["status"] == "failed"
        assert last["errors"]["data"][0]["code"] == code
        assert not app.engine.requests


@story
async def test_a_fault_has_its_place_in_the_file_where_lines_are_empty(tmp_path: Path) -> None:
    first, *more = (jsonl(request(name)) for name in "abc")
    marked = [BOM_UTF8 + first, b"", b" ", b"{", BOM_UTF8 + more[0], b"["]  # files put together
    lines = b"\r\n".join((b"", *marked, more[1]))
    async with served(data_dir=tmp_path, **OWNERS) as app:
        last = await ended(app, (await begun(app, lines))["id"])
        assert [fault["line"] for fault in last["errors"]["data"]] == [5, 7]


@pytest.mark.parametrize("left", ["whole", "no file", "no key", "sealed", "damaged"])
@story
async def test_a_server_that_ends_leaves_a_batch_to_the_next(tmp_path: Path, left: str) -> None:
    """What was answered is not answered again, nor lost with the batch's own file; but answers that
    cannot be read are made again."""

    def store() -> Store:
        return store_of(Settings(store=f"sqlite:///{tmp_path}/kept.db"), says_nothing)

    async with served(
        store=store(), data_dir=tmp_path, manual=True, max_batch=1, **OWNERS
    ) as first:
        batch = await begun(
            first,
            jsonl(*map(request, ("one", "two", "three"))),
            output_expires_after={"anchor": "created_at", "seconds": 3600},
        )
        await until(lambda: len(first.engine.requests) == 1)
        while len(first.engine.requests) < 2:
            await first.clock.step()
        # the second request may begin while the first one's answer is still being written
        await until(lambda: any(p.read_bytes().endswith(b"\n") for p in left_in(tmp_path)))
        (work,) = left_in(tmp_path)
        with work.open("ab") as file:
            # as another server leaves it that has keys, a disk, or a kill
            file.write({"sealed": b"4QAB\n", "damaged": b"eyJh\n"}.get(left, b"half of a ro"))
    if left == "no file":
        replace_uploads(tmp_path, None)
    (keys := tmp_path / "keys").write_bytes(b64encode(bytes(32)) + b"\nclear")
    if left == "no key":
        replace_uploads(tmp_path, b"\xe1\0\0\0\1")  # another key has sealed it
    async with served(store=store(), data_dir=tmp_path, store_keys=str(keys), **OWNERS) as second:
        last = await ended(second, batch["id"])
        if left in ("no file", "no key"):
            assert last["status"] == "failed"
            assert last["errors"]["data"][0]["code"] == "invalid_file"
            assert (await rows(second, last["output_file_id"])).keys() == {"one"}
            return
        assert last["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
        assert len(second.engine.requests) == (2 if left == "whole" else 3)
        answers = await rows(second, last["output_file_id"])
        assert answers.keys() == {"one", "two", "three"}
        assert last["usage"] == summed([row["response"]["body"] for row in answers.values()])
        file = (await ask(second, "GET", f"/v1/files/{last['output_file_id']}")).json()
        assert file["expires_at"] == file["created_at"] + 3600
        await until(lambda: not left_in(tmp_path))


@story
async def test_each_end_of_a_batch_is_an_event_for_the_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, events = AsyncOpenAI(api_key="-", webhook_secret="secret"), dict[str, str]()

    async def arrived(app: Served, batch: dict[str, Any], status: str) -> None:
        assert (await ended(app, batch["id"]))["status"] == status
        await until(lambda: len(site.asked) > len(events))
        came = site.asked[-1]
        event = client.webhooks.unwrap(came.body, came.headers)
        assert isinstance(event, EVENTS)
        assert event.data.id == batch["id"]
        events[status] = event.type

    async with site_of({"/": Page()}) as site:
        given: dict[str, Any] = {
            "data_dir": tmp_path,
            "webhook_url": site.url(),
            "webhook_secret": "secret",
        }
        async with served(**given, **OWNERS) as app:
            await arrived(app, await begun(app, jsonl(request("one"))), "completed")
            await arrived(app, await begun(app, b"{"), "failed")
        async with served(manual=True, **given, **OWNERS) as app:
            batch = await begun(app, jsonl(request("one")))
            await ask(app, "POST", f"/v1/batches/{batch['id']}/cancel")
            await arrived(app, batch, "cancelled")
            monkeypatch.setattr(batches, "WINDOW_S", 0)  # patched: a day
            batch = await begun(app, jsonl(request("one")))
            await arrived(app, batch, "expired")
            found = await rows(app, (await ended(app, batch["id"]))["error_file_id"])
            assert found["one"]["response"] is None
            assert found["one"]["error"]["code"] == "batch_expired"
    assert events == {status: f"batch.{status}" for status in batches.OVER}


@story
async def test_an_owner_has_a_bounded_number_of_open_batches(tmp_path: Path) -> None:
    async with served(
        data_dir=tmp_path, manual=True, max_batch=1, owner_batches=2, **OWNERS
    ) as app:
        one, _ = [await begun(app, jsonl(request("one"))) for _ in range(2)]
        refused = await created(app, jsonl(request("one")))
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert "limit 2 (TRT_RESPONSES_OWNER_BATCHES)" in refused.error["message"]
        assert int(refused.headers["retry-after"]) > 0
        assert (await created(app, jsonl(request("one")), key="key-b")).status == 200
        lines = form(jsonl(request("one")), purpose="batch")  # others would fail, and make room
        sent = await ask(app, "POST", "/v1/files", lines, kind=FORM)
        both = {"input_file_id": sent.json()["id"], "endpoint": RESPONSES}
        both["completion_window"] = "24h"
        await ask(app, "POST", f"/v1/batches/{one['id']}/cancel")
        await ended(app, one["id"])
        replies = await asyncio.gather(*(ask(app, "POST", "/v1/batches", both) for _ in range(2)))
        assert sorted(reply.status for reply in replies) == [200, 429], "one more has room"


@pytest.mark.parametrize(
    ("expiry", "param"),
    [
        ({"anchor": "created_at", "seconds": 3599}, "output_expires_after.seconds"),
        ({"anchor": "created_at", "seconds": 2_592_001}, "output_expires_after.seconds"),
        ({"anchor": "completed_at", "seconds": 3600}, "output_expires_after.anchor"),
        ({"anchor": "created_at"}, "output_expires_after.seconds"),
    ],
)
@story
async def test_a_faulty_expiry_is_refused(
    tmp_path: Path, expiry: dict[str, object], param: str
) -> None:
    async with served(data_dir=tmp_path, **OWNERS) as app:
        refused = await created(app, jsonl(request("one")), output_expires_after=expiry)
        assert (refused.status, refused.error["param"]) == (400, param)


@story
async def test_what_a_drain_breaks_off_is_answered_by_the_next_server(tmp_path: Path) -> None:
    def store() -> Store:
        return store_of(Settings(store=f"sqlite:///{tmp_path}/kept.db"), says_nothing)

    async with served(store=store(), data_dir=tmp_path, manual=True, **OWNERS) as first:
        batch = await begun(first, jsonl(request("one"), request("two")))
        await until(lambda: len(first.engine.requests) == 2)
        first.drain()
        first.runs.shut_down()
        await until(lambda: not len(first.runs))
    async with served(store=store(), data_dir=tmp_path, **OWNERS) as second:
        last = await ended(second, batch["id"])
        assert last["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
        assert (await rows(second, last["output_file_id"])).keys() == {"one", "two"}


@pytest.mark.slow  # it asks until a heartbeat of a second has told what it waits for
@story
async def test_a_batch_waits_for_all_others_and_ends_when_cancelled(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path, manual=True, max_batch=1) as app:
        other = app.client.ask(stream=True)
        await until(lambda: len(app.engine.requests) == 1)
        batch = await begun(app, jsonl(request("one"), request("two")))
        path = f"/v1/batches/{batch['id']}"
        await seen(app, batch["id"], "in_progress")
        for method, end in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel")):
            reply = await ask(app, method, f"/v1/responses/{batch['id']}{end}")
            assert reply.status == 404
        later = app.client.ask(stream=True)
        await settled()
        other.hang_up()
        await until(lambda: len(app.engine.requests) == 2)
        assert app.engine.requests[1].options.priority > 0.0, "who came later goes first"
        later.hang_up()
        await until(lambda: len(app.engine.requests) == 3)
        assert app.engine.requests[2].options.priority == 0.0
        assert (await ask(app, "POST", f"{path}/cancel")).json()["status"] == "cancelling"
        last = await ended(app, batch["id"])
        assert (last["status"], last["output_file_id"]) == ("cancelled", None)
        assert last["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
        assert (await ask(app, "POST", f"{path}/cancel")).json() == last
