"""The settings as the command line lists them: by group, each with its source."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from trt_responses.settings import PREFIX, Settings, hidden, secrets, whole
from trt_responses.settings.groups import settable


def groups() -> Iterator[tuple[str, list[str]]]:
    """Each title and the names of the settings under it, in the order of help."""
    for title, rows in groupby(settable(whole()), itemgetter(1)):
        yield title, [name for name, _ in rows]


def settings_help() -> str:
    """All settings with their defaults, for the end of a help text."""
    lines = [f"Settings are environment variables named {PREFIX}<NAME>:"]
    for title, names in groups():
        lines += ["", f"{title}:"]
        for name in names:
            field = whole().model_fields[name]
            given = "" if field.default in (None, (), "") else f" [{_shown(field.default)}]"
            lines.append(f"  {name.upper()}{given}")
            lines += textwrap.wrap(
                field.description or "", 92, initial_indent=" " * 6, subsequent_indent=" " * 6
            )
    return "\n".join(lines)


def settings_in_force(settings: Settings, given: Mapping[str, Any]) -> str:
    """All settings in force, each with its source: a flag, a variable or the default. Keys and
    passwords are hidden."""
    lines = []
    for title, names in groups():
        lines.append(f"# {title}")
        for name in names:
            variable = PREFIX + name.upper()
            source = "default"
            if given.get(name) is not None:
                source = f"option --{name.replace('_', '-')}"
            elif os.environ.get(variable):
                source = "environment"
            lines.append(f"{variable}={_safe(name, getattr(settings, name))}  # {source}")
    return "\n".join(lines)


def _safe(name: str, value: Any) -> str:
    if name in secrets():
        return "(set, and not shown)" if value else ""
    parts = value if isinstance(value, tuple) else (value,)
    return ",".join(hidden(_shown(part)) for part in parts)


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(int(value))
        case tuple():
            return ",".join(map(str, value))
        case dict():
            return json.dumps(value)
        case _:
            return str(value)
