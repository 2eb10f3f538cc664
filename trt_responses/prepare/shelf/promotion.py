"""Which version of an engine is served: promote one, roll back, prune the rest.

Each takes the engine's lock, so that it never meets a build or a removal. Knows the shelf and the
journal; knows no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.versions import Change, now

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.shelf.card import Card
    from trt_responses.prepare.shelf.shelf import Entry
    from trt_responses.prepare.shelf.versions import Act


def promote(engines_dir: Path, wanted: str, reason: str = "") -> Card:
    """Serve this version from the next start or load on; refused when its files are not whole."""
    directory = shelf.find(engines_dir, wanted)
    with shelf.locked(directory.parent, wait=True):
        versions.adopt(directory.parent)
        return _pointed(directory, "promoted", reason)


def rollback(engines_dir: Path, name: str, reason: str = "") -> Card:
    """Serve the version that was promoted before this one and is still there."""
    home = engines_dir / shelf.checked_name(name)
    shelf.find(engines_dir, name)
    with shelf.locked(home, wait=True):
        versions.adopt(home)
        for version in reversed(versions.before(home)):
            if (home / version / cards.CARD).exists():
                return _pointed(home / version, "rolled back", reason)
    raise PrepareError(
        f"engine {name!r}: no version was promoted before this one, or none of them is there any "
        f"more; `trt-responses engine promote {name} N` chooses any."
    )


def _pointed(directory: Path, act: Act, reason: str) -> Card:
    card = cards.read_card(directory)
    if found := shelf.difference(card, directory, None):
        raise PrepareError(f"engine {card.label}: {found}")
    home = directory.parent
    pointer = versions.promoted(home)
    if pointer is None or pointer.version != card.version:
        versions.point(home, Change(now(), act, card.number, card.version, reason))
    return card


def prune(engines_dir: Path, name: str, keep: int, *, rehearse: bool = False) -> list[Entry]:
    """Remove finished versions, and return what is gone, or would be. Those that stay are the
    promoted one, the one a rollback goes to, the `keep` newest of the others, those that a server
    has loaded, and what a killed build has left."""
    home = engines_dir / shelf.checked_name(name)
    shelf.find(engines_dir, name)
    with shelf.locked(home, wait=True):
        versions.adopt(home)
        kept = set(versions.before(home)[-1:])
        others = [
            entry
            for entry in shelf.versions_of(engines_dir, name)
            if not entry.promoted and entry.version not in kept and entry.status != "unfinished"
        ]
        gone = [entry for entry in others[keep:] if not shelf.is_held(home / entry.version)]
        return gone if rehearse else [shelf.remove_version(home / e.version) for e in gone]
