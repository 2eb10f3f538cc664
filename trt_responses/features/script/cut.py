"""Cuts a reply behind so many bytes of its body, as a proxy does that dies."""

from __future__ import annotations

from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Cut:
    """Behind how many bytes a reply is cut; None: not at all. `header`: what the request wants of
    faults."""

    after: int | None = None
    header = ""


HEADER = b"x-fault"
CUT: ContextVar[Cut] = ContextVar("cut")
"""Of the request that is at work."""


class CutsReplies:
    """An ASGI layer that stops a reply where its run's rule says so. The server then finds the
    reply unfinished, and closes the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        cut, sent = Cut(), 0
        CUT.set(cut)
        for name, value in scope["headers"]:
            if name == HEADER:
                cut.header = value.decode("latin-1")

        async def counted(message: Message) -> None:
            nonlocal sent
            if cut.after is not None and message["type"] == "http.response.body":
                left, body = cut.after - sent, message.get("body", b"")
                sent += len(body)
                if sent > cut.after:
                    if left > 0:
                        await send({**message, "body": body[:left], "more_body": True})
                    raise ConnectionAbortedError("cut by the script")
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except ConnectionAbortedError:
            if cut.after is None:
                raise
