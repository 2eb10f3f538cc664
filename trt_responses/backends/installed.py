"""Imports of optional packages: a missing one becomes a `StartupError` with the extra's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trt_responses.errors import StartupError


@contextmanager
def needed(what: str, extra: str = "") -> Iterator[None]:
    """A context for the imports of `what`. A missing module raises a `StartupError` with `what`,
    the module, and the extra to install."""
    try:
        yield
    except ModuleNotFoundError as fault:
        remedy = f": pip install 'trt-responses[{extra}]'" if extra else ""
        raise StartupError(f"{what} is not installed (no module {fault.name}){remedy}.") from None
