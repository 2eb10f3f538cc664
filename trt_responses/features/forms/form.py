"""Forms (`multipart/form-data`), read as they arrive: no more of one is held than a piece.

Knows bytes only: no request and no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.utils import collapse_rfc2231_value

from trt_responses.errors import InvalidRequest

MOST_PARTS = 8
"""Parts of a form that are read; later ones are ignored."""
HEAD_BYTES = 1024
"""Of a part's head, and of a form's content type: their parser takes the square of a length."""
BOUNDARY_CHARACTERS = 70
"""As many as RFC 2046 allows."""
FORM = "multipart/form-data"
NO_FORM = InvalidRequest(
    f"The content type must be {FORM} with a boundary.",
    status=415,
    code="unsupported_content_type",
)


@dataclass(slots=True)
class Part:
    """A part of a form."""

    name: str
    filename: str
    whole: bool = False
    """Whether its end has arrived."""


class Form:
    """The parts of a form that comes in pieces of any length."""

    def __init__(self, content_type: str) -> None:
        """Raises an `InvalidRequest` for a type that is no form's."""
        self._mark = b"\r\n--" + _boundary(content_type)
        self._left = b"\r\n"
        """What may begin a boundary, or a head that is not whole."""
        self._part: Part | None = None
        self._in_head = False
        self._parts = 0
        self._over = False

    def feed(self, data: bytes) -> Iterator[tuple[Part, bytes]]:
        """Pieces of parts; the last one of each part is marked by its `whole`. Raises an
        `InvalidRequest` for what is no form."""
        if self._over:
            return
        self._left += data
        while not self._over:
            found = self._head() if self._in_head else self._content()
            if found is None:
                return
            part, piece = found
            if part is not None:
                yield part, piece

    def _content(self) -> tuple[Part | None, bytes] | None:
        """The content that is certain, of a part or of what stands before the first."""
        part, at = self._part, self._left.find(self._mark)
        if at < 0:
            at = max(0, len(self._left) - len(self._mark) + 1)
            piece, self._left = self._left[:at], self._left[at:]
            return (part, piece) if part is not None and piece else None
        piece, self._left = self._left[:at], self._left[at + len(self._mark) :]
        if part is not None:
            part.whole = True
        self._part, self._in_head = None, True
        return part, piece

    def _head(self) -> tuple[Part | None, bytes] | None:
        """Read the head behind a boundary, or the end of the form."""
        if self._left.startswith(b"--") or self._parts == MOST_PARTS:
            self._over = True
            return None
        if len(self._left) >= 2 and self._left[:2] != b"\r\n":
            raise malformed("a boundary stands within a line")
        end = self._left.find(b"\r\n\r\n")
        if (end if end >= 0 else len(self._left)) > HEAD_BYTES:
            raise malformed(f"a part of it has a head of more than {HEAD_BYTES} bytes")
        if end < 0:
            return None
        self._part = _part(_disposition(self._left[:end]))
        self._left = self._left[end + 4 :]
        self._in_head, self._parts = False, self._parts + 1
        return self._part, b""


def malformed(why: str) -> InvalidRequest:
    """The error of a form that cannot be read."""
    return InvalidRequest(f"The form is malformed: {why}.", param="file", code="invalid_value")


def missing(name: str) -> InvalidRequest:
    """The error of a form without one of its fields."""
    return InvalidRequest(
        f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
    )


def _boundary(content_type: str) -> bytes:
    if len(content_type) > HEAD_BYTES:
        raise NO_FORM
    head = Message()
    head["content-type"] = content_type
    try:
        boundary = head.get_param("boundary")
    except TypeError:  # pieces of two kinds, which `email` cannot sort
        raise NO_FORM from None
    if head.get_content_type() != FORM or not isinstance(boundary, str):
        raise NO_FORM
    if len(boundary) > BOUNDARY_CHARACTERS:
        raise NO_FORM  # no client writes it, and to look for it takes long
    return boundary.encode()


def _part(about: Message) -> Part:
    try:
        name = about.get_param("name", "", "content-disposition")
        part = Part(collapse_rfc2231_value(name), about.get_filename(""))
        f"{part.name}{part.filename}".encode()
    except (ValueError, TypeError):  # a charset of its own, or as above
        raise malformed("a name in it is not text in the charset that it gives") from None
    return part


def _disposition(about: bytes) -> Message:
    """The header of a part that says its name."""
    header = Message()
    for line in about.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            header["content-disposition"] = value.decode("utf-8", "replace").strip()
            break
    return header
