"""What an agent of a terminal sends beside a question: long declarations, skills, permissions.

Knows declarations and words; knows no family, no token and no model.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from scripts.demo import words
from scripts.demo.conversation import Tool, message
from scripts.demo.wordings import pick, values

if TYPE_CHECKING:
    import random

    from scripts.demo.conversation import Dialogue

Json = dict[str, object]
TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "number"}
TRUTH: Json = {"type": "boolean"}
PARAMETERS: dict[str, tuple[Json, str]] = {
    "justification": (TEXT, "User-facing question for approval; omit otherwise."),
    "login": (TRUTH, "True runs the shell as a login shell. Defaults to true."),
    "max_output_tokens": (COUNT, "Output token budget. Defaults to 10000 tokens; larger requests "
                          "may be capped."),
    "prefix_rule": ({"type": "array", "items": TEXT}, "Reusable approval prefix for commands; for "
                    'example ["git", "pull"].'),
    "sandbox_permissions": ({**TEXT, "enum": ["use_default", "require_escalated"]},
                            "Sandbox override of one command. Defaults to `use_default`."),
    "shell": (TEXT, "Shell binary to launch. Defaults to the user's default shell."),
    "tty": (TRUTH, "True allocates a PTY for the command; false or omitted uses plain pipes."),
    "workdir": (TEXT, "Working directory for the command. Defaults to the turn cwd."),
    "yield_time_ms": (COUNT, "Wait before yielding output, in milliseconds. Defaults to 10000 ms."),
    "timeout_ms": (COUNT, "The timeout for the command in milliseconds"),
    "run_in_background": (TRUTH, "Set to true to run this command in the background."),
    "description": (TEXT, "Clear, concise description of what this command does in active voice."),
    "env": ({"type": "array", "items": TEXT}, "Variables of the environment, NAME=value each."),
    "with_escalated_permissions": (TRUTH, "Whether to request permissions outside the sandbox."),
}  # fmt: skip
"""What a shell's tool takes besides the command."""
COMMANDS = ("cmd", "cmd", "command", "command", "script", "line", "input", "shell_command")
COMMAND_NOTES = ("Shell command to execute.", "The command to execute", "Command line to run",
                 "The shell script to run", "What the shell is to run.")  # fmt: skip


def _tool(name: str, note: str, required: str, **listed: Json) -> Tool:
    schema = {"type": "object", "properties": listed, "required": required.split()}
    return Tool(name, note, json.dumps(schema, ensure_ascii=False))


def _noted(schema: Json, note: str) -> Json:
    return {**schema, "description": note}


OPTION: Json = {
    "type": "object",
    "properties": {
        "description": _noted(TEXT, "One short sentence explaining impact/tradeoff if selected."),
        "label": _noted(TEXT, "User-facing label (1-5 words)."),
    },
    "required": ["label", "description"],
}
QUESTION: Json = {
    "type": "object",
    "properties": {
        "header": _noted(TEXT, "Short header label shown in the UI (12 or fewer chars)."),
        "id": _noted(TEXT, "Stable identifier for mapping answers (snake_case)."),
        "options": _noted({"type": "array", "items": OPTION}, "Provide 2-3 mutually exclusive "
                          "choices. Put the recommended option first."),
        "question": _noted(TEXT, "Single-sentence prompt shown to the user."),
    },
    "required": ["id", "header", "options", "question"],
}  # fmt: skip
STEP: Json = {
    "type": "object",
    "properties": {
        "step": TEXT,
        "status": _noted(TEXT, "One of: pending, in_progress, completed"),
    },
    "required": ["step", "status"],
}
TOOLS = (
    _tool("write_stdin", "Writes characters to an existing session and returns recent output.",
          "session_id",
          chars=_noted(TEXT, "Bytes to write to stdin. Defaults to empty, which polls."),
          max_output_tokens=_noted(COUNT, "Output token budget. Defaults to 10000 tokens."),
          session_id=_noted(COUNT, "Identifier of the running session."),
          yield_time_ms=_noted(COUNT, "Wait before yielding output. Empty polls wait 5000 ms.")),
    _tool("request_user_input", "Request user input for one to three short questions and wait for "
          "the response. This tool is only available in Plan mode.", "questions",
          questions=_noted({"type": "array", "items": QUESTION}, "Questions to show the user.")),
    _tool("update_plan", "Updates the task plan.\nProvide an optional explanation and a list of "
          "plan items, each with a step and status.", "plan", explanation=TEXT,
          plan=_noted({"type": "array", "items": STEP}, "The list of steps")),
    _tool("view_image", "Attach a local image (by filesystem path) to the conversation context.",
          "path", path=_noted(TEXT, "Local filesystem path to an image file")),
    _tool("list_mcp_resources", "Lists resources provided by MCP servers. Prefer resources over "
          "web search when possible.", "",
          cursor=_noted(TEXT, "Opaque cursor returned by a previous call."),
          server=_noted(TEXT, "Optional MCP server name. When omitted, lists all servers.")),
    _tool("spawn_agent", "Spawn a sub-agent for a well-scoped task. Returns the agent id.",
          "message", message=_noted(TEXT, "Initial task for the new agent."),
          agent_type=_noted(TEXT, "Optional type name for the new agent."),
          fork_context=_noted(TRUTH, "When true, fork the current thread history.")),
    _tool("wait_agent", "Wait for agents to reach a final status.", "ids",
          ids=_noted({"type": "array", "items": TEXT}, "Agent ids to wait on."),
          timeout_ms=_noted(COUNT, "Optional timeout in milliseconds. Defaults to 30000.")),
)  # fmt: skip
"""What agents declare beside a shell."""
SKILLS = (
    "Generate or edit raster images when the task benefits from photos, illustrations, textures, "
    "sprites or mockups. Do not use when the task is better handled by editing SVG or code.",
    "Read this skill before answering how the product behaves, where to find a feature, or how to "
    "configure or troubleshoot this app. This includes conversation history, model and cache "
    "behavior, instruction precedence, permissions, and tool availability.",
    "Create or update a skill with appropriately scoped instructions and any needed resources.",
    "Install skills from a curated list or a GitHub repo path, including private repos.",
    "Use when the user asks for a review: look for bugs, risks and missing tests first.",
    "Turn a spreadsheet or a table into a chart, and write a short summary of what it shows.",
    "Query the issue tracker and link each change to its ticket before a release is made.",
    "Format documents and slides. Skip it for plain text that the user only wants to read.",
)
PERMISSIONS = (
    "Filesystem sandboxing defines which files can be read or written.",
    "`sandbox_mode` is `workspace-write`: The sandbox permits reading files, and editing files in "
    "`cwd` and `writable_roots`. Editing files in other directories requires approval.",
    "`sandbox_mode` is `read-only`: The sandbox only permits reading files.",
    "Network access is restricted.",
    "Network access is enabled.",
    "Approval policy is currently never. Do not provide the `sandbox_permissions` for any reason, "
    "commands will be rejected.",
    "Approval policy is on-request: commands are run in the sandbox by default.",
)
DIRECTORIES = ("tmp", "home", "work", "src", "run", "projects", "code", "demo", "user", "repo")


