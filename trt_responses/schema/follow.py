"""Follows a text byte by byte as the model writes it, and checks it against a schema.

Works with the text's matcher and its judge: no tokens and no schema keywords.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable

from trt_responses.schema.judge import Judge, Unreadable, read
from trt_responses.schema.matching import Matcher, opens_much
from trt_responses.schema.refusals import Departure, OutOfSteps, Path, place_of

AT_ONCE_BYTES = 2_048
AT_ONCE_STEPS = 2_000
"""Limits for judging a text at once; a longer text, or one with more steps, is judged later."""
UNTIMED = 6
"""Pieces between two timed ones, while they are fast: reading a clock costs time too."""
SWIFT_S, SLOW_S = 0.0005, 0.002
"""Time per piece. Texts with ever more alternatives become slower piece by piece."""
_HEX = rb"[0-9A-Fa-f]"
_HIGH = rb"\\u[dD][89abAB]" + _HEX * 2
_LOW = rb"\\u[dD][c-fC-F]" + _HEX * 2
_OPEN = rb"\\(?:u" + _HEX + rb"{0,3})?\Z"
_ESCAPE = re.compile(
    b"(%b)(%b)|(?:%b)(?P<half>%b|\\Z)|(?P<open>%b)|\\\\u(%b{4})|\\\\[^u]|\x7f"
    % (_HIGH, _LOW, _HIGH, _OPEN, _OPEN, _HEX),
    re.DOTALL,
)
"""A complete escape, one that the text's end cuts, or an unescaped DEL."""
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{},]', re.DOTALL)
_DECODE = codecs.getincrementaldecoder("utf-8")


class Follower:
    """Follows one text from its first byte to its last."""

    __slots__ = (
        *("_as_json", "_broken", "_decoder", "_half", "_held", "_is_json", "_judge", "_matcher"),
        *("_slow", "_untimed", "_whole_pieces", "text"),
    )

    def __init__(
        self,
        matcher: Matcher,
        judge: Judge | None,
        as_json: Callable[[str], str] | None = None,
    ) -> None:
        """Without a judge the text is not JSON, and only its form is checked. With `as_json` the
        judge judges the JSON that this function returns."""
        self.text = bytearray()
        self._matcher = matcher
        self._judge = judge
        self._as_json = as_json
        self._is_json = judge is not None and as_json is None
        self._decoder = _DECODE("replace")
        self._half = False
        self._held = b""
        self._broken = False
        self._whole_pieces = True
        """Whether nothing of the last piece is held back and the matcher works."""
        self._untimed = 0
        self._slow = False

    def feed(self, piece: bytes) -> bool:
        """Append a piece. Returns False, and appends nothing, if the text may not continue with
        it."""
        self._untimed -= 1
        if self._untimed < 0:
            return self._timed(piece)
        return self._fed(piece)

    def _timed(self, piece: bytes) -> bool:
        begun = time.perf_counter()
        accepted = self._fed(piece)
        # A slow piece may mean a busy machine: the next one is timed too.
        self._slow = time.perf_counter() - begun > SWIFT_S
        self._untimed = 0 if self._slow else UNTIMED
        return accepted

    def _fed(self, piece: bytes) -> bool:
        if self._whole_pieces and not self._slow and self._matcher.takes_plain(piece):
            self.text += piece
            return True
        return self._feed(piece)

    def _feed(self, piece: bytes) -> bool:
        plain, held, before = piece, self._held, None
        if self._half or not piece.isascii():
            # The client receives invalid UTF-8 replaced: judge that text.
            before = self._decoder.getstate()
            plain = self._decoder.decode(piece).encode()
        if self._is_json and (held or b"\\" in plain or b"\x7f" in plain):
            plain, held = canonical_escapes(held + plain)
        if not self._broken and plain and not self._take(plain):
            if not self._matcher.broken:
                if before is not None:
                    self._decoder.setstate(before)
                return False
            self._broken = True  # the matcher reached its own limit: the text may be valid
        self.text += piece
        self._held = held
        if before is not None:
            self._half = bool(self._decoder.getstate()[0])
        self._whole_pieces = not (self._half or held or self._broken)
        return True

    def _take(self, plain: bytes) -> bool:
        """Pass bytes to the matcher; if that may be slow, one by one and with a time limit."""
        if not self._slow and not (self._is_json and opens_much(plain)):
            return self._matcher.take(plain)
        begun = time.thread_time()
        for n, byte in enumerate(plain):
            if not self._matcher.take(bytes((byte,))):
                self._matcher.give_back(n)
                return False
            if time.thread_time() - begun > SLOW_S:
                self._broken = True
                break
        return True

    @property
    def whole(self) -> bool:
        """Whether the text's form allows it to end here."""
        cut = self._held or self._half
        return not cut and (self._broken or self._matcher.accepts)

    @property
    def place(self) -> str | None:
        """The place in the JSON value at which the text ends; None if the text is not JSON."""
        return place_of(path_of(bytes(self.text))) if self._is_json else None

    def departure(self, *, at_once: bool = False) -> Departure | None:
        """How the whole text departs from its schema, or None. May take long; with `at_once`,
        raises
        `OutOfSteps` after a millisecond or two."""
        if self._judge is None:
            return None
        if at_once and len(self.text) > AT_ONCE_BYTES:
            raise OutOfSteps
        try:
            text = self.text.decode("utf-8", "replace")
            if self._as_json is not None:
                text = self._as_json(text)
            value = read(text)
        except Unreadable as fault:
            return Departure((), str(fault))
        if at_once:
            return self._judge.departure_within(AT_ONCE_STEPS, value)
        return self._judge.departure(value)


def path_of(text: bytes) -> Path:
    """The names and indices of the values that are open at the end of a JSON text."""
    path: list[str | int | None] = []  # None: a member without a name yet
    for mark in _MARK.findall(text):
        match mark:
            case b"{":
                path.append(None)
            case b"[":
                path.append(0)
            case b"}" | b"]":
                path = path[:-1]
            case b"," if path:
                path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
            case _ if path and path[-1] is None and mark.endswith(b'"', 1):
                path[-1] = mark[1:-1].decode("utf-8", "replace")
    return tuple(step for step in path if step is not None)


def canonical_escapes(text: bytes) -> tuple[bytes, bytes]:
    """The text with JSON escapes in the spelling of matchers, and its incomplete last escape."""
    rest = b""

    def spelled(escape: re.Match[bytes]) -> bytes:
        nonlocal rest
        if escape["half"] is not None or escape["open"] is not None:
            rest = escape[0]
            return b""
        return _spelled(escape)

    return _ESCAPE.sub(spelled, text), rest


def _spelled(escape: re.Match[bytes]) -> bytes:
    if escape[1]:
        return (
            bytes.fromhex(f"{escape[1][2:].decode()}{escape[2][2:].decode()}")
            .decode("utf-16-be")
            .encode()
        )
    if (digits := escape[5]) is None:
        return {b"\\/": b"/", b"\x7f": b"\\u007f"}.get(escape[0], escape[0])
    code = int(digits, 16)
    if code in _SHORT:
        return _SHORT[code]
    if code < 32 or code == 127 or 0xD800 <= code <= 0xDFFF:
        return escape[0].lower()
    return chr(code).encode()
