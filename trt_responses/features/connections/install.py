"""HTTP/1.1 connections, changed where uvicorn's own would fail our clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.connections.settings import ConnectionNumbers
from trt_responses.run.parts import mint

if TYPE_CHECKING:
    from trt_responses.features.connections.protocol import Protocol
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    """An app that another program serves makes no connection here, and loads nothing of it."""

    def http(socket_path: str | None) -> type[Protocol]:
        from trt_responses.features.connections.backlog import Backlog
        from trt_responses.features.connections.protocol import protocol

        backlog, settings = Backlog(), server.settings
        server.on_listen.append(backlog.listen)
        return protocol(
            mint,
            max_header_bytes=ConnectionNumbers.of(settings).max_header_bytes,
            read_timeout_s=settings.read_timeout_s,
            socket_path=socket_path,
            backlog=backlog,
        )

    server.http = http
