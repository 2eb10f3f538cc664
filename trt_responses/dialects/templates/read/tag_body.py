"""Reads calls whose keys and values are text between tags, and converts them by the tool's schema.

`<function=NAME>` with a `<parameter=KEY>` VALUE `</parameter>`, `<arg_key>` KEY `</arg_key>`
`<arg_value>` VALUE `</arg_value>`, and whatever else a form describes. White space beside a tag
belongs to it, as far as the template writes some there. No ids and no fragments here.
"""

from __future__ import annotations

import re
from typing import Literal

from trt_responses.dialects.templates.families import Calls
from trt_responses.dialects.templates.pieces import common
from trt_responses.dialects.templates.read.arguments import ArgumentWriter
from trt_responses.dialects.templates.read.body import SignedBody, StandIns, split

CDATA = "<![CDATA["
_Place = Literal["head", "name", "number", "between", "key", "gap", "value", "lost"]
_PIECES = re.compile(r"[^\s<]*<[^<>\n]*>?|[\ud800-\udbff]|\S+")
_TYPE = "true|false|null|string|number|integer|boolean|array|object"
_HALF_WORD = re.compile(r"\A\w+")


class TagMarks:
    """The tags of a form, without white space, as a body seeks them."""

    def __init__(self, form: Calls, signs: StandIns) -> None:
        assert form.tags is not None
        tags, sign = form.tags, signs.sign
        self.before_name = sign(form.before_name).strip()
        self.after_name, self.index_end = _indexed(sign(form.after_name).strip())
        """The text behind a name; and the text behind the call's number, if it has one there."""
        self.open = sign(tags.open).strip()
        self.end = sign(form.after_arguments).strip()
        self.close = sign(form.close).strip()
        self.key_end, self.value = _two(sign(tags.key_end).strip(), sign(tags.other).strip())
        """The mark that ends a key, and the mark behind it that begins its value, if any."""
        gap = _inside(sign(tags.key_end).strip(), self.key_end, self.value)
        self.gap = re.compile(_TYPE if tags.other else re.escape(gap))
        """The text between these two: a type, if the template writes types."""
        self.value_end = sign(tags.value_end).strip()
        self.cdata = tags.cdata
        self.newline_before = (tags.other or tags.key_end).endswith("\n")
        self.newline_behind = tags.value_end.startswith("\n")


def _two(one: str, other: str) -> tuple[str, str]:
    """The marks behind a key and before its value; only the first if they are one."""
    if other:
        first = "".join(common(one, other))
        last = "".join(common(one[::-1], other[::-1]))[::-1]
        return first, _HALF_WORD.sub("", last)
    parts = _PIECES.findall(one)
    return (parts[0], parts[-1]) if len(parts) > 1 else (one, "")


def _indexed(text: str) -> tuple[str, str]:
    first, *behind = re.split(r"\d+", text, maxsplit=1)
    return first, "".join(behind)


def _inside(text: str, first: str, last: str) -> str:
    return text.removeprefix(first).removesuffix(last).strip() if last else ""


