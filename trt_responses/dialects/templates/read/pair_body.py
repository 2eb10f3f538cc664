"""Reads calls whose arguments are keys and values in text, and converts them by the tool's schema.

`xml`: `<parameter=KEY>` VALUE `</parameter>` inside a `<function=NAME>`; a newline on either side
of a value belongs to the marks. `kv`: `<arg_key>` KEY `</arg_key>` `<arg_value>` VALUE
`</arg_value>` after a name. No ids and no fragments here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trt_responses.dialects.templates.read.arguments import ArgumentWriter
from trt_responses.dialects.templates.read.body import Body, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.dialects.templates.families import Calls
    from trt_responses.dialects.templates.read.body import CallSink

_TAG = r"<{0}=([^>\n]*)[>\n]"


class _Pairs(Body):
    """Keys and values in text, converted to JSON by the tool's schema."""

    def __init__(self, form: Calls, schemas: Mapping[str, object], sink: CallSink) -> None:
        super().__init__(form, schemas, sink)
        self._writer: ArgumentWriter | None = None
        self._in_value = False

    def _open(self, text: str) -> bool:
        name = self._named(text)
        if name is not None:
            self._writer = ArgumentWriter(self._schemas.get(name), self._sink.arguments)
        return name is not None

    def _value(self, text: str) -> None:
        if self._writer is not None:
            self._writer.text(text)

    def _key(self, key: str) -> None:
        if self._writer is not None:
            self._writer.key(key.strip())
            self._in_value = True

    def _value_end(self) -> None:
        if self._writer is not None and self._in_value:
            self._writer.end()
        self._in_value = False

    def _value_cut(self) -> None:
        if self._writer is not None and self._in_value:
            self._writer.cut()

    def _complete(self) -> None:
        if self._writer is not None and not self.whole:
            self._writer.close()
            self.whole = True


class XmlBody(_Pairs):
    """A call as `<function=NAME>` with a `<parameter=KEY>` for each argument."""

    FUNCTION = re.compile(_TAG.format("function"))
    PARAMETER = re.compile(_TAG.format("parameter"))
    END_VALUE, END = "</parameter>", "</function>"

    def __init__(self, form: Calls, schemas: Mapping[str, object], sink: CallSink) -> None:
        super().__init__(form, schemas, sink)
        self._first = False
        """Whether a value begins here: then a newline belongs to the mark."""

    def _step(self) -> bool:
        if self._writer is None:
            return self._head_step()
        return self._value_step() if self._in_value else self._between_step()

    def finish(self, *, closed: bool) -> None:
        if self._writer is None:
            return
        if self._in_value:
            text = self._text.removeprefix("\n") if self._first else self._text
            self._value(text.removesuffix("\n") if closed else text)
            self._text = ""
            if closed:
                self._value_end()
                self._sink.fault()
            else:
                self._value_cut()
        else:
            self._stray(self._text)
        if closed:
            if not self.whole:
                self._sink.fault()
            self._complete()

    def _head_step(self) -> bool:
        tag = self.FUNCTION.search(self._text)
        if tag is None:
            return False
        before, self._text = self._text[: tag.start()], self._text[tag.end() :]
        if not self._open(tag[1]):
            self._text = f"{before}{tag[0]}{self._text}"
            return False
        self._stray(before)
        return True

    def _between_step(self) -> bool:
        marks = ("<parameter=", self.END, self._form.close)
        before, mark, behind = split(self._text, marks)
        if mark is None:
            return False
        if mark == "<parameter=":
            tag = self.PARAMETER.match(self._text, len(before))
            if tag is None:
                return False  # the key is incomplete
            self._text = self._text[tag.end() :]
            self._stray(before)
            self._key(tag[1])
            self._first = not tag[0].endswith("\n")
            return True
        if mark == self.END:
            self._text = behind
            self._stray(before)
            self._complete()
            return True
        self._text = before
        self.finish(closed=True)
        self._text, self.over = behind, True
        return False

    def _value_step(self) -> bool:
        if self._first and self._text:
            self._text, self._first = self._text.removeprefix("\n"), False
        text, mark, behind = split(self._text, (f"\n{self.END_VALUE}", self.END_VALUE))
        self._value(text)
        self._text = behind
        if mark is None:
            return False
        self._value_end()
        return True


class KeyValueBody(_Pairs):
    """A call as a name, followed by keys and values between marks."""

    KEY, KEY_END = "<arg_key>", "</arg_key>"
    VALUE, VALUE_END = "<arg_value>", "</arg_value>"

    def __init__(self, form: Calls, schemas: Mapping[str, object], sink: CallSink) -> None:
        super().__init__(form, schemas, sink)
        self._at: str = ""
        """The last mark, of the four."""
        self._kept = self._key_text = ""
        self._as_text: tuple[str, ...] = (self.KEY, self.KEY_END, self.VALUE, self.VALUE_END)
        """The marks to search for in text: all, until one came as one token."""

    def mark(self, mark: str) -> bool:
        if mark not in (self.KEY, self.KEY_END, self.VALUE, self.VALUE_END):
            return False
        if not self._takes(mark):
            return False
        self._as_text = ()
        self._flush()
        self._marked(mark)
        return True

    def closes(self) -> bool:
        return True

    def finish(self, *, closed: bool) -> None:
        self._flush()
        if self._at == "":
            self._open(self._kept)
        elif self._in_value:
            if closed:
                self._value_end()
                self._sink.fault()
            else:
                self._value_cut()
        else:
            self._stray(self._kept + self._key_text)
        if closed:
            self._complete()

    def _takes(self, mark: str) -> bool:
        """Whether a mark has a meaning here. Inside a value, only its end has."""
        if self._in_value:
            return mark == self.VALUE_END
        return self._at != self.KEY or mark == self.KEY_END

    def _step(self) -> bool:
        marks = [mark for mark in self._as_text if self._takes(mark)]
        if not self._in_value:
            marks.append(self._form.close)
        before, mark, behind = split(self._text, marks)
        self._add_text(before)
        self._text = behind
        if mark is None:
            return False
        if mark == self._form.close:
            self._text = ""
            self.finish(closed=True)
            self._text, self.over = behind, True
            return False
        self._marked(mark)
        return True

    def _flush(self) -> None:
        """Treat held-back characters as text."""
        self._add_text(self._text)
        self._text = ""

    def _add_text(self, text: str) -> None:
        if self._in_value:
            self._value(text)
        else:
            self._kept += text

    def _marked(self, mark: str) -> None:
        kept, self._kept = self._kept, ""
        if self._at == "":
            self._open(kept)
        elif mark != self.KEY_END:
            self._stray(kept)
        key, self._key_text = self._key_text, ""
        if mark == self.KEY_END and self._at == self.KEY:
            self._key_text = kept
        elif mark == self.VALUE:
            self._key(key)
        elif mark == self.VALUE_END and self._in_value:
            self._value_end()
        elif mark != self.KEY or key.strip():
            self._sink.fault()
        self._at = mark
