"""An image, built by its Dockerfile's own lines without Docker: each stage in a machine of its own,
which gets what its COPY lines bring of what `.dockerignore` lets through, and nothing else."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.imports import ROOT
from tests.support.machine import OFFLINE, PATH, Machine, machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

Step = tuple[str, str]
NO_PACKAGES = "#!/bin/sh\n# The distribution's packages are those of the tests' machine.\n"


def steps(dockerfile: Path) -> list[Step]:
    """Its instructions, each with what follows the word."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text("utf-8"), flags=re.M).replace("\\\n", " ")
    lines = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return [(word, " ".join(rest.split())) for word, rest in lines]


def stages(dockerfile: Path) -> dict[str, list[Step]]:
    """The steps of each stage by its name, the last one's by "". A stage that begins with another
    one has that one's steps first."""
    found: dict[str, list[Step]] = {}
    current: list[Step] = []
    for word, rest in steps(dockerfile):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = current = list(found.get(base, []))
        else:
            current.append((word, rest))
    return found


def ignored(path: str) -> bool:
    """Whether `.dockerignore` keeps a path from the build: the last line that matches says it."""
    hidden = False
    for line in (ROOT / ".dockerignore").read_text("utf-8").split():
        pattern = line.removeprefix("!")
        if pattern == "*" or path == pattern or path.startswith(f"{pattern}/"):
            hidden = not line.startswith("!")
    return hidden


def gather(dockerfile: Path, target: Path) -> Path:
    """A folder with just the files that the COPY lines bring from the checkout."""
    for word, rest in steps(dockerfile):
        if word == "COPY" and not rest.startswith("--from"):
            *names, to = rest.split()
            for name in names:
                assert not ignored(name), f".dockerignore keeps {name} from the build"
                place = target / (name if to == "./" else to)
                place.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / name).is_dir():
                    unneeded = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / name, place, ignore=unneeded)
                else:
                    shutil.copy(ROOT / name, place)
    return target


@dataclass
class Image:
    """What the last stage leaves: a machine with its files, and how it is started."""

    machine: Machine
    env: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    cwd: str = "/"
    volumes: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def started(self, **settings: str) -> list[str]:
        """The command that starts it as its user, who has no home."""
        env = self.env | settings
        return self.machine.command(self.command, env=env, user=self.user, cwd=self.cwd)

    def is_healthy(self) -> None:
        """Run its health check; it raises if that fails."""
        self.machine.run(self.health, env=self.env, user=self.user, cwd=self.cwd)


class Build:
    """Builds one image. Its machines last as long as the stack."""

    def __init__(self, dockerfile: Path, folder: Path, stack: ExitStack) -> None:
        self._stages = stages(dockerfile)
        self._context = gather(dockerfile, folder / "context")
        self._folder, self._stack = folder, stack
        self._built: dict[str, Image] = {}

    @contextmanager
    def last(self, hosts: Sequence[str] = ()) -> Iterator[Image]:
        """The last stage in a machine of its own, which ends with the `with`."""
        with machine(self._folder, hosts=hosts) as made:
            yield self._filled(made, "")

    def _stage(self, name: str) -> Image:
        """Another stage, which is built once."""
        if name not in self._built:
            made = self._stack.enter_context(machine(self._folder))
            self._built[name] = self._filled(made, name)
        return self._built[name]

    def _filled(self, made: Machine, name: str) -> Image:
        made.write("/usr/local/sbin/apt-get", NO_PACKAGES)
        made.run("chmod 755 /usr/local/sbin/apt-get")
        image = Image(made, {"PATH": PATH})
        for word, rest in self._stages[name]:
            self._do(image, word, rest)
        return image

    def _do(self, image: Image, word: str, rest: str) -> None:
        match word:
            case "COPY":
                self._copy(image, rest)
            case "ENV":
                for pair in shlex.split(rest):
                    name, _, value = pair.partition("=")
                    image.env[name] = value.replace("$PATH", image.env["PATH"])
            case "RUN":
                env = image.env | OFFLINE
                image.machine.run(rest, env=env, user=None, cwd=image.cwd)
            case "USER":
                image.user = rest
            case "WORKDIR":
                image.cwd = rest
                image.machine.run(["mkdir", "-p", rest])
            case "VOLUME":
                image.volumes.append(rest)
            case "CMD":
                image.command = json.loads(rest)
            case "HEALTHCHECK":
                image.health = json.loads(rest[rest.index("CMD ") + 4 :])
            case _:
                assert word == "EXPOSE", f"unknown instruction {word}"

    def _copy(self, image: Image, rest: str) -> None:
        *names, to = rest.split()
        if names[0].startswith("--from="):
            source = self._stage(names.pop(0).removeprefix("--from="))
            for number, name in enumerate(names):
                taken = self._folder / f"taken-{number}" / name.rpartition("/")[2]
                source.machine.take(name, taken)
                image.machine.put(taken, to)
                shutil.rmtree(taken.parent)
            return
        for name in names:
            place = name if to == "./" else to
            image.machine.put(self._context / place, f"{image.cwd}/{place}")
