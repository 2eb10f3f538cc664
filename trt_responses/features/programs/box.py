"""Runs programs where the Python tool runs code, each in a new container that is removed at once.

Knows the seams of tools and of containers; knows no item, and no run.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from trt_responses.errors import ApiError
from trt_responses.features.programs import inside
from trt_responses.features.programs.calls import PROGRAM, code_in
from trt_responses.features.programs.history import Recorded
from trt_responses.features.programs.items import NAME
from trt_responses.tool import Opening, Recipient, Tool, ToolAnswer, ToolCall
from trt_responses.tools.containers import containers_of

SOURCE = inspect.getsource(inside)
OPTIONS = {"container": {"type": "auto"}}


class Programs:
    """The programs of one response, which run in the Python tool."""

    name = NAME
    recipients: Mapping[str, Recipient] = {NAME: Recipient(PROGRAM)}

    def __init__(
        self, python: Tool, owner: str, place: str, kinds: Mapping[str, str], began_ms: int
    ) -> None:
        """`kinds` are the tools that programs may call: `custom`, `json` for one whose output is
        JSON, or `text`."""
        self.deadline_s = python.deadline_s
        self.recorded: Sequence[Recorded] = ()
        """The calls that the next program has made already."""
        self.began_ms = began_ms
        self._python = python
        self._owner, self._place = owner, place
        self._kinds = kinds

    async def call(self, call: ToolCall) -> ToolAnswer:
        """Run a program. The details of the answer hold the `calls` that it waits for, if any."""
        recorded, self.recorded = self.recorded, ()
        setup = {
            "code": code_in(call.text),
            "kinds": self._kinds,
            "recorded": recorded,
            "began_s": self.began_ms / 1000,
            "seed": self.began_ms,
        }
        given = json.dumps(setup)
        answer = await self._ran(f"{SOURCE}\nprint(json.dumps(report(json.loads({given!r}))))")
        return answer if answer.failed else _read(answer.text, self._kinds)

    async def _ran(self, source: str) -> ToolAnswer:
        python = self._python
        session = await python.open(Opening(self._owner, self._place, OPTIONS))
        try:
            return await session.call(ToolCall(source, "code", python.recipients[0]))
        finally:
            await session.close()
            containers = containers_of([python])
            for recipient in session.recipients.values():
                if containers is not None and (one := recipient.facts.get("container_id")):
                    with suppress(ApiError):  # it was never begun
                        await containers.delete(self._owner, one)

    async def close(self) -> None:
        """Do nothing: nothing is kept."""


def _read(text: str, kinds: Mapping[str, str]) -> ToolAnswer:
    """The report of a program that has stopped, which it may have forged."""
    try:
        report: dict[str, Any] = json.loads(text.strip().rpartition("\n")[2])
        if "calls" in report:
            calls = [{"name": one["name"], "text": str(one["text"])} for one in report["calls"]]
            if calls and all(one["name"] in kinds for one in calls):
                return ToolAnswer("", details={"calls": calls})
        result = str(report["result"]).encode("utf-8", "replace").decode()
        return ToolAnswer(result, bool(report["failed"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ToolAnswer(f"The program was ended:\n{text}", failed=True)
