"""The error of `prepare`: one sentence with the name, the value found, and the value expected.
Independent of file formats and engines. Values may come from a hostile file: they are cut.
"""

from __future__ import annotations

from trt_responses.errors import StartupError, UsageError

MOST_LETTERS = 300
"""The most letters of one part of a sentence: a name in a file can have megabytes."""


class PrepareError(StartupError):
    """A checkpoint or an engine directory is refused. None of its code was executed."""


class WrongInput(PrepareError, UsageError):
    """The caller named an engine, a file or a value that does not exist or cannot be used."""


def refusal(
    name: object, found: object, expected: object, kind: type[PrepareError] = PrepareError
) -> PrepareError:
    """The error: found one value, expected another."""
    name, found, expected = map(cut, (name, found, expected))
    return kind(f"{name}: found {found}, expected {expected}.")


def shown(value: object) -> str:
    """A value from a file, in a form for a sentence."""
    try:
        return cut(repr(value))
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return f"a {type(value).__name__} too large to show"


def cut(value: object) -> str:
    """A text on one line, of bounded length and printable, for terminals and logs."""
    text = str(value)
    text = text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
