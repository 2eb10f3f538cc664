"""Limits of one MCP server, and the error of a server without a result."""

from __future__ import annotations

from trt_responses.frozen import dataclass


class Fault(Exception):
    """The reason why a server gave no result; `kind` and `code` are those of the API's error."""

    def __init__(self, message: str, kind: str = "mcp_protocol_error", code: int = -32000) -> None:
        super().__init__(message)
        self.message, self.kind, self.code = message, kind, code


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server."""

    connect_s: float = 20.0
    """Timeout of connecting and listing tools."""
    call_s: float = 60.0
    """Timeout of a call, as MCP's SDK for TypeScript has it; a server's entry may give another."""
    max_bytes: int = 1024 * 1024
    """Maximum size of one message, and of all messages between two requests."""
    max_messages: int = 1000
    """Maximum messages between two requests."""
    max_pages: int = 50
    max_tools: int = 128


class Meter:
    """Counts what a server has sent since the last request."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = self._messages = 0
        self.fault: Fault | None = None
        """Set when the server exceeded its limits."""

    def begin(self) -> None:
        self._bytes = self._messages = 0

    def take(self, size: int, messages: int) -> None:
        """Count received data. Raises a `Fault` above the limits."""
        self._bytes += size
        self._messages += messages
        if self._bytes > self._limits.max_bytes:
            what = f"more than {self._limits.max_bytes} bytes"
        elif self._messages > self._limits.max_messages:
            what = f"more than {self._limits.max_messages} messages"
        else:
            return
        self.fault = Fault(f"The server sent {what} and was disconnected.")
        raise self.fault
