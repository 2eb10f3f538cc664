"""What a prompt of Harmony's ids says: the messages before, and what is written of the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID
from trt_responses.tokens.vocabulary import Vocabulary

ENDS = (CONTROL.end, CONTROL.return_, CONTROL.call)
_ROLE = re.compile(r"[^\s<]+")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_NOTE = re.compile(r"^<([\w-]+)>.*?</\1>", re.DOTALL | re.MULTILINE)
_CHANNEL = re.compile(r"<\|channel\|>\s*([\w-]+)")


class Header(NamedTuple):
    """The header of a message."""

    role: str
    channel: str | None
    recipient: str | None

    @classmethod
    def of(cls, text: str) -> Header:
        role, channel = _ROLE.search(text), _CHANNEL.search(text)
        recipient = _RECIPIENT.search(text)
        return cls(
            role[0] if role else "",
            channel[1] if channel else None,
            recipient[1] if recipient else None,
        )


class Message(NamedTuple):
    """A whole message."""

    header: Header
    text: str


class Scene(NamedTuple):
    """What an engine's request is about."""

    users: tuple[str, ...]
    """The user's messages."""
    results: tuple[Message, ...]
    """The results of tools behind the last of them; the role is the tool's name."""
    before: int
    """Messages of others than the model: more than before means another turn."""
    written: tuple[Message, ...]
    """The model's whole messages behind the last of others."""
    head: tuple[int, ...]
    """Ids of the header that is open."""
    body: tuple[int, ...] | None
    """Ids of the body that is open; None while the header is."""

    @property
    def question(self) -> str:
        """The last user message, without the notes that agents put into it as `<tag>…</tag>`."""
        whole = self.users[-1] if self.users else ""
        return _NOTE.sub("", whole).strip() or whole

    @property
    def calls(self) -> list[Message]:
        return [each for each in self.written if each.header.recipient]


def scene_of(ids: Sequence[int], vocabulary: Vocabulary) -> Scene:
    """What a prompt says."""
    users: list[str] = []
    results: list[Message] = []
    written: list[Message] = []
    before = 0
    starts = [at for at, token_id in enumerate(ids) if token_id == CONTROL.start]
    for at, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        piece = list(ids[at + 1 : end])
        head, body = _parted(piece)
        header = Header.of(vocabulary.text(head))
        if end == len(ids) and header.role == "assistant" and piece[-1] not in ENDS:
            open_head = tuple(head[1:])  # behind the role, which is one id
            return Scene(
                tuple(users),
                tuple(results),
                before,
                tuple(written),
                open_head,
                None if body is None else tuple(body),
            )
        plain = [token_id for token_id in body or () if token_id < FIRST_CONTROL_ID]
        message = Message(header, vocabulary.text(plain))
        if header.role == "assistant":
            written.append(message)
            continue
        before += 1
        written = []
        if header.role == "user":
            users.append(message.text)
            results = []
        elif header.role not in ("system", "developer"):
            results.append(message)
    return Scene(tuple(users), tuple(results), before, tuple(written), (), None)


def _parted(piece: list[int]) -> tuple[list[int], list[int] | None]:
    """A message's header and body; None for a body that has not begun."""
    if CONTROL.message not in piece:
        return piece, None
    at = piece.index(CONTROL.message)
    return piece[:at], piece[at + 1 :]
