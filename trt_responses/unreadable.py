"""What a client gets for bytes that are no HTTP: the same kind of error as for everything else.

uvicorn answers them before any app is asked, in plain text and without a request id; it does so
also in the middle of a reply, which would put one answer into another; and it lets headers grow
without end. Knows connections; knows no app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trt_responses.errors import ApiError, error_body

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = (
    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    "x-request-id: {request_id}\r\nopenai-processing-ms: 0\r\ncache-control: no-store\r\n"
    "connection: close\r\n\r\n"
)
PHRASES = {400: "400 Bad Request", 431: "431 Request Header Fields Too Large"}


def protocol(mint: Callable[[str], str], max_header_bytes: int) -> type[HttpToolsProtocol]:
    """uvicorn's protocol with our words for what it cannot read. `mint` makes request ids."""

    class Protocol(HttpToolsProtocol):
        _head_bytes = 0
        """Of the head that is being read, or of what has come since the last one."""

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if self._head_bytes > max_header_bytes and not self.transport.is_closing():
                self._refuse(_too_large(max_header_bytes))

        def on_headers_complete(self) -> None:
            self._head_bytes = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head_bytes = 0
            super().on_body(body)

        def send_400_response(self, msg: str) -> None:
            self._refuse(NO_HTTP)

        def _refuse(self, error: ApiError) -> None:
            """Say why and close, unless a reply has begun on this connection: then only close."""
            cycle = self.cycle
            begun = cycle is not None and cycle.response_started and not cycle.response_complete
            if not self.pipeline and not begun:
                body = orjson.dumps({"error": error_body(error)})
                status = PHRASES[error.status]
                head = HEAD.format(status=status, length=len(body), request_id=mint("req"))
                self.transport.write(head.encode() + body)
            self.transport.close()

    return Protocol


NO_HTTP = ApiError(
    "The bytes that came are no HTTP/1.1 request: expected a request line such as "
    "'POST /v1/responses HTTP/1.1', headers, and a body of the length that they name.",
    status=400,
    type="invalid_request_error",
    code="invalid_http",
)


def _too_large(at_most: int) -> ApiError:
    return ApiError(
        f"The request's headers are larger than {at_most} bytes (TRT_RESPONSES_MAX_HEADER_BYTES).",
        status=431,
        type="invalid_request_error",
        code="headers_too_large",
    )
