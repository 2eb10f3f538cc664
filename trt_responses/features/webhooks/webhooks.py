"""Events for a URL of the operator's, signed as OpenAI signs its webhooks: after the specification
of Standard Webhooks.

An event is repeated until the receiver answers with a status of 2xx, with the same id each time.
Events that wait are in memory: those of a server that ends are lost. Knows nothing of batches.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import orjson

from trt_responses.errors import UsageError
from trt_responses.run.parts import mint

logger = logging.getLogger(__name__)

CONNECT_S, ANSWER_S = 5.0, 15.0
TRY_S = CONNECT_S + ANSWER_S
"""The limits of `httpx` begin again at each byte."""
WAITS_S = (1, 5, 30, 120, 600, 1800)
"""Between two tries."""
MOST_WAITING = 1000
PREFIX = "whsec_"


class Webhooks:
    """The events of this server."""

    def __init__(
        self, url: str, key: bytes, sleep: Callable[[float], Awaitable[None]], try_s: float = TRY_S
    ) -> None:
        self._url = url
        self._try_s = try_s
        self._key = key
        self._sleep = sleep
        self._http: httpx2.AsyncClient | None = None
        self._sending = set[asyncio.Task[None]]()

    @property
    def waiting(self) -> int:
        """Events that have not arrived yet."""
        return len(self._sending)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S, pool=None)
        async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as self._http:
            try:
                yield
            finally:
                self._http, left = None, tuple(self._sending)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
                if left:
                    logger.warning("webhooks are lost at shutdown: events=%d", len(left))

    def notify(self, kind: str, name: str) -> None:
        """Send an event of this kind about the object of this id, in the background."""
        if self._http is None or self.waiting >= MOST_WAITING:
            logger.warning("dropping webhook %s of %s: too many wait, or shutdown", kind, name)
            return
        task = asyncio.create_task(self._send(self._http, kind, name))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, http: httpx2.AsyncClient, kind: str, name: str) -> None:
        event = {
            "id": (event_id := mint("evt")),
            "object": "event",
            "created_at": int(time.time()),
            "type": kind,
            "data": {"id": name},
        }
        body, why = orjson.dumps(event), ""
        for wait_s in (0, *WAITS_S):
            if wait_s:
                await self._sleep(wait_s)
            if not (why := await self._fault(http, event_id, body)):
                return
        logger.warning("cannot deliver webhook %s of %s: %s", kind, name, why)

    async def _fault(self, http: httpx2.AsyncClient, event_id: str, body: bytes) -> str:
        """Send the event once. Returns why it did not arrive, or nothing."""
        headers = signed(self._key, event_id, int(time.time()), body)
        try:
            async with (
                asyncio.timeout(self._try_s),
                http.stream("POST", self._url, content=body, headers=headers) as reply,
            ):
                return "" if reply.is_success else f"status {reply.status_code}"
        except (httpx2.HTTPError, TimeoutError) as error:
            return type(error).__name__


def signed(key: bytes, event_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers of an event."""
    text = f"{event_id}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode()
    return {
        "content-type": "application/json",
        "user-agent": "trt-responses",
        "webhook-id": event_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{signature}",
    }


def key_of(secret: str | None) -> bytes:
    """The key that a secret stands for. Raises a `UsageError` without one."""
    if not secret or secret == PREFIX:
        raise UsageError("Set TRT_RESPONSES_WEBHOOK_SECRET: it signs what the webhook gets.")
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise UsageError("TRT_RESPONSES_WEBHOOK_SECRET has no base64 after whsec_.") from None
