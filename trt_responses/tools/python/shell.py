"""`shell`: the model's commands in a box, in containers that keep their files.

Knows containers; knows no Harmony, no item of the API and no HTTP.
"""

from __future__ import annotations

import json
import logging
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.errors import InvalidRequest, StartupError
from trt_responses.tool import Function, Recipient, ToolAnswer
from trt_responses.tools.python.container import Full
from trt_responses.tools.python.process import Ended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.tool import Opening, ToolCall
    from trt_responses.tools.python.command import Finished, Shell
    from trt_responses.tools.python.container import Container
    from trt_responses.tools.python.containers import Containers

logger = logging.getLogger(__name__)

DESCRIPTION = """\
// Runs programs in a Linux container, each to its end: whatever it leaves running is ended with it.
// The working directory can be used to save files; no other can be written. There is no internet \
access, modes of files cannot be changed, and a program is ended after {deadline_s:g} seconds.
namespace container {{

// Runs a program, and gives its output and its exit code.
type exec = (_: {{
// The program and its arguments, such as ["bash", "-c", "ls | wc -l"].
cmd: string[],
// A directory below the working directory.
workdir?: string | null, // default: null
env?: object | null, // default: null
// Milliseconds.
timeout?: number | null, // default: null
}}) => any;

}} // namespace container"""

FUNCTION = """\
Runs a program in a Linux container to its end, and gives its output and its exit code: whatever \
it leaves running is ended with it. The working directory can be used to save files; no other can \
be written. There is no internet access, modes of files cannot be changed, and a program is ended \
after {deadline_s:g} seconds."""
ARGUMENTS = {
    "type": "object",
    "properties": {
        "cmd": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'The program and its arguments, such as ["bash", "-c", "ls | wc -l"].',
        },
        "workdir": {
            "type": "string",
            "description": "A directory below the working directory.",
        },
        "timeout": {"type": "integer", "minimum": 1, "description": "Milliseconds."},
    },
    "required": ["cmd"],
    "additionalProperties": False,
}

BROKEN = (
    "Error parsing tool arguments as JSON: {}. Please ensure the tool call arguments are valid "
    "JSON and try again."
)
NOT_BUILT = ("session_name", "user")
LOGIN = ["-lc"]
"""A login shell reads the system's settings, of which a box has none."""


class Asked(NamedTuple):
    """A call's arguments."""

    cmd: list[str]
    workdir: str
    env: dict[str, str]
    timeout_ms: int | None


class ShellTool:
    """The tool, as the operator has configured it."""

    kind = "shell"
    name = "container"
    recipients = ("container.exec",)

    def __init__(self, containers: Containers, how: Shell) -> None:
        self.containers = containers
        self.how = how

    @property
    def deadline_s(self) -> float:
        return self.containers.bounds.deadline_s

    @property
    def processes(self) -> int:
        return sum(held.command is not None for held in self.containers.held)

    @property
    def description(self) -> str:
        return DESCRIPTION.format(deadline_s=self.deadline_s)

    @property
    def functions(self) -> Mapping[str, Function]:
        told = FUNCTION.format(deadline_s=self.deadline_s)
        return {self.recipients[0]: Function(told, ARGUMENTS)}

    async def start(self) -> None:
        """Run one command: a machine that cannot shut commands in says so now."""
        await self.containers.start()
        trial = self.containers.fresh("")
        try:
            finished = await self._run(trial, Asked(["sh", "-c", "echo $((6 * 7))"], ".", {}, None))
            if finished.stdout != "42\n":
                raise Ended(finished.stderr or "a trial gave nothing")
        except Ended as fault:
            await self.containers.stop()
            raise StartupError(
                f"TRT_RESPONSES_SHELL: commands cannot be shut in on this machine: {fault}. Set it "
                "to 'off'."
            ) from None
        finally:
            trial.remove()
        logger.info("commands run in a box")

    async def stop(self) -> None:
        await self.containers.stop()

    async def open(self, opening: Opening) -> ShellSession:
        """A session in the container that is asked for, or in the living one that comes last among
        those that the conversation's commands have used, or in a new one."""
        environment = opening.options.get("environment") or {}
        used = [item.get("environment") or {} for item in opening.items]
        container = self.containers.of_conversation(
            opening.owner,
            environment.get("container_id"),
            [each.get("container_id") for each in used],
            f"{opening.place}.environment.container_id",
        )
        return ShellSession(container, self)

    async def run(self, container: Container, asked: Asked) -> Finished:
        """Raises `Ended`, `Full`, and an `InvalidRequest` of a container that cannot be kept."""
        async with container.busy:
            await self.containers.keep(container)
            try:
                return await self._run(container, asked)
            finally:
                self.containers.used(container)

    async def _run(self, container: Container, asked: Asked) -> Finished:
        deadline_s = self.deadline_s
        if asked.timeout_ms is not None:
            deadline_s = min(deadline_s, asked.timeout_ms / 1000)
        disk = self.containers.bounds.disk
        return await container.run_command(
            asked.cmd, asked.env, asked.workdir, deadline_s, self.how, disk
        )


