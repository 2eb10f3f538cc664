"""A tool that does what a test says: it answers, waits for a gate, fails, floods, or hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest
from trt_responses.tool import Function, Recipient, ToolAnswer, ToolCall
from trt_responses.tools.python.tool import CODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.tool import Opening


class Gate:
    """A call waits here until the test opens it; `reached` says that one does."""

    def __init__(self, answer: str = "through") -> None:
        self.answer = answer
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()


class ScriptedTool:
    """Each call takes the next of `acts`, the last for ever: a text, an answer, a gate, or a fault
    to raise. `calls` are those that came, `broken_off` those that were cancelled."""

    kind = "code_interpreter"
    name = "python"
    recipients = ("python",)
    containers = None
    description = "Runs Python.\n\nIt is scripted."
    functions: Mapping[str, Function] = {
        "python": Function("Runs Python. It is scripted.", CODE, text="code")
    }

    def __init__(
        self,
        *acts: str | ToolAnswer | Gate | Exception,
        deadline_s: float = 60.0,
        known: Sequence[str] = (),
    ) -> None:
        self.deadline_s = deadline_s
        self.calls: list[ToolCall] = []
        self.opened: list[tuple[str, str | None, tuple[str, ...]]] = []
        self.broken_off = 0
        self.closed = 0
        self.running = False
        self._acts = list(acts)
        self._known = known

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    async def open(self, opening: Opening) -> ScriptedSession:
        container = opening.options.get("container")
        container_id = container if isinstance(container, str) else None
        earlier = tuple(item.get("container_id", "") for item in opening.items)
        self.opened.append((opening.owner, container_id, earlier))
        if container_id is not None and container_id not in self._known:
            raise InvalidRequest(
                f"Container with id '{container_id}' not found.",
                status=404,
                param=f"{opening.place}.container",
            )
        return ScriptedSession(self, container_id or "cntr_scripted")

    async def act(self, call: ToolCall) -> ToolAnswer:
        self.calls.append(call)
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        if isinstance(act, Exception):
            raise act
        if isinstance(act, ToolAnswer):
            return act
        if isinstance(act, str):
            return ToolAnswer(act)
        act.reached.set()
        try:
            await act.opened.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        return ToolAnswer(act.answer)


class ScriptedSession:
    def __init__(self, tool: ScriptedTool, container_id: str) -> None:
        self.recipients = {tool.name: Recipient(tool.kind, {"container_id": container_id})}
        self._tool = tool

    async def call(self, call: ToolCall) -> ToolAnswer:
        return await self._tool.act(call)

    async def close(self) -> None:
        self._tool.closed += 1
