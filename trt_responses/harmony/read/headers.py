"""Reads a message's header with openai-harmony, or with own rules if that fails or misleads.

If openai-harmony reads a header cleanly, its result stands. Any other header is mended: at the
front of each stretch between control ids, words with a place in a header (the author, a channel,
`to=` a recipient, a content type) fill that place. From the first other word on, the stretch is
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import openai_harmony as harmony

from trt_responses.language.fragments import Opened, RepairKind
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID
from trt_responses.tokens.pieces import Pieces

Author = Literal["given", "written", "missing"]
"""The source of a header's author: the prompt (`given`), the header (`written`), or none because
the header began without `<|start|>`."""

Ending = Literal["terminator", "start", "too_long", "stopped", "cut"]
"""The ends of a header other than `<|message|>`."""

MAX_LENGTH = 64
"""The maximum ids of a header; a longer one is text that lost its header."""

CACHED = 1024

CHANNELS = ("analysis", "commentary", "final")

Slot = Literal["author", "channel", "other_channel", "recipient", "content_type"]

# Any Unicode white space counts, since models write U+202F and U+00A0; names are ASCII.
_W = "A-Za-z0-9_"
_KNOWN = rf"\s*({'|'.join(CHANNELS)})(?:(?![{_W}-])|(?=to=))[?!:;,.]*"

AFTER: dict[int | None, tuple[tuple[Slot, re.Pattern[str]], ...]] = {
    CONTROL.channel: (
        ("channel", re.compile(_KNOWN)),
        ("other_channel", re.compile(rf"\s*([{_W}-]+)(?=\s|$)")),
    ),
    # A word in another script is not a content type, nor is its ASCII beginning.
    CONTROL.constrain: (
        (
            "content_type",
            re.compile(rf"\s*(?!to=)([{_W}.+/-]+)(?:(?=\s)|(?![{_W}.+/-]|[^\x00-\x7f]))"),
        ),
    ),
}
"""The kind of word that comes first after each control id."""

ANYWHERE: tuple[tuple[Slot, re.Pattern[str]], ...] = (
    ("recipient", re.compile(rf"\s*to=\s*([{_W}.:/-]*)")),
)
"""The kinds of words that are structure at the front of any stretch."""

BARE: tuple[tuple[Slot, re.Pattern[str]], ...] = (
    *ANYWHERE,
    ("channel", re.compile(_KNOWN)),
    ("content_type", re.compile(r"\s*(json|code|text|markdown|plain)(?=\s|$)")),
    (
        "recipient",
        re.compile(rf"\s*((?:functions|browser|container)\.[{_W}.-]+|python)(?=\s|$)"),
    ),
)
"""The kinds of words that are structure without a mark, once `<|message|>` shows that this is a
header."""

_AUTHOR = re.compile(r"(?:\s*assistant)+")
_AUTHOR_ALONE = re.compile(r"(?:\s*assistant)+(?=\s*$|\s+to=)")
_OTHER_AUTHOR = re.compile(rf"\s*(?:user|system|developer|tool|functions\.[{_W}.-]+)(?=\s|$)")
_SPACE = re.compile(r"\s")
_CLEAN_CHANNEL = re.compile(r"[\w-]+", re.ASCII)
_CLEAN_CONTENT_TYPE = re.compile(r"[\w.+/-]+", re.ASCII)
_BARE_RECIPIENT = re.compile(r"(?:functions|browser|container)\.[\w.-]+|python")


class Header(NamedTuple):
    """A header, and how it was mended."""

    opened: Opened
    mended: bool = False  # read by the rules here, not by openai-harmony
    foreign: bool = False  # in another author's name
    text: bytes = b""  # words without a place in a header


class Headers:
    """Reads headers, with a bounded cache: reading one takes 70 µs."""

    __slots__ = ("_encoding", "_known", "_pieces")

    def __init__(self, pieces: Pieces, encoding: harmony.HarmonyEncoding) -> None:
        self._pieces = pieces
        self._encoding = encoding
        self._known: dict[tuple[tuple[int, ...], Author, bool], Header] = {}

    def read(self, token_ids: Sequence[int], author: Author, *, closed: bool) -> Header:
        """The header in the ids between `<|start|>` and `<|message|>`. If not `closed`, something
        other than `<|message|>` ended it."""
        key = (tuple(token_ids), author, closed)
        header = self._known.get(key)
        if header is None:
            if len(self._known) >= CACHED:
                self._known.pop(next(iter(self._known)))
            header = self._known[key] = self._read(*key)
        return header

    def _read(self, token_ids: tuple[int, ...], author: Author, closed: bool) -> Header:
        if closed and author != "missing":
            clean = self._clean(token_ids, author)
            if clean is not None:
                return Header(clean)
        mender = _Mender(author, closed)
        for after, stretch, last in self._stretches(token_ids):
            mender.take(after, stretch.decode("utf-8", "surrogateescape"), last)
        return mender.header()

    def _clean(self, token_ids: tuple[int, ...], author: Author) -> Opened | None:
        """The header as openai-harmony reads it; None if that raises or reads structure as a
        name."""
        written = author == "written"
        parser = harmony.StreamableParser(
            self._encoding, role=None if written else harmony.Role.ASSISTANT
        )
        try:
            for token_id in (*[CONTROL.start][: int(written)], *token_ids, CONTROL.message):
                parser.process(token_id)
            if parser.current_role != harmony.Role.ASSISTANT:
                return None
        except harmony.HarmonyError:
            return None
        opened = Opened(
            parser.current_channel,
            parser.current_recipient,
            bare_content_type(parser.current_content_type),
        )
        text = b"".join(self._pieces.raw(i) or b"" for i in token_ids).decode("utf-8", "replace")
        return opened if _plausible(opened, text) else None

    def _stretches(self, token_ids: tuple[int, ...]) -> Iterator[tuple[int | None, bytes, bool]]:
        """The stretches of ordinary ids as bytes, each with the control id before it and whether it
        is the last."""
        after: int | None = None
        run: list[bytes] = []
        for token_id in token_ids:
            if token_id < FIRST_CONTROL_ID:
                run.append(self._pieces.raw(token_id) or b"")
            else:
                yield after, b"".join(run), False
                after, run = token_id, []
        yield after, b"".join(run), True


def fault_of(words: list[int], how: Ending, structured: bool) -> RepairKind:
    """The kind of fault in a header that ended without `<|message|>`."""
    if how in ("stopped", "cut") and (structured or not words):
        return "cut_header"
    if not words:
        return "stray_control"
    if structured:
        return "malformed_header"
    return "stray_text" if min(words) < FIRST_CONTROL_ID else "stray_control"


def is_message(header: Header, how: Ending, structured: bool) -> bool:
    """Whether a header without `<|message|>` makes a message, for its text or as a call without
    arguments."""
    if how == "too_long":
        return True
    if how == "cut" and structured:
        return False
    return bool(header.text.strip()) or (how == "terminator" and bool(header.opened.recipient))


def bare_content_type(content_type: str | None) -> str | None:
    """The content type without the `<|constrain|>` that openai-harmony leaves on it."""
    return (content_type or "").removeprefix("<|constrain|>") or None


def _plausible(opened: Opened, header: str) -> bool:
    channel, recipient, content_type = opened
    if channel is not None and _CLEAN_CHANNEL.fullmatch(channel) is None:
        return False
    if content_type is not None and _CLEAN_CONTENT_TYPE.fullmatch(content_type) is None:
        return False
    if recipient is None:
        return True
    if not recipient or "<|" in recipient or "=" in recipient or _SPACE.search(recipient):
        return False
    return f"to={recipient}" in header or _BARE_RECIPIENT.fullmatch(recipient) is not None


class _Mender:
    """Sorts the words of one header into its fields and into text."""

    def __init__(self, author: Author, closed: bool) -> None:
        self._author = author
        self._closed = closed
        self._first = True
        self._foreign = False
        self._places: dict[Slot, str] = {}
        self._text: list[str] = []

    def header(self) -> Header:
        places = self._places.get
        opened = Opened(
            places("channel") or places("other_channel"),
            places("recipient"),
            places("content_type"),
        )
        text = "".join(self._text).encode("utf-8", "surrogateescape")
        return Header(opened, True, self._foreign, text)

    def take(self, after: int | None, stretch: str, last: bool) -> None:
        rest = stretch
        if self._first:
            self._first = False
            rest = self._past_author(stretch, self._closed or not last)
        rest = self._place(rest, AFTER.get(after, ()))
        table = BARE if self._closed else ANYWHERE
        while (shorter := self._place(rest, table)) != rest:
            rest = shorter
        if rest.strip():
            self._text.append(rest if rest == stretch and after is None else rest.lstrip())

    def _past_author(self, stretch: str, marked: bool) -> str:
        """The stretch after the author's name. `marked`: a mark shows that this is a header."""
        if self._author != "written":
            if not marked:
                return stretch
            self._foreign = self._author == "missing" and bool(_OTHER_AUTHOR.match(stretch))
            author = _AUTHOR_ALONE.match(stretch)
            return stretch[author.end() :] if author else stretch
        if author := _AUTHOR.match(stretch):
            return stretch[author.end() :]
        word = stretch.split(maxsplit=1)[:1]
        if not word or any(pattern.match(stretch) for _, pattern in BARE[:2]):
            return stretch  # names no author
        if not self._closed and "assistant".startswith(stretch.strip()):
            return ""  # cut inside the word
        self._foreign = True
        return stretch

    def _place(self, rest: str, table: tuple[tuple[Slot, re.Pattern[str]], ...]) -> str:
        for slot, pattern in table:
            if match := pattern.match(rest):
                name = match[1]
                # Models repeat a recipient, and correct a channel or `to=assistant`.
                if slot != "recipient" or self._places.get(slot) in (None, "", "assistant"):
                    self._places[slot] = name
                return rest[match.end() :]
        return rest
