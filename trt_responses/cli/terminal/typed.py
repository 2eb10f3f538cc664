"""Reads what a person types: questions of several lines, commands, results of calls.

With prompt_toolkit, a pasted text is one question, Alt-Enter starts a line, and Tab completes a
command. Without it, each line is one question.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Read = Callable[[str, str], str]
"""Reads a text behind a prompt; the second text can be edited. Raises as `input`."""

FENCE = '"""'
CONTINUED = "… "


def reader(commands: Sequence[str]) -> Read:
    """The function that reads, with completion of these commands."""
    try:
        return _editor(commands)
    except ModuleNotFoundError:
        return lambda prompt, _: _line(prompt)


def _editor(commands: Sequence[str]) -> Read:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter

    words = [f"/{name}" for name in commands]
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=WordCompleter(words, sentence=True),
        complete_while_typing=False,
        key_bindings=_keys(),
        multiline=True,
        prompt_continuation=CONTINUED,
    )

    def read(prompt: str, text: str) -> str:
        return question(session.prompt(prompt, default=text))

    return read


def _keys() -> Any:
    """Enter sends, except behind a backslash or in a fenced text; Alt-Enter starts a line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if unfinished(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def unfinished(text: str) -> bool:
    """Whether the text goes on in the next line."""
    if text.startswith(FENCE):
        return text == FENCE or not text.rstrip().endswith(FENCE)
    return text.endswith("\\")


def question(text: str) -> str:
    """The text without its fences, or without the backslashes that continue its lines."""
    if text.startswith(FENCE):
        return text.rstrip().removeprefix(FENCE).removesuffix(FENCE).strip("\n")
    return text.replace("\\\n", "\n")


def _line(prompt: str) -> str:
    text = input(prompt)
    while unfinished(text):
        text += f"\n{input(CONTINUED)}"
    return question(text)


def _history() -> Any:
    """What was typed in earlier chats; for this user's eyes alone."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "trt_responses" / "chat_history"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        return FileHistory(path)
    return InMemoryHistory()
