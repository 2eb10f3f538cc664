"""Signed events, as the SDK of OpenAI verifies them, repeated until they arrive."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import openai
import pytest
from openai.types.webhooks import BatchCompletedWebhookEvent

from tests.support.asgi import until
from tests.support.served import served
from tests.support.small_site import Page, drip, redirect, site_of
from tests.support.story import story
from trt_responses.errors import UsageError
from trt_responses.features.webhooks import webhooks as module
from trt_responses.features.webhooks.webhooks import WAITS_S, Webhooks, key_of, signed

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "whsec_c2VjcmV0IG9mIGEgdGVzdA=="


class Waits:
    """Waits that end at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


def page_after(*pages: Page) -> Callable[[object], Page]:
    left = list(pages)
    return lambda _: left.pop(0) if left else Page(status=204)


@pytest.mark.parametrize("secret", [SECRET, "a plain text"])
@story
async def test_the_sdk_verifies_an_event_and_no_other_secret_or_body(secret: str) -> None:
    async with site_of({"/hook": Page(status=200)}) as site:
        webhooks = Webhooks(site.url("/hook"), key_of(secret), Waits().sleep)
        async with webhooks.life():
            webhooks.notify("batch.completed", "batch_1")
            await until(lambda: len(site.asked) == 1)
    (came,) = site.asked
    client = openai.OpenAI(api_key="-", webhook_secret=secret)
    event = client.webhooks.unwrap(came.body, came.headers)
    assert isinstance(event, BatchCompletedWebhookEvent)
    assert (event.data.id, event.object) == ("batch_1", "event")
    assert event.id == came.headers["webhook-id"]
    assert abs(event.created_at - time.time()) < 300
    for body, other in ((came.body, "another"), (came.body + b" ", secret)):
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(body, came.headers, secret=other)


@story
async def test_an_event_is_repeated_with_its_id_until_it_arrives() -> None:
    page, waits = page_after(Page(status=500), Page(status=404), redirect("/else")), Waits()
    async with site_of({"/hook": page}) as site:
        webhooks = Webhooks(site.url("/hook"), key_of(SECRET), waits.sleep)
        async with webhooks.life():
            webhooks.notify("batch.failed", "batch_1")
            await until(lambda: len(site.asked) == 4)
            await until(lambda: not webhooks.waiting)
    assert len({(asked.path, asked.headers["webhook-id"]) for asked in site.asked}) == 1
    assert len(site.asked) == 4
    assert waits.seconds == list(WAITS_S[:3])


@story
async def test_a_receiver_that_begins_an_answer_for_ever_gets_the_event_again() -> None:
    early = page_after(drip(b"HTTP/1.1 102 Processing\r\n\r\n")._replace(status=102))
    async with site_of({"/hook": early}) as site:
        webhooks = Webhooks(site.url("/hook"), key_of(SECRET), Waits().sleep, try_s=0.5)
        async with webhooks.life():
            webhooks.notify("batch.completed", "batch_1")
            await until(lambda: len(site.asked) > 1 and not webhooks.waiting)


@story
async def test_an_event_that_never_arrives_is_given_up_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site_of({}) as site:
        url = site.url("/hook")
    waits = Waits()
    webhooks = Webhooks(url, key_of(SECRET), waits.sleep)
    async with webhooks.life():
        webhooks.notify("batch.expired", "batch_1")
        await until(lambda: not webhooks.waiting)
    assert waits.seconds == list(WAITS_S)
    assert "cannot deliver webhook batch.expired of batch_1: ConnectError" in caplog.text


@story
async def test_events_that_wait_are_bounded_and_counted_at_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def for_ever(_: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "MOST_WAITING", 2)  # patched: a thousand are slow
    async with site_of({"/hook": Page(status=503)}) as site:
        webhooks = Webhooks(site.url("/hook"), key_of(SECRET), for_ever)
        async with webhooks.life():
            for number in range(3):
                webhooks.notify("batch.completed", f"batch_{number}")
            await until(lambda: len(site.asked) == 2)
        assert not webhooks.waiting
        webhooks.notify("batch.completed", "batch_4")
    lines = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    dropping = "dropping webhook batch.completed of batch_{}: too many wait, or shutdown"
    lost = "webhooks are lost at shutdown: events=2"
    assert lines == [dropping.format(2), lost, dropping.format(4)]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"webhook_url": "http://127.0.0.1/"}, "Set TRT_RESPONSES_WEBHOOK_SECRET"),
        ({"webhook_url": "http://h/", "webhook_secret": "whsec_%"}, "no base64 after whsec_"),
        ({"webhook_url": "http://h/", "webhook_secret": "whsec_ü"}, "no base64 after whsec_"),
    ],
)
@story
async def test_a_server_does_not_start_with_faulty_settings(
    settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        async with served(**settings):
            raise AssertionError("it has started")


def test_a_signature_is_of_the_id_the_time_and_the_body() -> None:
    """The example of the specification of Standard Webhooks."""
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
