"""Calls whose arguments are JSON already: they are told as they were written.

`json`: one object with the keys `name` and `arguments`, read while it comes where they stand in
this order. `named`: a name, a separator, and JSON. Knows no ids and no fragments.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from trt_responses.dialects.templates.read.body import Body, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.dialects.templates.families import Calls
    from trt_responses.dialects.templates.read.body import Heard

HEAD_CHARACTERS = 4096
"""Of a JSON call until its name and the beginning of its arguments are known. In a longer one, the
call is read when it is whole."""

_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\S)', re.S
)
_TAIL = re.compile(r"\s*\}\s*")
_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class JsonValue:
    """Finds where a JSON value ends, in text that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.begun = self.over = False

    def take(self, text: str) -> int:
        """How many characters of this text belong to the value."""
        at = 0
        if text and not self.begun:
            self.begun = True
        while at < len(text) and not self.over:
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = (_IN_STRING if self._in_string else _STRUCTURE).search(text, at)
            if found is None:
                return len(text)
            if found[0] in "}]" and self._depth == 0:
                self.over = True  # of what stands around a value that is no object
                return found.start()
            at = found.end()
            self._sign(found[0])
        return at

    @property
    def in_string(self) -> bool:
        return self._in_string

    def _sign(self, sign: str) -> None:
        if sign == "\\":
            self._escaped = True
        elif sign == '"':
            self._in_string = not self._in_string
            self.over = not self._in_string and self._depth == 0
        elif sign in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            self.over = self._depth == 0


class _Arguments(Body):
    """Arguments that are JSON already: told as they were written."""

    def __init__(self, form: Calls, schemas: Mapping[str, object], heard: Heard) -> None:
        super().__init__(form, schemas, heard)
        self._value = JsonValue()
        self._held: list[str] | None = []
        """Of a value that is no object: it is looked at when it is whole."""

    def closes(self) -> bool:
        return not (self._value.begun and self._value.in_string)

    def _close_step(self) -> bool:
        """Behind the arguments, the closing mark may be text."""
        before, mark, behind = split(self._text, (self._form.close,))
        if mark is None:
            return False
        self._text = before
        self.finish(closed=True)
        self._text, self.over = behind, True
        return False

    def _value_step(self) -> None:
        size = self._value.take(self._text)
        text, self._text = self._text[:size], self._text[size:]
        if self._held is not None and not self._held and text[:1] in "{[":
            self._held = None
        if self._held is None:
            self._heard.out(text)
        else:
            self._held.append(text)
        if self._value.over:
            self._value_end()

    def _value_end(self) -> None:
        if self._held is not None:
            self._heard.out(_unwrapped("".join(self._held)))
        self._held, self.whole = None, True


class JsonBody(_Arguments):
    """A call as one JSON object with the keys `name` and `arguments`."""

    def __init__(self, form: Calls, schemas: Mapping[str, object], heard: Heard) -> None:
        super().__init__(form, schemas, heard)
        self._opened = False
        self._frame = JsonValue()
        """The object around name and arguments, while the name is not known."""
        self._framed = 0

    def closes(self) -> bool:
        self._frame_to_end()
        return super().closes() if self._opened else not self._frame.in_string

    def _step(self) -> bool:
        if not self._opened:
            return self._head_step()
        if not self.whole and self._text:
            self._value_step()
            return self.whole
        return self.whole and self._close_step()

    def finish(self, *, closed: bool) -> None:
        if not self._opened:
            self._read_whole()
        elif not self.whole and self._held:
            self._value_end()
            self.whole = closed
        elif self.whole:
            if not _TAIL.fullmatch(self._text):
                self._heard.fault()
        elif closed:
            self.whole = True  # broken JSON, told as it was written

    def _head_step(self) -> bool:
        found = _HEAD.match(self._text) if len(self._text) <= HEAD_CHARACTERS else None
        name = _text_of(found[1]) if found else ""
        if found is None or not name:
            self._frame_to_end()
            return self._frame.over and self._close_step()
        self._text, self._opened = self._text[found.end() :], True
        self._heard.opened(name)
        return True

    def _frame_to_end(self) -> None:
        if not self._opened and not self._frame.over:
            self._framed += self._frame.take(self._text[self._framed :])

    def _read_whole(self) -> None:
        """A call that did not begin as calls do: keys in another order, or no JSON at all."""
        try:
            told = json.loads(self._text)
        except (ValueError, RecursionError):
            return
        name = told.get("name") if isinstance(told, dict) else None
        if not isinstance(name, str) or not name.strip():
            return
        arguments = told.get("arguments", told.get("parameters"))
        self._opened = self.whole = True
        self._heard.opened(name)
        if len(told) > 1 + ("arguments" in told or "parameters" in told):
            self._heard.fault()
        if isinstance(arguments, str):
            self._heard.out(arguments)
        else:
            self._heard.out(json.dumps(arguments or {}, ensure_ascii=False))


class NamedBody(_Arguments):
    """A name, a separator, and JSON. What stands around them may be one token, or text."""

    def __init__(self, form: Calls, schemas: Mapping[str, object], heard: Heard) -> None:
        super().__init__(form, schemas, heard)
        self._opened = False

    def mark(self, mark: str) -> bool:
        if self._opened:
            return False
        self.feed(mark)
        return True

    def _step(self) -> bool:
        if not self._opened:
            head = self._text.lstrip()
            before = self._form.before_name
            if before.startswith(head[: len(before)]) and len(head) < len(before):
                return False
            name, mark, behind = split(head.removeprefix(before), (self._form.after_name,))
            if mark is None or self._named(name) is None:
                return False
            self._text, self._opened = behind.lstrip(), True
            return True
        if not self.whole and self._text.strip():
            if not self._value.begun:
                self._text = self._text.lstrip()
            self._value_step()
            return self.whole
        return self.whole and self._close_step()

    def finish(self, *, closed: bool) -> None:
        if not self._opened:
            return
        if self.whole:
            tail = self._text.strip()
            if tail and tail != self._form.after_arguments.strip():
                self._heard.fault()
        elif self._held:
            self._value_end()
            self.whole = closed
        elif closed:
            self.whole = True


def _text_of(quoted: str) -> str:
    try:
        text = json.loads(quoted, strict=False)
    except ValueError:
        return ""
    return text.strip() if isinstance(text, str) else ""


def _unwrapped(text: str) -> str:
    """Arguments that are no object: null is none at all, and a string holds what they are."""
    try:
        told = json.loads(text, strict=False)
    except ValueError:
        return text
    if told is None:
        return "{}"
    return told if isinstance(told, str) else text
