"""Promotes a version of an engine, rolls back, and prunes old versions.
A promotion or a rollback never waits for a build. Uses the shelf and the journal; no server.
"""

from __future__ import annotations

from pathlib import Path

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.card import Card
from trt_responses.prepare.shelf.locks import changing, is_served, locked
from trt_responses.prepare.shelf.shelf import Entry
from trt_responses.prepare.shelf.versions import Act, Change, now


def promote(engines_dir: Path, wanted: str, reason: str = "") -> Card:
    """Promote this version: the next start or load serves it. Refuses damaged files."""
    directory = shelf.find(engines_dir, wanted)
    with changing(directory.parent):
        versions.adopt(directory.parent)
        return _pointed(directory, "promoted", reason)


def rollback(engines_dir: Path, name: str, reason: str = "") -> Card:
    """Promote the previously promoted version that still exists."""
    home = engines_dir / shelf.checked_name(name)
    shelf.find(engines_dir, name)
    with changing(home):
        versions.adopt(home)
        if (version := _goes_back_to(home)) is not None:
            return _pointed(home / version, "rolled back", reason)
    raise PrepareError(
        f"engine {name!r} has no earlier promoted version that still exists; choose one with "
        f"`trt-responses engine promote {name} N`."
    )


def _goes_back_to(home: Path) -> str | None:
    """The version that a rollback promotes: the last promoted one before this that still exists."""
    earlier = reversed(versions.before(home))
    return next((v for v in earlier if (home / v / cards.CARD).exists()), None)


def _pointed(directory: Path, act: Act, reason: str) -> Card:
    card = cards.read_card(directory)
    if found := shelf.difference(card, directory, None):
        raise PrepareError(f"engine {card.label}: {found}")
    home = directory.parent
    if not versions.is_promoted(home, card.version):
        versions.point(home, Change(now(), act, card.number, card.version, reason))
    return card


def prune(engines_dir: Path, name: str, keep: int, *, rehearse: bool = False) -> list[Entry]:
    """Remove old versions, and return them; with `rehearse`, only return them. Keeps the promoted
    version, the one of a rollback, the `keep` newest of the others, loaded ones, and unfinished
    builds."""
    home = engines_dir / shelf.checked_name(name)
    shelf.find(engines_dir, name)
    if rehearse:
        return _prunable(engines_dir, name, keep)
    with locked(home):
        versions.adopt(home)
        return [
            shelf.remove_version(home / entry.version)
            for entry in _prunable(engines_dir, name, keep)
        ]


def _prunable(engines_dir: Path, name: str, keep: int) -> list[Entry]:
    home = engines_dir / name
    others = [
        entry
        for entry in shelf.versions_of(engines_dir, name)
        if not entry.promoted
        and entry.version != _goes_back_to(home)
        and entry.status != "unfinished"
    ]
    return [entry for entry in others[keep:] if not is_served(home / entry.version)]
