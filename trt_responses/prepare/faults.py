"""The one fault of preparing: a sentence with the name, what was found, and what was expected.

Knows no file format and no engine.
"""

from __future__ import annotations

from trt_responses.errors import StartupError


class PrepareError(StartupError):
    """A checkpoint or an engine directory is refused; nothing of it has been executed."""


def refusal(name: object, found: object, expected: object) -> PrepareError:
    return PrepareError(f"{name}: found {found}, expected {expected}.")
