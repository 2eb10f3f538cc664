"""Tools of the API's own that the client runs, as the model is shown them and as it calls them.

For the model they are functions, with one form of call each. Knows the API's words for such tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from trt_responses.log.action_calls import Action
from trt_responses.wire.tools import ShellTool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.log.item_events import ActionKind
    from trt_responses.wire.tools import ActionTool

    Json = dict[str, Any]

T = TypeVar("T")

SHELL = (
    "Runs commands in a shell on the user's machine, one after another, and gives the output and "
    "the exit code of each."
)
LOCAL_SHELL = "Runs one command on the user's machine, without a shell, and gives its output."
APPLY_PATCH = (
    "Creates, changes or deletes one file of the user's. A diff has a line `@@` before each part, "
    "then lines that begin with a space, `-` or `+`: what stays around the change, what goes, and "
    "what comes. For a new file every line begins with `+`."
)


def _plain(value: T) -> Callable[[ActionTool], T]:
    return lambda tool: value


def _object(needed: list[str], **properties: Json) -> Callable[[ActionTool], Json]:
    return _plain(
        {
            "type": "object",
            "properties": properties,
            "required": needed,
            "additionalProperties": False,
        }
    )


TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "array", "items": TEXT, "minItems": 1}
COUNT: Json = {"type": "integer", "minimum": 1}


def _shell(tool: ActionTool) -> str:
    """The description of a shell, with the skills that the client names."""
    environment = tool.environment if isinstance(tool, ShellTool) else None
    skills = getattr(environment, "skills", None) or ()
    named = [f"Skill {one.name}, in {one.path}: {one.description}" for one in skills]
    return "\n".join([SHELL, *named])


KINDS: Mapping[ActionKind, Action] = {
    "shell": Action(
        _shell,
        _object(["commands"], commands=TEXTS, timeout_ms=COUNT, max_output_length=COUNT),
    ),
    "local_shell": Action(
        _plain(LOCAL_SHELL),
        _object(["command"], command=TEXTS, working_directory=TEXT, timeout_ms=COUNT),
    ),
    "apply_patch": Action(
        _plain(APPLY_PATCH),
        _object(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=TEXT,
            diff=TEXT,
        ),
    ),
}