def shell_parameters(command: str, kind: Json, rng: random.Random) -> Json:
    """The properties of a shell's tool, each with what it means, in the order of the alphabet."""
    chosen = rng.sample(sorted(PARAMETERS), rng.randint(3, len(PARAMETERS)))
    listed = {name: _noted(*PARAMETERS[name]) for name in chosen if name != command}
    return dict(sorted({**listed, command: _noted(kind, pick(COMMAND_NOTES, rng))}.items()))


def neighbours(rng: random.Random) -> list[Tool]:
    return rng.sample(TOOLS, rng.randint(1, 5))


def surrounded(dialogue: Dialogue, rng: random.Random) -> Dialogue:
    """The dialogue with messages of an agent's before its first question."""
    parts = [part(rng) for part in (_skills, _permissions) if rng.random() < 0.85]
    texts = [pick(("You are a coding agent.", "Be precise, safe and helpful."), rng)] * (
        rng.random() < 0.6
    )
    texts += ["\n".join(parts)] * bool(parts)
    messages = [message("developer", f"# Instructions\n\n{text}") for text in texts]
    if rng.random() < 0.85:
        messages.append(message("user", _environment(rng)))
    return dialogue.under(replace(dialogue.setting, beside="".join(messages)))


def _path(rng: random.Random) -> str:
    parts = (
        pick(DIRECTORIES, rng) if rng.random() < 0.6 else words.word(rng)
        for _ in range(rng.randint(1, 4))
    )
    return "/" + "/".join(parts)


def _skills(rng: random.Random) -> str:
    lines = ["<skills_instructions>", "## Skills",
             "A skill is a set of local instructions to follow that is stored in a `SKILL.md` file."
             " Below is the list of skills that can be used.",
             "### Skill roots", f"- `r0` = `{_path(rng)}`", "### Available skills"]  # fmt: skip
    for note in rng.sample(SKILLS, rng.randint(1, 7)):
        name = f"{words.word(rng)}-{pick(values().words, rng)}"
        text = note if rng.random() < 0.8 else words.text(rng, most=12)
        lines.append(f"- {name}: {text} (file: r0/{name}/SKILL.md)")
    return "\n".join((*lines, "</skills_instructions>"))


def _permissions(rng: random.Random) -> str:
    chosen = rng.sample(PERMISSIONS, rng.randint(1, 4))
    roots = f" The writable roots are `/tmp`, `{_path(rng)}`."
    lines = ("<permissions instructions>", " ".join(chosen), roots, "</permissions instructions>")
    return "\n".join(lines)


def _environment(rng: random.Random) -> str:
    cwd = _path(rng)
    hidden = rng.sample((".git", ".agents", ".codex", ".aws", ".env"), rng.randint(0, 4))
    entries = "".join(
        f'<entry access="{access}"><path>{path}</path></entry>'
        for access, path in (("write", cwd), *(("read", f"{cwd}/{name}") for name in hidden))
    )
    system = (
        f"\n  <filesystem><workspace_roots><root>{cwd}</root></workspace_roots>"
        f'<permission_profile type="managed"><file_system type="restricted">{entries}'
        "</file_system></permission_profile></filesystem>"
    )
    date = f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return (
        f"<environment_context>\n  <cwd>{cwd}</cwd>\n  <shell>{pick(('bash', 'zsh'), rng)}</shell>"
        f"\n  <current_date>{date}</current_date>\n  <timezone>Etc/UTC</timezone>"
        f"{system if rng.random() < 0.7 else ''}\n</environment_context>"
    )
