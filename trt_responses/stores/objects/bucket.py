"""A bucket of an object store with the S3 API: immutable objects, each under a key of its own.

A key begins with the SHA-256 of its content and is used once. What is read is checked against it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

import httpx2

from trt_responses.errors import StartupError, StoreUnavailable
from trt_responses.stores.objects.signature import Keys, signed

CONNECT_S, ANSWER_S, RETRY_AFTER_S = 2.0, 10.0, 5
TRIES = 3
SHA = 64
"""Letters of a digest in a key."""
REQUIRED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class Bucket:
    """The objects below a URL such as `https://s3.eu-central-1.amazonaws.com/bucket/prefix`."""

    def __init__(self, url: str, keys: Keys, *, answer_s: float = ANSWER_S) -> None:
        parts = urlsplit(url)
        path = unquote(parts.path.rstrip("/"))
        more = parts.query or parts.fragment or parts.username
        if parts.scheme not in ("http", "https") or not parts.hostname or not path or more:
            raise StartupError(
                f"The object store at {parts.hostname} has no address: use https://host/bucket."
            )
        self._base, self._host, self._path = f"{parts.scheme}://{parts.netloc}", parts.netloc, path
        self._keys = keys
        timeout = httpx2.Timeout(answer_s, connect=CONNECT_S, pool=None)
        self._http = httpx2.AsyncClient(timeout=timeout, trust_env=False)

    @staticmethod
    def key_for(data: bytes) -> str:
        """A new key for this content."""
        return f"{hashlib.sha256(data).hexdigest()}-{secrets.token_hex(8)}"

    async def start(self) -> None:
        """Write and delete an object. Raises a `StartupError` with the reason if that fails."""
        try:
            await self.put(key := self.key_for(b"probe"), b"probe")
            await self.delete(key)
        except StoreUnavailable as error:
            raise StartupError(
                f"Cannot use the object store {self._base}: {error.message}"
            ) from None

    async def stop(self) -> None:
        await self._http.aclose()

    async def put(self, key: str, data: bytes) -> None:
        await self._request("PUT", key, data)

    async def get(self, key: str) -> bytes | None:
        """The content; None if there is no such object."""
        return await self._request("GET", key)

    async def delete(self, key: str) -> None:
        """Delete the object, if it exists."""
        await self._request("DELETE", key)

    async def _request(self, method: str, key: str, data: bytes = b"") -> bytes | None:
        why = ""
        for _ in range(TRIES):
            try:
                reply = await self._reply(method, key, data)
            except httpx2.HTTPError as error:
                why = f"{type(error).__name__} at {method}"
                continue
            if reply.status_code == 404 and method != "PUT":
                return None
            why = f"{reply.status_code} {_code(reply)} at {method}".replace("  ", " ")
            if reply.is_success:
                if method != "GET" or await _is_whole(key, reply.content):
                    return reply.content
                why = "an object with other content than was written"
            elif reply.status_code < 500 and reply.status_code != 429:
                break
        raise StoreUnavailable(
            f"The store's object store failed: {why}.", retry_after_s=RETRY_AFTER_S
        )

    async def _reply(self, method: str, key: str, data: bytes) -> httpx2.Response:
        path = f"{self._path}/{key}"
        digest = key[:SHA] if method == "PUT" else hashlib.sha256(b"").hexdigest()
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = signed(method, path, {"host": self._host}, digest, self._keys, at)
        url = f"{self._base}{quote(path, safe='/-_.~')}"
        return await self._http.request(method, url, content=data, headers=headers)


async def _is_whole(key: str, content: bytes) -> bool:
    return (await asyncio.to_thread(hashlib.sha256, content)).hexdigest() == key[:SHA]


def _code(reply: httpx2.Response) -> str:
    """The code in an error's XML."""
    return reply.text.partition("<Code>")[2].partition("</Code>")[0][:60]


def keys_of(environment: Mapping[str, str] = os.environ) -> Keys:
    """The credentials in the environment, as AWS's own programs name them."""
    if missing := [name for name in REQUIRED if not environment.get(name)]:
        raise StartupError(f"The object store needs credentials: set {' and '.join(missing)}.")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    name, secret = (environment[each] for each in REQUIRED)
    return Keys(name, secret, region, environment.get("AWS_SESSION_TOKEN", ""))
