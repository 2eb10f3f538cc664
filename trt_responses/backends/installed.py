"""What may be installed: optional packages, and what other packages bring by name.

A missing module becomes a `StartupError` with the extra's name. An entry point in one of the groups
`trt_responses.engines`, `.stores`, `.tools` and `.dialects` is a function that makes one; a setting
names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Literal

from trt_responses.errors import StartupError

Group = Literal["engines", "stores", "tools", "dialects"]


@contextmanager
def needed(what: str, extra: str = "") -> Iterator[None]:
    """A context for the imports of `what`. A missing module raises a `StartupError` with `what`,
    the module, and the extra to install."""
    try:
        yield
    except ModuleNotFoundError as fault:
        remedy = f": pip install 'trt-responses[{extra}]'" if extra else ""
        raise StartupError(f"{what} is not installed (no module {fault.name}){remedy}.") from None


def maker(group: Group, name: str, own: tuple[str, ...] = ()) -> Callable[..., Any]:
    """The function of an installed package that makes what a setting names. A name that nothing
    brings raises a `StartupError` with those that are there: `own`, and of other packages."""
    entries = entry_points(group=f"trt_responses.{group}")
    for entry in entries.select(name=name):
        made: Callable[..., Any] = entry.load()
        return made
    known = ", ".join((*own, *sorted(entries.names))) or "none is installed"
    raise StartupError(f"no package brings {group[:-1]} {name!r:.60}: expected {known}.")
