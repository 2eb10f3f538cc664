"""The one fault of preparing: a sentence with the name, what was found, and what was expected.

Knows no file format and no engine. What it shows may come from a hostile file, so it is cut.
"""

from __future__ import annotations

from trt_responses.errors import StartupError, UsageError

MOST_LETTERS = 300
"""The most letters of one part of a sentence: a name in a file may be megabytes long."""


class PrepareError(StartupError):
    """A checkpoint or an engine directory is refused; nothing of it has been executed."""


class WrongInput(PrepareError, UsageError):
    """The caller named an engine, a file or a value that does not exist or cannot be used."""


def refusal(
    name: object, found: object, expected: object, kind: type[PrepareError] = PrepareError
) -> PrepareError:
    """The error that says what was found and what was expected."""
    name, found, expected = map(cut, (name, found, expected))
    return kind(f"{name}: found {found}, expected {expected}.")


def shown(value: object) -> str:
    """A value from a file, in a form that may stand in a sentence."""
    try:
        return cut(repr(value))
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return f"a {type(value).__name__} too large to show"


def cut(value: object) -> str:
    """A text on one line, of bounded length, that every terminal and log takes."""
    text = str(value)
    text = text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
