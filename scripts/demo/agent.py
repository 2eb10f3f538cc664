"""The family of an agent's tools: to write a word to a file, to list files, to say what one holds.

Knows declarations and wordings; knows no token and no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scripts.demo import terminal, toolkit, wide
from scripts.demo.asking import Source, calling, think
from scripts.demo.conversation import Call, Dialogue, Exchange, Setting, Step, Tool, Turn
from scripts.demo.wordings import pick, values

if TYPE_CHECKING:
    import random

Json = dict[str, object]
TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "number"}
TEXTS: Json = {"type": "array", "items": TEXT}
SHELLS = {
    "exec_command": ("cmd", TEXT), "shell_command": ("command", TEXT), "Bash": ("command", TEXT),
    "bash": ("command", TEXT), "run_command": ("command", TEXT), "shell": ("command", TEXTS),
    "local_shell": ("command", TEXTS), "execute_command": ("command", TEXT),
}  # fmt: skip
"""The shell tools of agents, and the parameter that takes the command."""
SHELL_NOTES = (
    "Runs a shell command and returns its output.",
    "Runs a command in a PTY, returning output or a session ID for ongoing interaction.",
    "Run a command",
    "Executes a command in the terminal",
    "Runs commands on the user's machine.",
)
BESIDE = {
    "workdir": TEXT, "description": TEXT, "justification": TEXT, "timeout_ms": COUNT,
    "timeout": COUNT, "max_output_tokens": COUNT,
}  # fmt: skip
COMMAND_NOTES = ("", "", "The command", "Shell command to execute.", "The command to execute")
PATCH, PATCH_PARAMETER = "apply_patch", "input"
PATCH_NOTES = (
    "Use the `apply_patch` tool to edit files.",
    "Creates, changes or deletes files.",
    "Edit files with a patch",
)
ENDINGS = ("txt", "txt", "txt", "md", "py", "json")
CHUNKS = ("c6530c", "0a1b2c", "f00d42", "9e8d7c")
STEMS = ("notes", "test", "hello", "data", "list", "todo", "a", "b", "main", "readme")
TERMINAL = 0.35
"""How often all is as long as in a terminal's agent."""
NOT_THERE = {
    "write_file": "I cannot write files: no function for it is declared.",
    "read_file": "I cannot read files: no function for it is declared.",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A plain request of an agent's user; `word` and `file` where it names them."""

    kind: str
    file: str = ""
    word: str = ""

    @property
    def wanted(self) -> str:
        wish = {"files": "see the files", "read_file": "read a file", "write_file": "write a file"}
        return f"The user wants to {wish[self.kind]}."

    @property
    def command(self) -> str:
        commands = {"files": "ls", "read_file": f"cat {self.file}"}
        return commands.get(self.kind, f"echo {self.word} > {self.file}")

    @property
    def patch(self) -> str:
        lines = ("*** Begin Patch", f"*** Add File: {self.file}", f"+{self.word}", "*** End Patch")
        return "\n".join(lines)


def agent(source: Source) -> Dialogue:
    """A request, under tools that can do it or not: the call, or the answer from its result."""
    if source.dress and source.rng.random() < TERMINAL:
        return terminal.surrounded(_requested(source, long=True), source.rng)
    return _requested(source)


def _requested(source: Source, *, long: bool = False) -> Dialogue:
    rng = source.rng
    task = _task(rng)
    user = source.say(task.kind, file=task.file, word=task.word)
    roll = rng.random()
    if roll < 0.1 and task.kind in NOT_THERE:
        return _refused(task, user, rng)
    patching = task.kind == "write_file" and rng.random() < 0.3
    tool, turn = _patching(task, rng) if patching else _shelling(task, rng, long=long)
    tools = [tool, *_neighbours(rng, patch=not patching)]
    if long:
        tools = [tool, *terminal.neighbours(rng), *_unasked(rng)]
    setting = Setting(tools=toolkit.shuffled(tools, rng))
    if roll < 0.6:
        return Dialogue("agent", (Exchange(user, turn),), setting, _copied(task))
    answer, final = _outcome(task, rng)
    final_turn = Turn(
        think("The tool has answered.", "I tell the user.", "Give the result."), final
    )
    exchange = Exchange(user, final_turn, (Step(turn, (answer,)),))
    return Dialogue("agent", (exchange,), setting, (final,))


def file_name(rng: random.Random) -> str:
    stem = pick(STEMS, rng) if rng.random() < 0.5 else pick(values().words, rng)
    return f"{stem}.{pick(ENDINGS, rng)}"


def _task(rng: random.Random) -> Task:
    kind = rng.choice(("files", "read_file", "write_file"))
    if kind == "files":
        return Task(kind)
    word = pick(values().words, rng) if kind == "write_file" else ""
    return Task(kind, file_name(rng), word)


def _refused(task: Task, user: str, rng: random.Random) -> Dialogue:
    thoughts = think(task.wanted, "I look at the functions.", "No function for the files.")
    turn = Turn(thoughts, NOT_THERE[task.kind])
    setting = Setting(tools=toolkit.shuffled(_neighbours(rng, patch=False), rng))
    return Dialogue("agent", (Exchange(user, turn),), setting, known=(task.file,))


def _copied(task: Task) -> tuple[str, ...]:
    return tuple(part for part in (task.word, task.file) if part)


def _unasked(rng: random.Random) -> list[Tool]:
    """Perhaps a tool that has nothing to do with files."""
    return [wide.asked(rng).tool] if rng.random() < 0.3 else []


def _shelling(task: Task, rng: random.Random, *, long: bool) -> tuple[Tool, Turn]:
    name = pick(tuple(SHELLS), rng)
    parameter, kind = SHELLS[name]
    if long and rng.random() < 0.4:
        parameter = pick(terminal.COMMANDS, rng)
    given = task.command if kind is TEXT else ["bash", "-lc", task.command]
    thoughts = think(task.wanted, f"The function {name} runs commands.",
                     calling(name, parameter, task.command))  # fmt: skip
    call = Call(name, _dump({parameter: given}))
    listed = terminal.shell_parameters(parameter, kind, rng) if long else _shell(name, rng)
    schema = {"type": "object", "properties": listed, "required": [parameter]}
    return Tool(name, pick(SHELL_NOTES, rng), _dump(schema)), Turn(thoughts, call=call)


def _shell(name: str, rng: random.Random) -> Json:
    """The properties of a shell's tool."""
    parameter, kind = SHELLS[name]
    note = pick(COMMAND_NOTES, rng)
    listed: Json = {parameter: kind | ({"description": note} if note else {})}
    for beside in rng.sample(sorted(BESIDE), rng.choice((0, 0, 1, 2, 3))):
        listed[beside] = BESIDE[beside]
    if rng.random() < 0.3:  # some clients list them by the alphabet
        listed = dict(sorted(listed.items()))
    return listed


def _patching(task: Task, rng: random.Random) -> tuple[Tool, Turn]:
    thoughts = think(task.wanted, "The function apply_patch takes input.",
                     calling(PATCH, PATCH_PARAMETER, f"{task.word} > {task.file}"))  # fmt: skip
    call = Call(PATCH, _dump({PATCH_PARAMETER: task.patch}))
    return _patch(rng), Turn(thoughts, call=call)


def _patch(rng: random.Random) -> Tool:
    listed = {PATCH_PARAMETER: TEXT}
    schema = {"type": "object", "properties": listed, "required": [*listed]}
    return Tool(PATCH, pick(PATCH_NOTES, rng), _dump(schema))


def _neighbours(rng: random.Random, *, patch: bool) -> list[Tool]:
    """Tools that an agent has beside; with a shell, it takes no patch."""
    near = [_patch(rng)] if patch and rng.random() < 0.3 else []
    return near + [tool for tool in toolkit.others(rng) if tool.name != "read_file"]


def _outcome(task: Task, rng: random.Random) -> tuple[str, str]:
    """What the tool answers, and what the model says then."""
    if task.kind == "write_file":
        output = rng.choice(("", "Done!", "Success.", f"A {task.file}", "ok"))
        return _framed(output, rng), f"I wrote {task.word} to {task.file}."
    if task.kind == "files":
        listed = "\n".join(file_name(rng) for _ in range(rng.randint(1, 4)))
        return _framed(listed, rng), f"The files:\n{listed}"
    text = toolkit.loose_text(rng)
    return _framed(text, rng), f"The file {task.file} holds:\n{text}"


def _framed(output: str, rng: random.Random) -> str:
    """An output as agents hand it on."""
    ended = output + rng.choice(("", "\n")) if output else ""
    seconds = f"{rng.randint(0, 2)}.{rng.randint(0, 9999):04}"
    chunk = pick(CHUNKS, rng)
    return rng.choice(
        (
            ended,
            f"Exit code: 0\nWall time: {seconds[:3]} seconds\nOutput:\n{ended}",
            f"Chunk ID: {chunk}\nWall time: {seconds} seconds\nProcess exited with code 0\n"
            f"Original token count: {len(output) // 4}\nOutput:\n{ended}",
        )
    )


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
