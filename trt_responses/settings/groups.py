"""The groups of settings that are installed, and what is known of settings that are not.

A folder declares its settings in a module `settings`, as subclasses of `SettingGroup`, and reads
them with `of`. Another package names its groups in the entry points `trt_responses.setting_groups`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from trt_responses.settings.values import FixedGroup, SettingGroup

GROUP = "trt_responses.setting_groups"
HERE = Path(__file__).parent


class Listed(NamedTuple):
    """A setting as help lists it: the title above it, and the folder that brings it."""

    title: str
    name: str
    folder: str


def installed() -> Iterator[type[SettingGroup]]:
    """The groups of folders of this package, and of other packages."""
    for name in sorted(_modules()):
        module = import_module(name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == name:
                yield value
    for entry in entry_points(group=GROUP):
        yield entry.load()


def _modules() -> Iterator[str]:
    package = __name__.partition(".")[0]
    for place in map(Path, sys.modules[package].__path__):
        for path in (*place.glob("*/settings.py"), *place.glob("*/*/settings.py")):
            yield ".".join((package, *path.relative_to(place).with_suffix("").parts))


def settable(whole: type[SettingGroup]) -> Iterator[tuple[str, str]]:
    """The settings that a variable may set, each with its title, in the order of help."""
    groups = [group for group in whole.__mro__ if issubclass(group, SettingGroup)]
    titles = {one.name: one.title for one in listed()}
    for group in groups:
        for name in _own(group):
            titles.setdefault(name, (group.__doc__ or "").partition("\n")[0].rstrip("."))
    fixed = {name for group in groups if FixedGroup in group.__bases__ for name in _own(group)}
    for name, title in titles.items():
        if name in whole.model_fields and name not in fixed:
            yield name, title


def _own(group: type[SettingGroup]) -> list[str]:
    return [name for name in vars(group).get("__annotations__", ()) if name in group.model_fields]


@cache
def listed() -> tuple[Listed, ...]:
    """The settings of this package."""
    rows, title = [], ""
    for line in _lines("listed.txt"):
        if not line.startswith(" "):
            title = line
            continue
        name, _, folder = line.strip().partition(" ")
        rows.append(Listed(title, name, folder))
    return tuple(rows)


@cache
def gone() -> dict[str, str]:
    """Variables that earlier versions read, each with what to do instead. A start that finds one is
    refused: it would not do what its operator expects."""
    return dict(line.split(": ", 1) for line in _lines("gone.txt"))


def _lines(name: str) -> list[str]:
    lines = (HERE / name).read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]
