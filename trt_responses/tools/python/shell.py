"""The tool `shell`: runs the model's commands in a sandbox, in containers that keep their files.

Containers only: no Harmony, no API items and no HTTP.
"""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.errors import ApiError, StartupError
from trt_responses.tool import Function, Recipient, ToolAnswer
from trt_responses.tools.containers import wanted_files
from trt_responses.tools.python.container import Full
from trt_responses.tools.python.process import Ended
from trt_responses.tools.session import arguments_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

NOT_BUILT = ("session_name", "user")
LOGIN = ["-lc"]
"""The option of a login shell, which would read system settings that a sandbox lacks."""


class ShellCall(NamedTuple):
    """The arguments of a call."""

    cmd: list[str]
    workdir: str
    env: dict[str, str]
    timeout_ms: int | None


class ShellTool:
    """The tool, as the operator configured it."""

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
        return sum(each.command is not None for each in self.containers.living)

    @property
    def description(self) -> str:
        return DESCRIPTION.format(deadline_s=self.deadline_s)

    @property
    def functions(self) -> Mapping[str, Function]:
        text = FUNCTION.format(deadline_s=self.deadline_s)
        return {self.recipients[0]: Function(text, ARGUMENTS)}

    async def start(self) -> None:
        """Run one command, to fail now if this machine cannot sandbox commands."""
        await self.containers.start()
        trial = self.containers.fresh("")
        try:
            finished = await self._run(
                trial, ShellCall(["sh", "-c", "echo $((6 * 7))"], ".", {}, None)
            )
            if finished.stdout != "42\n":
                raise Ended(finished.stderr or "a test command wrote nothing")
        except Ended as fault:
            await self.containers.stop()
            raise StartupError(
                f"TRT_RESPONSES_SHELL: this machine cannot sandbox commands: {fault}. "
                "Set it to 'off'."
            ) from None
        finally:
            trial.remove()
        logger.info("shell: commands run in a sandbox")

    async def stop(self) -> None:
        await self.containers.stop()

    async def open(self, opening: Opening) -> ShellSession:
        """A session in the requested container, else in the last existing one that the
        conversation's commands used, else in a new one."""
        environment = opening.options.get("environment") or {}
        used = [item.get("environment") or {} for item in opening.items]
        file_ids = wanted_files(opening, environment)
        place = f"{opening.place}.environment"
        await self.containers.files.check(opening.owner, file_ids, f"{place}.file_ids")
        container = self.containers.of_conversation(
            opening.owner,
            environment.get("container_id"),
            [each.get("container_id") for each in used],
            f"{place}.container_id",
        )
        return ShellSession(container, self, file_ids)

    async def run(
        self,
        container: Container,
        call: ToolCall,
        shell_call: ShellCall,
        file_ids: Sequence[str],
    ) -> Finished:
        """Run a command in a container. Raises `Ended`, `Full`, or an `ApiError` if the
        container cannot be registered."""
        async with container.turn(call):
            await self.containers.keep(container)
            await self.containers.files.copy_missing(container, file_ids)
            try:
                return await self._run(container, shell_call)
            finally:
                self.containers.used(container)

    async def _run(self, container: Container, shell_call: ShellCall) -> Finished:
        deadline_s = self.deadline_s
        if shell_call.timeout_ms is not None:
            deadline_s = min(deadline_s, shell_call.timeout_ms / 1000)
        disk = self.containers.bounds.disk
        return await container.run_command(
            shell_call.cmd, shell_call.env, shell_call.workdir, deadline_s, self.how, disk
        )


class ShellSession:
    """One response's use of a container."""

    def __init__(self, container: Container, tool: ShellTool, file_ids: Sequence[str] = ()) -> None:
        self._container = container
        self._tool = tool
        self._file_ids = file_ids

    @property
    def recipients(self) -> Mapping[str, Recipient]:
        facts = {"container_id": self._container.id}
        return {ShellTool.recipients[0]: Recipient(ShellTool.kind, facts, described)}

    async def call(self, call: ToolCall) -> ToolAnswer:
        shell_call = parse_call(call.text)
        if isinstance(shell_call, str):
            return ToolAnswer(shell_call, failed=True)
        try:
            finished = await self._tool.run(self._container, call, shell_call, self._file_ids)
        except ApiError as full:
            return ToolAnswer(full.message, failed=True)
        except (Ended, Full) as fault:
            return ToolAnswer(str(fault), failed=True)
        return answer_of(finished)

    async def close(self) -> None:
        """Do nothing: the container stays until it expires."""


def parse_call(text: str) -> ShellCall | str:
    """The arguments of a call, or an error text for the model."""
    try:
        arguments = arguments_of(text)
    except ValueError as error:
        return str(error)
    if not isinstance(arguments, dict):
        return 'The arguments are no object: send {"cmd": [...]}.'
    cmd, env = arguments.get("cmd"), arguments.get("env") or {}
    workdir, timeout = arguments.get("workdir") or ".", arguments.get("timeout")
    if isinstance(cmd, str):
        cmd = ["bash", "-c", cmd]
    if not _texts(cmd) or not cmd:
        return "The argument `cmd` is missing, or is no list of strings."
    if not isinstance(env, dict) or not _texts(list(env.values())) or any("=" in k for k in env):
        return "The argument `env` is no object of strings."
    if not isinstance(workdir, str):
        return "The argument `workdir` is no string."
    if timeout is not None and (type(timeout) is not int or timeout < 1):
        return "The argument `timeout` is no number of milliseconds."
    if any("\0" in each for each in (*cmd, *env, *env.values(), workdir)):
        return "The arguments hold a character that no program can be given."
    for name in NOT_BUILT:
        if arguments.get(name):
            return f"The argument `{name}` is not supported: leave it out."
    if cmd[0] in ("bash", "sh", "/bin/bash", "/bin/sh") and cmd[1:2] == LOGIN:
        cmd = [cmd[0], "-c", *cmd[2:]]
    return ShellCall(cmd, workdir, env, timeout)


def described(text: str) -> Mapping[str, Any]:
    """The item's fields before the call runs."""
    shell_call = parse_call(text)
    if isinstance(shell_call, str):
        return {"commands": (), "timeout_ms": None}
    is_script = (
        shell_call.cmd[0] in ("bash", "sh")
        and shell_call.cmd[1:2] == ["-c"]
        and len(shell_call.cmd) == 3
    )
    command = shell_call.cmd[2] if is_script else shlex.join(shell_call.cmd)
    return {"commands": (command,), "timeout_ms": shell_call.timeout_ms}


def answer_of(finished: Finished) -> ToolAnswer:
    """The answer for the model and the client."""
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
