"""The versions of one engine: their numbers, the promoted one, and a journal of all changes.
    journal.jsonl   one change per line, append-only, each line synced
    promoted.json   the last promotion: the pointer, replaced in one write
The pointer is written before its line in the journal, and contains that line. So the state stays
consistent if a process is killed between the two: the next reader adds the missing line. A number
is in the journal before it is in a card, so that none is used twice. Every writer holds
`changes.lock`.
"""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import bytes_of, decoded, sync_folder
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf.card import Card
from trt_responses.prepare.shelf.locks import changing

JOURNAL = "journal.jsonl"
POINTER = "promoted.json"
VERSION = re.compile(r"[0-9a-f]{12}")
"""The form of a version: the digest of its inputs, which is the name of its directory."""
NUMBER = re.compile(r"[1-9][0-9]{0,8}")

Act = Literal[
    "built", "promoted", "rolled back", "removed", "loaded", "refused", "canary", "unloaded"
]


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the journal."""

    at: str
    act: Act
    number: int | None
    version: str
    reason: str = ""
    before: str | None = None
    """The version that was promoted before this change."""


def now() -> str:
    """The time now, in the journal's format."""
    return datetime.now(UTC).isoformat()


def promoted(home: Path) -> Change | None:
    """The change that promoted the served version; None if there was none."""
    if (text := bytes_of(home / POINTER)) is None:
        return None
    try:
        return decoded(Change, text, POINTER)
    except PrepareError:
        raise PrepareError(
            f"{home / POINTER} is damaged; `trt-responses engine promote {home.name} N` "
            "rewrites it."
        ) from None


def is_promoted(home: Path, version: str) -> bool:
    """Whether this version is promoted. A damaged pointer promotes none."""
    pointer = _readable_pointer(home)
    return pointer is not None and pointer.version == version


def _readable_pointer(home: Path) -> Change | None:
    """The pointer; None if it is missing or damaged."""
    with suppress(PrepareError):
        return promoted(home)
    return None


def journal(home: Path) -> list[Change]:
    """All changes, oldest first, with one that a killed process did not write. Skips a line that
    is incomplete."""
    text = bytes_of(home / JOURNAL) or b""
    found = []
    for line in text.split(b"\n"):
        with suppress(PrepareError):
            found.append(decoded(Change, line, JOURNAL))
    pointer = _readable_pointer(home)
    if pointer is not None and pointer not in found:
        found.append(pointer)
        found.sort(key=lambda change: change.at)
    return found


def note(home: Path, change: Change) -> None:
    """Append a change to the journal, after the pointer's if that is missing."""
    with changing(home):
        pointer = _readable_pointer(home)
        try:
            if pointer is not None and pointer != change and _line(pointer) not in _lines(home):
                _append(home, pointer)
            _append(home, change)
        except OSError as error:
            raise PrepareError(f"{home / JOURNAL} cannot be written ({error.strerror}).") from None


def point(home: Path, change: Change) -> None:
    """Change the promoted version in one step, then note it in the journal. The written pointer
    completes the change: if the line cannot be written now, the next writer adds it."""
    with changing(home):
        earlier = _readable_pointer(home)
        change = replace(change, before=earlier.version if earlier else None)
        try:
            if earlier is not None and _line(earlier) not in _lines(home):
                _append(home, earlier)
        except OSError as error:
            raise PrepareError(f"{home / JOURNAL} cannot be written ({error.strerror}).") from None
        try:
            write_whole(home / POINTER, _line(change).decode())
        except OSError as error:
            raise PrepareError(f"{home / POINTER} cannot be written ({error.strerror}).") from None
        with suppress(OSError):
            sync_folder(home)
        with suppress(PrepareError):
            note(home, change)


def new_number(home: Path, version: str, reason: str = "") -> int:
    """Assign the next number to a version. Numbers are never reused."""
    with changing(home):
        number = 1 + max(_numbers(home), default=0)
        note(home, Change(now(), "built", number, version, reason))
    return number


def adopt(home: Path) -> None:
    """Number the versions of a release without numbers, oldest first, and promote the newest if
    none is promoted: that release served the newest."""
    with changing(home):
        found = sorted(_cards(home), key=lambda pair: pair[1].built_at)
        known = {change.version: change.number for change in journal(home) if change.act == "built"}
        for place, (directory, card) in enumerate(found):
            if card.number is None:
                number = known.get(card.version) or new_number(home, card.version, "built before")
                found[place] = (directory, replace(card, number=number))
                cards.write_card(directory, found[place][1])
        promote_first(home, [card for _, card in found])


def promote_first(home: Path, found: list[Card]) -> None:
    """Promote the last usable one of these, if none was ever promoted."""
    usable = [card for card in found if card.status != "planned"]
    with changing(home):
        if usable and not (home / POINTER).exists():
            card = usable[-1]
            reason = "the first version"
            point(home, Change(now(), "promoted", card.number, card.version, reason))


def before(home: Path) -> list[str]:
    """The versions for a rollback, the nearest last: promoted before, and not rolled back from."""
    stack: list[str] = []
    for change in journal(home):
        if change.act == "promoted":
            stack = [version for version in stack if version != change.version]
            stack.append(change.version)
        elif change.act == "rolled back":
            while stack and stack[-1] != change.version:
                stack.pop()
    return stack[:-1]


def _cards(home: Path) -> list[tuple[Path, Card]]:
    found = []
    for path in home.glob(f"*/{cards.CARD}"):
        if VERSION.fullmatch(path.parent.name):
            with suppress(PrepareError):  # `engine list` shows it as unfinished
                found.append((path.parent, cards.read_card(path.parent)))
    return found


def _numbers(home: Path) -> list[int]:
    of_cards = [card.number for _, card in _cards(home)]
    return [n for n in (*of_cards, *(change.number for change in journal(home))) if n is not None]


def _line(change: Change) -> bytes:
    return json.dumps(asdict(change)).encode() + b"\n"


def _lines(home: Path) -> list[bytes]:
    try:
        return (home / JOURNAL).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _append(home: Path, change: Change) -> None:
    lines = _lines(home)
    torn = b"\n" if lines and not lines[-1].endswith(b"\n") else b""
    data = torn + _line(change)
    with (home / JOURNAL).open("ab", buffering=0) as file:
        begin = file.tell()
        if file.write(data) != len(data):  # a nearly full disk writes a part
            file.truncate(begin)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
    if not lines:
        sync_folder(home)
