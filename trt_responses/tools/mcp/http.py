"""HTTP transport to MCP servers: judged addresses, counted bytes, and the status of refusals.

No SDK and no messages here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from trt_responses.tasks import give_way
from trt_responses.tools.fetch_guard import GuardedTransport, Reach, Refused
from trt_responses.tools.mcp.limits import Meter


class MeteredTransport(GuardedTransport):
    """Judges addresses, counts bytes, and refuses compressed replies."""

    def __init__(self, reach: Reach, meter: Meter) -> None:
        super().__init__(reach, keep_alive=True)
        self.meter = meter
        self.refused_with: int | None = None
        """The status of the last reply, if it was an error or a redirect."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if request.method == "POST":
            self.refused_with = response.status_code if response.status_code >= 300 else None
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise Refused("it sends a compressed reply to a request for an uncompressed one")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Metered(response.stream, self.meter)
        return response


class _Metered(httpx2.AsyncByteStream):
    """A reply's body, counted as it arrives; other tasks run between its pieces."""

    def __init__(self, stream: httpx2.AsyncByteStream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._meter.take(len(piece), 0)
            yield piece
            await give_way()

    async def aclose(self) -> None:
        await self._stream.aclose()
