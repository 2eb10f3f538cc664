"""The server of `hostile_mcp` over HTTP: `python -m … HOW` prints its port."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.hostile_mcp import messages, say_nothing


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    how = ""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.how == "mute":
            say_nothing()
        if "id" not in request or "method" not in request:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("mcp-session-id", "one")
        self.send_header("connection", "close")
        self.end_headers()
        how = self.how.removesuffix(" by CR")
        end = b"\n\n" if how == self.how else b"\r\r"
        for pieces in messages(how, request):
            self.wfile.write(b"event: message\ndata: ")
            for piece in pieces:
                self.wfile.write(piece.encode())
            self.wfile.write(end)
        self.close_connection = True

    def do_GET(self) -> None:
        self.send_error(405)

    def do_DELETE(self) -> None:
        if self.how == "silent":
            say_nothing()  # a wait for the session's end never ends
        self.send_error(405)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that gets too much closes the connection."""


def over_http(how: str) -> None:
    Http.how = how
    server = Server(("127.0.0.1", 0), Http)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    over_http(sys.argv[1])
