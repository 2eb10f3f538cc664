"""What one MCP server may take, and the fault of a server that gives no result."""

from __future__ import annotations

from trt_responses.frozen import dataclass


class Fault(Exception):
    """Why a server gave no result: `kind` and `code` as the API's error has them."""

    def __init__(self, message: str, kind: str = "mcp_protocol_error", code: int = -32000) -> None:
        super().__init__(message)
        self.message, self.kind, self.code = message, kind, code


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server may take."""

    connect_s: float = 20.0
    """For a connection and the list of its tools."""
    call_s: float = 60.0
    max_bytes: int = 1024 * 1024
    """Of one message, and of all that comes between two requests."""
    max_messages: int = 1000
    """That come between two requests."""
    max_pages: int = 50
    max_tools: int = 128


class Meter:
    """Counts what a server has sent since it was last asked for something."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = self._messages = 0
        self.fault: Fault | None = None
        """It has sent more than is read."""

    def begin(self) -> None:
        self._bytes = self._messages = 0

    def take(self, size: int, messages: int) -> None:
        """Raises a `Fault` for more than is read."""
        self._bytes += size
        self._messages += messages
        if self._bytes > self._limits.max_bytes:
            what = f"more than {self._limits.max_bytes} bytes"
        elif self._messages > self._limits.max_messages:
            what = f"more than {self._limits.max_messages} messages"
        else:
            return
        self.fault = Fault(f"The server sent {what}, and was left.")
        raise self.fault
