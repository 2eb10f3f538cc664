"""What is loaded when the settings ask for it, and told in one sentence where it is missing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def needed(what: str, extra: str = "") -> Iterator[None]:
    """Import what an engine, a store, a tool or a dialect needs. Raises a `StartupError` that names
    `what` cannot be had, the module that is missing, and the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as fault:
        remedy = f": pip install 'trt-responses[{extra}]'" if extra else ""
        raise StartupError(f"{what} is not installed (there is no {fault.name}){remedy}.") from None