class ShellSession:
    """One response's use of a container."""

    def __init__(self, container: Container, tool: ShellTool) -> None:
        self._container = container
        self._tool = tool

    @property
    def recipients(self) -> Mapping[str, Recipient]:
        facts = {"container_id": self._container.id}
        return {ShellTool.recipients[0]: Recipient(ShellTool.kind, facts, described)}

    async def call(self, call: ToolCall) -> ToolAnswer:
        asked = asked_of(call.text)
        if isinstance(asked, str):
            return ToolAnswer(asked, failed=True)
        try:
            finished = await self._tool.run(self._container, asked)
        except InvalidRequest as full:
            return ToolAnswer(full.message, failed=True)
        except (Ended, Full) as fault:
            return ToolAnswer(str(fault), failed=True)
        return answer_of(finished)

    async def close(self) -> None:
        """Do nothing: the container stays until it has been idle for long."""


def asked_of(text: str) -> Asked | str:
    """The arguments of a call, or what is wrong with them, for the model."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        return BROKEN.format(error)
    if not isinstance(said, dict):
        return 'The arguments are no object: send {"cmd": [...]}.'
    cmd, env = said.get("cmd"), said.get("env") or {}
    workdir, timeout = said.get("workdir") or ".", said.get("timeout")
    if isinstance(cmd, str):
        cmd = ["bash", "-c", cmd]
    if not _texts(cmd) or not cmd:
        return "The argument `cmd` is missing, or is no list of strings."
    if not isinstance(env, dict) or not _texts(list(env.values())) or any("=" in k for k in env):
        return "The argument `env` is no object of strings."
    if not isinstance(workdir, str):
        return "The argument `workdir` is no string."
    if timeout is not None and (not isinstance(timeout, int) or timeout < 1):
        return "The argument `timeout` is no number of milliseconds."
    if any("\0" in each for each in (*cmd, *env, *env.values(), workdir)):
        return "The arguments hold a character that no program can be given."
    for name in NOT_BUILT:
        if said.get(name):
            return f"The argument `{name}` is not supported: leave it out."
    if cmd[0] in ("bash", "sh", "/bin/bash", "/bin/sh") and cmd[1:2] == LOGIN:
        cmd = [cmd[0], "-c", *cmd[2:]]
    return Asked(cmd, workdir, env, timeout)


def described(text: str) -> Mapping[str, Any]:
    """What an item says of a call before it runs."""
    asked = asked_of(text)
    if isinstance(asked, str):
        return {"commands": (), "timeout_ms": None}
    is_script = asked.cmd[0] in ("bash", "sh") and asked.cmd[1:2] == ["-c"] and len(asked.cmd) == 3
    command = asked.cmd[2] if is_script else shlex.join(asked.cmd)
    return {"commands": (command,), "timeout_ms": asked.timeout_ms}


def answer_of(finished: Finished) -> ToolAnswer:
    """What the model and the client are told of a command."""
    notes = {
        "time": "[The command took too long and was ended.]",
        "memory": "[The command took too much memory and was ended.]",
        "server": "[The command was ended.]",
    }
    lines = [finished.stdout, finished.stderr]
    if finished.ended_for is not None:
        lines.append(notes[finished.ended_for])
    elif finished.status < 0:
        lines.append(f"[ended by signal {-finished.status}]")
    elif finished.status:
        lines.append(f"[exit code {finished.status}]")
    text = "\n".join(line.removesuffix("\n") for line in lines if line)
    outcome: dict[str, Any] = {"type": "timeout"}
    if finished.ended_for != "time":
        # as shells say it: 128 and the number of the signal
        status = finished.status if finished.status >= 0 else 128 - finished.status
        outcome = {"type": "exit", "exit_code": status}
    details = {"stdout": finished.stdout, "stderr": finished.stderr, "outcome": outcome}
    return ToolAnswer(text, failed=finished.ended_for is not None, details=details)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
