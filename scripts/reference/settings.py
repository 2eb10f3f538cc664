"""The tables of settings, one for each group."""

from __future__ import annotations

from trt_responses.cli.setting_list import groups
from trt_responses.settings import whole


def tables() -> str:
    """Every setting with its default, under the title of its group."""
    return "\n".join(_table(title, names) for title, names in groups())


def _table(title: str, names: list[str]) -> str:
    rows = "".join(map(_row, names))
    return f"## {title}\n\n| name | default | meaning |\n|---|---|---|\n{rows}"


def _row(name: str) -> str:
    field = whole().model_fields[name]
    default = f"`{_spelled(field.default)}`" if field.default not in (None, ()) else ""
    return f"| `{name.upper()}` | {default} | {(field.description or '').replace('|', ' or ')} |\n"


def _spelled(value: object) -> str:
    """A value as a variable of the environment has it."""
    match value:
        case bool():
            return str(int(value))
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)
