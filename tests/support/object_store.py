"""An object store on loopback, written from the published S3 API: PUT, GET and DELETE of objects,
checksums of bodies, and faults on demand."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

Fault = Literal["500", "403", "silent", "cut", "other", "late"]
REFUSED = b"<?xml version='1.0'?><Error><Code>%b</Code><Message>No.</Message></Error>"


class ObjectStore(ThreadingHTTPServer):
    """Keeps objects by their path. Each request takes the next of `faults`, if there is one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = dict[str, bytes]()
        self.faults = list[Fault]()
        self.asked = list[str]()
        """The methods of all requests."""
        self.over = threading.Event()
        self.go = threading.Event()
        """What a late answer waits for."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/bucket/responses"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectStore

    def log_message(self, *_: object) -> None:
        """Nothing is written to the terminal."""

    def _answer(self, status: int, body: bytes = b"", sent: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])
        self.close_connection = sent is not None

    def _serve(self) -> None:
        kept, method = self.server.objects, self.command
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append(method)
        fault = self.server.faults.pop(0) if self.server.faults else None
        digest = self.headers["x-amz-content-sha256"]
        if fault == "silent":
            self.server.over.wait()
            self.close_connection = True
        elif fault in ("500", "403"):
            code = b"InternalError" if fault == "500" else b"AccessDenied"
            self._answer(int(fault), REFUSED % code)
        elif not self.headers["authorization"] or digest != hashlib.sha256(body).hexdigest():
            self._answer(400, REFUSED % b"XAmzContentSHA256Mismatch")
        elif method == "PUT":
            kept[self.path] = body
            if fault == "late":
                self.server.go.wait()
            self._answer(200)
        elif method == "DELETE":
            kept.pop(self.path, None)
            self._answer(204)
        elif self.path not in kept:
            self._answer(404, REFUSED % b"NoSuchKey")
        else:
            content = kept[self.path]
            other = content[:-1] + bytes([content[-1] ^ 1]) if fault == "other" else content
            self._answer(200, other, sent=len(content) // 2 if fault == "cut" else None)

    do_PUT = do_GET = do_DELETE = _serve


@contextmanager
def running() -> Iterator[ObjectStore]:
    store = ObjectStore()
    serving = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield store
    finally:
        store.over.set()
        store.go.set()
        store.shutdown()
        serving.join()
        store.server_close()
