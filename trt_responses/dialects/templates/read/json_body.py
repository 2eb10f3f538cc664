"""Reads calls whose arguments are JSON: they are returned as written.

`json`: one object with the keys `name` and `arguments`, read incrementally if they come in this
order. `named`: a name, a separator, and JSON. No ids and no fragments here.
"""

from __future__ import annotations

import json
import re
from functools import cache

from trt_responses.dialects.templates.families import Calls
from trt_responses.dialects.templates.pieces import CALL_ID, is_mark, pieces
from trt_responses.dialects.templates.read.body import Body, split

HEAD_CHARACTERS = 4096
"""Maximum length of a JSON call up to its arguments; a longer one is read when it is complete."""

_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[\d.]+|null)'
_KEY = re.compile(r'"(\w+)":')
_NUMBERED = re.compile(r":\d+")
_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


@cache
def _patterns(form: Calls) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The patterns of an object up to its arguments, and from their end on."""
    name, arguments = map(re.escape, form.keys)
    texts = form.before_name + form.after_name + form.after_arguments
    others = "|".join(sorted({*_KEY.findall(texts)} - {*form.keys})) or "(?!)"
    other = rf'"(?:{others})"\s*:\s*{_SCALAR}'
    quoted = r'("(?:[^"\\]|\\.)*")\s*'
    head = rf"\s*\{{\s*{quoted}:\s*(?=\S)"
    if name:
        keys = rf"(?:{'|'.join({arguments, 'arguments', 'parameters'})})"
        head = rf'\s*\{{\s*(?:{other}\s*,\s*)*"{name}"\s*:\s*{quoted},\s*"{keys}"\s*:\s*(?=\S)'
    tail = rf"\s*(?:,\s*{other}\s*)*\}}\s*"
    return re.compile(head, re.DOTALL), re.compile(tail, re.DOTALL)


class JsonValue:
    """Finds the end of a JSON value in text that comes in pieces."""

    def __init__(self, depth: int = 0) -> None:
        """`depth`: the number of open brackets before the text."""
        self._depth = depth
        self.in_string = False
        self._escaped = False
        self.begun, self.over = depth > 0, False

    def take(self, text: str) -> int:
        """The number of characters of this text that belong to the value."""
        at = 0
        self.begun = self.begun or bool(text)
        while at < len(text) and not self.over:
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            sign = (_IN_STRING if self.in_string else _STRUCTURE).search(text, at)
            if sign is None:
                return len(text)
            if sign[0] in "}]" and self._depth == 0:
                self.over = True  # it closes the object or array around this value
                return sign.start()
            at = sign.end()
            self._sign(sign[0])
        return at

    def _sign(self, sign: str) -> None:
        if sign == "\\":
            self._escaped = True
        elif sign == '"':
            self.in_string = not self.in_string
            self.over = not self.in_string and self._depth == 0
        elif sign in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            self.over = self._depth == 0


class _Arguments(Body):
    """Arguments that are JSON, returned as written."""

    def _set_up(self) -> None:
        self._opened = False
        self._value = JsonValue()
        self._held: list[str] | None = []
        """Pieces of a value that is not an object; it is converted when it is complete."""

    def closes(self) -> bool:
        return not (self._value.begun and self._value.in_string)

    def _close_step(self) -> bool:
        """Find the closing mark in the text after the arguments; without one the body's own end
        closes the call."""
        if not self._form.close:
            return self._end_step()
        before, mark, behind = split(self._text, (self._form.close,))
        if mark is None:
            return False
        self._text = before
        self.finish(closed=True)
        self._text, self.over = behind, True
        return False

    def _end_step(self) -> bool:
        self.finish(closed=True)
        self._text, self.over = self._text.lstrip() if self._opened else "", True
        return False

    def _value_step(self) -> None:
        size = self._value.take(self._text)
        text, self._text = self._text[:size], self._text[size:]
        if self._held is not None and not self._held and text[:1] in "{[":
            self._held = None
        if self._held is None:
            self._sink.arguments(text)
        else:
            self._held.append(text)
        if self._value.over:
            self._value_end()

    def _value_end(self) -> None:
        """Complete the arguments."""
        if self._held is not None:
            self._sink.arguments(_unwrapped("".join(self._held)))
        self._held, self.whole = None, True


class JsonBody(_Arguments):
    """A call as one JSON object with the keys `name` and `arguments`."""

    def _set_up(self) -> None:
        super()._set_up()
        self._head, self._tail = _patterns(self._form)
        self._frame = JsonValue()
        """The object around name and arguments, until the name is known; then its rest."""
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
            if not self._tail.fullmatch(self._text):
                self._sink.fault()
        elif closed:
            self.whole = True  # broken JSON, returned as written

    def _head_step(self) -> bool:
        head = self._head.match(self._text) if len(self._text) <= HEAD_CHARACTERS else None
        name = _text_of(head[1]) if head else ""
        if head is None or not self._is_name(name):
            self._frame_to_end()
            return self._frame.over and self._close_step()
        self._text, self._opened = self._text[head.end() :], True
        self._frame, self._framed = JsonValue(depth=1), 0
        self._sink.opened(name)
        return True

    def _is_name(self, name: str) -> bool:
        """Whether this names a function; without a mark around, one of the offered ones."""
        return bool(name) and (not self._form.bare or name in self._schemas)

    def _end_step(self) -> bool:
        """Find the end of the object around name and arguments."""
        if self._opened:
            self._framed += self._frame.take(self._text[self._framed :])
            if not self._frame.over:
                return False
        text, rest = self._text[: self._framed], self._text[self._framed :]
        self._text = text
        self.finish(closed=True)
        self._text, self.over = rest, True
        return False

    def _frame_to_end(self) -> None:
        if not self._opened and not self._frame.over:
            self._framed += self._frame.take(self._text[self._framed :])

    def _read_whole(self) -> None:
        """Read a complete call with an unusual beginning: keys in another order, or no JSON."""
        try:
            value = json.loads(self._text)
        except (ValueError, RecursionError):
            return
        key, *own = self._form.keys
        name = value.get(key) if isinstance(value, dict) else None
        if not isinstance(name, str) or not self._is_name(name.strip()):
            return
        keys = [one for one in (*own, "arguments", "parameters") if one in value][:1]
        if self._form.bare and not keys:
            return
        arguments = value[keys[0]] if keys else None
        self._opened = self.whole = True
        self._sink.opened(name)
        if len(value) > 1 + len(keys):
            self._sink.fault()
        if isinstance(arguments, str):
            self._sink.arguments(arguments)
        else:
            self._sink.arguments(json.dumps(arguments or {}, ensure_ascii=False))


class NamedBody(_Arguments):
    """A name, a separator, and JSON. The text around them may be one token, or ordinary text."""

    def _set_up(self) -> None:
        super()._set_up()
        before = [*filter(is_mark, pieces(self._form.before_name))]
        behind = [*filter(is_mark, pieces(self._form.after_name))]
        self._before = before[-1] if before else ""
        """The mark before the name; what is before that is no part of it."""
        self._name_end = behind[0] if behind else self._form.after_name
        self._begin = behind[-1] if len(behind) > 1 else ""
        """The mark before the arguments, if another one ends the name."""
        self._prefix = self._form.before_name.strip().removesuffix(self._before)
        """The text before that mark, or before the name if there is none."""
        self._numbered = _NUMBERED.match(self._form.after_name) is not None

    def mark(self, mark: str) -> bool:
        if self._opened:
            return False
        self.feed(mark)
        return True

    def _step(self) -> bool:
        if not self._opened:
            return self._head_step()
        if not self.whole and self._text.strip():
            if not self._value.begun:
                self._text = self._text.lstrip()
            self._value_step()
            return self.whole
        return self.whole and self._close_step()

    def _head_step(self) -> bool:
        prefix, head = "", self._text
        mark: str | None = ""
        if self._before:
            prefix, mark, head = split(head, (self._before,))
        if mark is None:
            return False
        name, mark, behind = split(head.lstrip(), (self._name_end,))
        if mark is None:
            return False
        if self._begin:
            _, mark, behind = split(behind, (self._begin,))
            if mark is None:
                return False
        if not self._before:
            name = name.removeprefix(self._prefix)
        if self._numbered:
            name = _NUMBERED.split(name)[0]
        if self._named(name) is None:
            return False
        if self._before and prefix.strip() != self._prefix and CALL_ID not in self._prefix:
            self._sink.fault()
        self._text, self._opened = behind.lstrip(), True
        return True

    def finish(self, *, closed: bool) -> None:
        if not self._opened:
            return
        if self.whole:
            tail = self._text.strip()
            if tail and tail != self._form.after_arguments.strip():
                self._sink.fault()
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
    """Arguments that are not an object: null means none, and a string contains the arguments."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return text
    if value is None:
        return "{}"
    return value if isinstance(value, str) else text
