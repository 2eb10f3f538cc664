"""A server as the wheel without its extras has it, whose engine runs one command and says so.

`python -m tests.support.bare_server ARGUMENTS` says its port once it listens; the arguments are
those of `exec_command`. With `MODEL TURN…` it serves that model, which writes these turns. What
only an extra brings cannot be imported.
"""

from __future__ import annotations

import re
import socket
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ROOT = Path(__file__).parents[2]
COMMAND = "<|channel|>commentary to=functions.exec_command <|constrain|>json<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>The word is in the file.<|return|>"


class NotInstalled:
    """Hides modules from the import system."""

    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self._modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def names(requirements: list[str]) -> set[str]:
    found = (re.match(r"[\w.-]+", each) for each in requirements)
    return {each[0].lower().replace("_", "-") for each in found if each}


def only_of_extras() -> frozenset[str]:
    """The modules of the extras' packages, but of those that the package itself requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set().union(*map(names, project["optional-dependencies"].values()))
    missing = extras - names(project["dependencies"]) - {"trt-responses"}
    places = metadata.packages_distributions()
    return frozenset(
        module
        for module, packages in places.items()
        if missing.issuperset(each.lower().replace("_", "-") for each in packages)
    )


def main(model: str, texts: Sequence[str]) -> None:
    sys.meta_path.insert(0, NotInstalled(only_of_extras()))
    import uvicorn

    from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
    from tests.support.served import ids
    from trt_responses.app import create_app
    from trt_responses.settings import Settings

    turns = [Script((ids(text),)) for text in texts]
    engine = ScriptedEngine(turns, clock=StepClock.free())
    app = create_app(Settings(model=model, store="memory://"), engine=engine)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run([listening])


if __name__ == "__main__":
    first, *turns = sys.argv[1:]
    if turns:
        main(first, turns)
    else:
        main("demo", (COMMAND.format(first), ANSWER))
