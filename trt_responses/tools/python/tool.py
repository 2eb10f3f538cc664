"""The tool `code_interpreter`: runs the model's Python in a sandbox, in stateful containers.

Containers only: no Harmony, no API items and no HTTP.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from typing import TYPE_CHECKING

from trt_responses.errors import ApiError, StartupError
from trt_responses.tool import Function, Recipient, ToolAnswer
from trt_responses.tools.containers import WrittenFile, wanted_files
from trt_responses.tools.python.process import Ended

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.tool import Opening, ToolCall
    from trt_responses.tools.python.container import Container
    from trt_responses.tools.python.containers import Containers
    from trt_responses.tools.python.files import FoundFile

logger = logging.getLogger(__name__)

DESCRIPTION = """\
Use this tool to execute Python code in your chain of thought. The code will not be shown to the \
user. This tool should be used for internal reasoning, but not for code that is intended to be \
visible to the user (e.g. when creating plots, tables, or files).

When you send a message containing Python code to python, it will be executed in a stateful Python \
process. python will respond with the output of the execution, the value of the last expression, \
or the traceback; or time out after {deadline_s:g} seconds, after which variables are lost. The \
working directory can be used to save files; no other can be written. There is no internet access, \
and no other program can be started."""

FUNCTION = """\
Runs Python code in a stateful process, and gives what it prints, the value of its last \
expression, or the traceback. It is ended after {deadline_s:g} seconds, after which variables are \
lost. The working directory can be used to save files; no other can be written. There is no \
internet access, and no other program can be started."""
CODE = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The code."}},
    "required": ["code"],
    "additionalProperties": False,
}


PICTURE_BYTES = 1024 * 1024
"""Of the images in one response's outputs; others stay files of the container."""


class PythonTool:
    """The tool, as the operator configured it."""

    kind = "code_interpreter"
    name = "python"
    recipients = ("python",)

    def __init__(self, containers: Containers) -> None:
        self.containers = containers

    @property
    def deadline_s(self) -> float:
        return self.containers.bounds.deadline_s

    @property
    def processes(self) -> int:
        return sum(each.process is not None for each in self.containers.living)

    @property
    def description(self) -> str:
        return DESCRIPTION.format(deadline_s=self.deadline_s)

    @property
    def functions(self) -> Mapping[str, Function]:
        text = FUNCTION.format(deadline_s=self.deadline_s)
        return {self.name: Function(text, CODE, text="code")}

    async def start(self) -> None:
        """Start an interpreter on trial, to fail now if this machine cannot sandbox code."""
        await self.containers.start()
        try:
            box = await self.containers.try_out()
        except Ended as fault:
            await self.containers.stop()
            raise StartupError(
                f"TRT_RESPONSES_PYTHON: this machine cannot sandbox code: {fault}. Set it to "
                "'off', or to 'unboxed' to run code without a sandbox, with all rights of the "
                "server."
            ) from None
        how = f"in a sandbox, Landlock {box}" if box else "WITHOUT A SANDBOX"
        logger.info("code_interpreter: python runs %s", how)

    async def stop(self) -> None:
        await self.containers.stop()

    async def open(self, opening: Opening) -> PythonSession:
        """A session in the requested container, else in the last existing one that the conversation
        used, else in a new one."""
        requested = opening.options.get("container")
        file_ids = wanted_files(opening, requested)
        place = f"{opening.place}.container.file_ids"
        await self.containers.files.check(opening.owner, file_ids, place)
        container = self.containers.of_conversation(
            opening.owner,
            requested if isinstance(requested, str) else None,
            [item.get("container_id") for item in opening.items],
            f"{opening.place}.container",
        )
        return PythonSession(container, self.containers, file_ids)


class PythonSession:
    """One response's use of a container."""

    def __init__(
        self, container: Container, containers: Containers, file_ids: Sequence[str] = ()
    ) -> None:
        self._container = container
        self._containers = containers
        self._file_ids = file_ids
        self._written: dict[str, WrittenFile] = {}
        self._picture_bytes = PICTURE_BYTES

    @property
    def written(self) -> Sequence[WrittenFile]:
        return [*self._written.values()]

    @property
    def recipients(self) -> Mapping[str, Recipient]:
        facts = {"container_id": self._container.id}
        return {PythonTool.name: Recipient(PythonTool.kind, facts)}

    async def call(self, call: ToolCall) -> ToolAnswer:
        code = code_of(call)
        if isinstance(code, ToolAnswer):
            return code
        containers, container = self._containers, self._container
        async with container.turn(call):
            try:
                await containers.keep(container)
                await containers.files.copy_missing(container, self._file_ids)
            except ApiError as full:
                return ToolAnswer(full.message, failed=True)
            try:
                before = await containers.files.of_code(container)
                answer = await container.run(code, containers.how, containers.bounds)
                return await self._with_files(answer, {*before.values()})
            finally:
                containers.used(container)

    async def _with_files(self, answer: ToolAnswer, before: Collection[FoundFile]) -> ToolAnswer:
        """The answer with the pictures that the code has written, as data URLs."""
        container, files = self._container, self._containers.files
        found = await files.of_code(container)
        written = [facts for facts, one in found.items() if one not in before]
        ids = {facts.id for facts in written} | self._written.keys()
        self._written = {
            facts.id: WrittenFile(container.id, facts.id, facts.path)
            for facts in found
            if facts.id in ids
        }
        if not written:
            return answer
        pictures = await files.pictures(container, written, self._picture_bytes)
        self._picture_bytes -= sum(map(len, pictures))
        urls = [f"data:image/png;base64,{b64encode(data).decode()}" for data in pictures]
        return answer._replace(details={"images": urls}) if urls else answer

    async def close(self) -> None:
        """Do nothing: the container stays until it expires."""


def code_of(call: ToolCall) -> str | ToolAnswer:
    """The code of a call: its text, or the code inside a JSON object."""
    if call.content_type != "json":
        return call.text
    try:
        wrapped = json.loads(call.text)
    except (ValueError, RecursionError) as error:
        return ToolAnswer(
            f"Error parsing tool arguments as JSON: {error}. Please send the code itself, or an "
            'object {"code": …}, and try again.',
            failed=True,
        )
    code = wrapped.get("code") if isinstance(wrapped, dict) else None
    if not isinstance(code, str):
        return ToolAnswer('The arguments have no "code": send the code itself.', failed=True)
    return code
