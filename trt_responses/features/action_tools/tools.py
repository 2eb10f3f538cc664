"""Tools of the API's own that the client runs, as the model is shown them and as it calls them.

For the model they are functions, with one form of call each. Knows the API's words for such tools.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from trt_responses.errors import unsupported_value
from trt_responses.features.tool_items.containers import NetworkPolicy, check_container_options
from trt_responses.wire.base import ByType, ListOf, NonEmpty, Options
from trt_responses.wire.choice import FolderChoice
from trt_responses.wire.tools import FolderTool

Json = dict[str, Any]

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


def _object(needed: list[str], **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
    }


TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "array", "items": TEXT, "minItems": 1}
COUNT: Json = {"type": "integer", "minimum": 1}
COMMANDS = _object(["commands"], commands=TEXTS, timeout_ms=COUNT, max_output_length=COUNT)
COMMAND = _object(["command"], command=TEXTS, working_directory=TEXT, timeout_ms=COUNT)
PATCH = _object(
    ["type", "path"],
    type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
    path=TEXT,
    diff=TEXT,
)


class LocalSkill(Options):
    """A skill on the client's machine, described to the model."""

    name: str
    description: str
    path: str


class LocalEnvironment(Options):
    """The client's own machine."""

    type: Literal["local"]
    skills: ListOf[LocalSkill] | None = None


class NewContainer(Options):
    """A container of the server's, found or made."""

    type: Literal["container_auto"]
    file_ids: ListOf[str] | None = None
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: NetworkPolicy | None = None
    skills: ListOf[dict[str, Any]] | None = None


class ContainerById(Options):
    """A container of the server's that there is."""

    type: Literal["container_reference"]
    container_id: NonEmpty


class ShellTool(FolderTool):
    """A shell: the client's, unless it asks for a container."""

    type: Literal["shell"]
    environment: Annotated[LocalEnvironment | NewContainer | ContainerById, ByType()] | None = None

    @property
    def hosted(self) -> bool:
        return isinstance(self.environment, NewContainer | ContainerById)

    def shown(self) -> tuple[str, Json]:
        """With the skills that the client names."""
        skills = getattr(self.environment, "skills", None) or ()
        named = [f"Skill {one.name}, in {one.path}: {one.description}" for one in skills]
        return "\n".join([SHELL, *named]), COMMANDS

    def check(self, place: str) -> None:
        if isinstance(container := self.environment, NewContainer):
            check_container_options(container, f"{place}.environment.")
            if container.skills:
                why = "there are none here. Leave the field out"
                raise unsupported_value(f"{place}.environment.skills", why)


class LocalShellTool(FolderTool):
    """A shell that the client runs, one command at a time: what came before `shell`."""

    type: Literal["local_shell"]

    def shown(self) -> tuple[str, Json]:
        return LOCAL_SHELL, COMMAND


class ApplyPatchTool(FolderTool):
    """Creates, changes and deletes files of the client's."""

    type: Literal["apply_patch"]

    def shown(self) -> tuple[str, Json]:
        return APPLY_PATCH, PATCH


KINDS: dict[str, type[FolderTool]] = {
    "shell": ShellTool,
    "local_shell": LocalShellTool,
    "apply_patch": ApplyPatchTool,
}


class ActionChoice(FolderChoice):
    """Such a tool, which has no name but its kind."""

    type: Literal["shell", "local_shell", "apply_patch"]


CHOICES: dict[str, type[FolderChoice]] = dict.fromkeys(KINDS, ActionChoice)