class TagBody(SignedBody):
    """A call with its keys and values between tags."""

    def _set_up(self) -> None:
        super()._set_up()
        self._marks = TagMarks(self._form, self._signs)
        self._writer: ArgumentWriter | None = None
        self._at: _Place = "head" if self._marks.before_name else "name"
        self._key = ""
        self._quoted: bool | None = False
        """Whether the value is quoted as CDATA; None as long as that is unknown."""
        self._first = False
        """Whether a value begins here: then a newline belongs to the mark."""

    def _step(self) -> bool:
        match self._at:
            case "head":
                return self._head_step()
            case "name":
                return self._name_step()
            case "number":
                return self._number_step()
            case "between":
                return self._between_step()
            case "key":
                return self._key_step()
            case "gap":
                return self._gap_step()
            case "value":
                return self._value_step()
        return False

    def finish(self, *, closed: bool) -> None:
        text, self._text = self._text, ""
        match self._at:
            case "name" if not self._marks.after_name:
                self._open(text)
            case "value":
                self._finish_value(text, closed=closed)
            case "number" | "between" | "key" | "gap":
                self._stray(self._key + text)
        if closed and self._writer is not None:
            if not self.whole and self._marks.end:
                self._sink.fault()
            self._complete()

    def _finish_value(self, text: str, *, closed: bool) -> None:
        marks = self._marks
        text = text.removeprefix("\n") if self._first else text
        self._value(text.removesuffix("\n") if closed and marks.newline_behind else text)
        if closed:
            self._value_end()
            self._sink.fault()
        elif self._writer is not None:
            self._writer.cut()

    # --- steps ----------------------------------------------------------------------------------

    def _seek(self, *marks: str) -> tuple[str, str | None]:
        """The text before the first of these marks, and the mark. None: the text has none yet, and
        stays, or it closes the call, which ends."""
        before, mark, behind = split(self._text, (*marks, self._marks.close))
        if mark is None:
            return before, None
        self._text = behind
        if mark == self._marks.close:
            self._close(before)
            return before, None
        return before, mark

    def _close(self, before: str) -> None:
        behind, self._text = self._text, before
        self.finish(closed=True)
        self._text, self.over = behind, True

    def _head_step(self) -> bool:
        before, mark = self._seek(self._marks.before_name)
        if mark is None:
            return False
        self._at = "name"
        self._key = before
        return True

    def _name_step(self) -> bool:
        marks = self._marks
        line = "\n" if marks.after_name else ""
        ends = marks.after_name, line, marks.open, marks.end, marks.close
        before, mark, behind = split(self._text, ends)
        if mark is None:
            return False
        self._text = behind
        if not self._open(before):
            self._at = "lost"
            if mark == marks.close:
                self._close("")
            return False
        self._stray(self._key)
        self._key, self._at = "", "between"
        if mark == marks.after_name and marks.index_end:
            self._at = "number"
        elif mark not in (marks.after_name, "\n"):
            self._text = mark + self._text
        return True

    def _number_step(self) -> bool:
        before, mark = self._seek(self._marks.index_end)
        if mark is None:
            return False
        if not before.strip().isdigit():
            self._sink.fault()
        self._at = "between"
        return True

    def _between_step(self) -> bool:
        marks = self._marks
        before, mark = self._seek(marks.open, marks.end)
        if mark is None:
            return False
        self._stray(before)
        if mark == marks.open:
            self._at = "key"
        else:
            self._complete()
        return True

    def _key_step(self) -> bool:
        marks = self._marks
        line = "" if marks.value else "\n"
        before, mark = self._seek(marks.key_end, line, marks.value)
        if mark is None:
            return False
        self._key = before
        if mark == marks.key_end and marks.value:
            self._at = "gap"
            return True
        if mark == marks.value:
            self._sink.fault()
        return self._value_begins(first=mark != "\n" and marks.newline_before)

    def _gap_step(self) -> bool:
        marks = self._marks
        before, mark = self._seek(marks.value, marks.open)
        if mark is None:
            return False
        if mark == marks.open:
            self._sink.fault()
            self._key, self._at = "", "key"
            return True
        if not marks.gap.fullmatch(before.strip()):
            self._sink.fault()
        return self._value_begins(first=marks.newline_before)

    def _value_begins(self, *, first: bool) -> bool:
        if self._writer is not None:
            self._writer.key(self._signs.plain(self._key).strip())
        self._at, self._first = "value", first
        self._quoted = None if self._marks.cdata else False
        return True

    def _value_step(self) -> bool:
        if self._first and self._text:
            self._text, self._first = self._text.removeprefix("\n"), False
        if self._quoted is None and not self._cdata_step():
            return False
        end = self._marks.value_end.replace("{key}", self._key.strip())
        end = f"]]>{end}" if self._quoted else end
        marks = (f"\n{end}", end) if self._marks.newline_behind else (end,)
        text, mark, behind = split(self._text, marks)
        self._value(text)
        self._text = behind
        if mark is None:
            return False
        self._value_end()
        return True

    def _cdata_step(self) -> bool:
        """Find out whether the value is quoted; False if more text is needed."""
        if CDATA.startswith(self._text) and self._text != CDATA:
            return False
        self._quoted = self._text.startswith(CDATA)
        self._text = self._text.removeprefix(CDATA)
        return True

    # --- arguments ------------------------------------------------------------------------------

    def _open(self, text: str) -> bool:
        name = self._named(self._signs.plain(text))
        if name is not None:
            self._writer = ArgumentWriter(self._schemas.get(name), self._sink.arguments)
        return name is not None

    def _value(self, text: str) -> None:
        if self._writer is not None:
            self._writer.text(self._signs.plain(text))

    def _value_end(self) -> None:
        if self._writer is not None:
            self._writer.end()
        self._key, self._at = "", "between"

    def _complete(self) -> None:
        if self._writer is not None and not self.whole:
            self._writer.close()
            self.whole = True
