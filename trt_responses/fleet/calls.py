"""Calls between the fleet and a front end: each end calls the other over one connection.

A message is a line of JSON. A call that is cancelled here is cancelled there, and when the
connection ends, so do all calls on both ends. Knows errors of the API; knows no versions.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import orjson

from trt_responses.errors import ApiError, StartupError
from trt_responses.features.rollout.measures import GateReport, LoadRefused

Answer = Callable[..., Awaitable[Any]]

logger = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""The longest line: what the gate records of an operator's own prompts."""


ENDED = "The connection has ended."


class LostPeer(ConnectionError):
    """The other end has gone."""


class Calls:
    """One end of a connection. `answers` are what the other end may call, by name."""

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, answers: Mapping[str, Answer]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answers = answers
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._working: dict[int, asyncio.Task[None]] = {}

    async def live(self) -> None:
        """Serve the connection to its end."""
        try:
            with suppress(OSError):
                while line := await self._reader.readline():
                    self._take(*orjson.loads(line))
        finally:
            self._writer.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(LostPeer(ENDED))
            tasks = tuple(self._working.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def call(self, name: str, *given: object) -> Any:
        """What the other end answers. Raises what that raised, or a `LostPeer`."""
        if self._writer.is_closing():
            raise LostPeer(ENDED)
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send("call", number, [name, *given])
        try:
            return await future
        except asyncio.CancelledError:
            self._send("cancel", number, None)
            raise
        finally:
            del self._waiting[number]

    def tell(self, name: str, *given: object) -> None:
        """Call without an answer; those before and behind it keep their order."""
        self._send("call", next(self._numbers), [name, *given])

    def _send(self, kind: str, number: int, body: object) -> None:
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps([kind, number, body]) + b"\n")

    def _take(self, kind: str, number: int, body: Any) -> None:
        if kind == "call":
            name, *given = body
            work = asyncio.create_task(self._work(number, self._answers[name], given))
            self._working[number] = work
            work.add_done_callback(lambda _: self._working.pop(number))
        elif kind == "cancel":
            if (task := self._working.get(number)) is not None:
                task.cancel()
        elif (future := self._waiting.get(number)) is not None and not future.done():
            if kind == "result":
                future.set_result(body)
            else:
                future.set_exception(_read(body))

    async def _work(self, number: int, answer: Answer, given: list[Any]) -> None:
        try:
            self._send("result", number, await answer(*given))
        except Exception as fault:
            if not isinstance(fault, ApiError | StartupError):
                logger.exception("a call between the fleet and a front end failed")
            self._send("error", number, _written(fault))


def _written(fault: Exception) -> dict[str, Any]:
    if isinstance(fault, LoadRefused):
        report = None if fault.report is None else asdict(fault.report)
        return {"refused": fault.message, "report": report}
    if isinstance(fault, ApiError):
        names = ("message", "status", "type", "code", "param", "retry_after_s")
        return {"api": {name: getattr(fault, name) for name in names}}
    return {"other": str(fault) or type(fault).__name__}


def _read(error: dict[str, Any]) -> Exception:
    if "refused" in error:
        report = error["report"]
        return LoadRefused(error["refused"], None if report is None else GateReport(**report))
    return ApiError(**error["api"]) if "api" in error else StartupError(error["other"])
