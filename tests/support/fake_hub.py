"""A Hugging Face hub on loopback: one model, its files in pieces, and a line that breaks."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMMIT = "c0ffee" + "0" * 34


class FakeHub(ThreadingHTTPServer):
    """Serves `files` as `model`. `break_after`: bytes after which each answer ends too early.
    `stall_after`: bytes after which each answer waits until `released`."""

    daemon_threads = True

    def __init__(self, model: str, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model, self.files = model, dict(files)
        self.break_after: int | None = None
        self.stall_after: int | None = None
        self.released = threading.Event()
        self.ranges: list[str] = []
        """The ranges of repeated requests, from the middle on."""
        self.sent_bytes = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left is not an error here."""


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None: ...

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        hub = self.server
        if re.fullmatch(f"/api/models/{hub.model}(/revision/.+)?", path):
            listed = [{"rfilename": name} for name in hub.files]
            return self._json({"id": hub.model, "sha": COMMIT, "siblings": listed})
        if path.startswith(f"/api/models/{hub.model}/tree/"):
            return self._json([_entry(name, data) for name, data in hub.files.items()])
        found = re.fullmatch(f"/{hub.model}/resolve/[^/]+/(.+)", path)
        if found is None or found[1] not in hub.files:
            return self._json(
                {"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"}
            )
        return self._file(hub.files[found[1]])

    def _file(self, data: bytes) -> None:
        start = 0
        if span := self.headers.get("Range"):
            start = int(span.removeprefix("bytes=").split("-")[0])
            if start:
                self.server.ranges.append(span)
        self.send_response(206 if span else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        if span:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(data)
        if self.server.break_after is not None and end - start > self.server.break_after:
            end = start + self.server.break_after
            self.close_connection = True
        stall = self.server.stall_after
        if stall is not None and end - start > stall:
            self.wfile.write(data[start : start + stall])
            self.server.sent_bytes += stall
            start += stall
            self.server.released.wait()
        self.wfile.write(data[start:end])
        self.server.sent_bytes += end - start

    def _json(
        self, value: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Repo-Commit", COMMIT)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _entry(name: str, data: bytes) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    return {
        "type": "file",
        "path": name,
        "size": len(data),
        "oid": digest[:40],
        "lfs": {"oid": digest, "size": len(data), "pointerSize": 134},
    }


@contextmanager
def fake_hub(model: str, files: Mapping[str, bytes]) -> Iterator[FakeHub]:
    with FakeHub(model, files) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.released.set()
            hub.shutdown()
            thread.join()
