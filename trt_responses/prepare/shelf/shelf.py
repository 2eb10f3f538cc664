"""The directory of engines: lists, finds, selects, verifies and removes engines.
Works on names, versions and cards; converts nothing and starts nothing.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Literal, NamedTuple

from trt_responses.prepare.faults import PrepareError, WrongInput, shown
from trt_responses.prepare.machine import ServingMachine
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf import versions
from trt_responses.prepare.shelf.adapters import adapter_difference
from trt_responses.prepare.shelf.card import Card
from trt_responses.prepare.shelf.locks import changing, is_served, locked
from trt_responses.prepare.shelf.plans import chain_difference
from trt_responses.prepare.shelf.versions import NUMBER, VERSION

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
DEMO = "demo"
DEMO_ONNX = "demo-onnx"
SOURCE = "demo-source"
"""The directory of the demo's weights, inside the directory of engines; not an engine."""


class Entry(NamedTuple):
    """One version of one engine, as `engine list` shows it."""

    name: str
    version: str
    status: Literal["planned", "built", "verified", "unfinished"]
    size_bytes: int
    kind: str = ""
    weight_type: str = ""
    source: str = ""
    built_at: str = ""
    reason: str = ""
    """The reason why there is no valid card."""
    ignores: tuple[str, ...] = ()
    number: int | None = None
    promoted: bool = False
    """Whether a request for the engine by name gets this version."""

    @property
    def label(self) -> str:
        return f"{self.name}@{self.number or self.version}"


class Selection(NamedTuple):
    """The engine to serve."""

    directory: Path
    card: Card
    reason: str
    """Why it was chosen."""


class Verdict(NamedTuple):
    """An engine, and its first difference from its card if any."""

    entry: Entry
    difference: str | None


def checked_name(name: str) -> str:
    """The name, if it is valid for a directory. Raises a `PrepareError` otherwise."""
    if not NAME.fullmatch(name) or ".." in name:
        raise WrongInput(
            f"{shown(name)} is not an engine name; use lower-case letters, digits, dots, "
            "dashes and underscores."
        )
    if name == SOURCE:
        raise WrongInput(f"{name!r} is reserved for the demo's weights; use another engine name.")
    return name


def entries(engines_dir: Path) -> list[Entry]:
    """Every version of every engine, by name, the newest version first."""
    if not engines_dir.is_dir():
        return []
    names = sorted(p.name for p in engines_dir.iterdir() if p.is_dir() and NAME.fullmatch(p.name))
    return [entry for name in names for entry in versions_of(engines_dir, name)]


def versions_of(engines_dir: Path, name: str) -> list[Entry]:
    """Every version of one engine, the newest first."""
    found = [_entry(directory) for directory in _versions(engines_dir / name)]
    return sorted(found, key=lambda entry: (entry.built_at, entry.version), reverse=True)


def _versions(home: Path) -> list[Path]:
    if not home.is_dir():
        return []
    return [p for p in sorted(home.iterdir()) if VERSION.fullmatch(p.name) and p.is_dir()]


def _entry(directory: Path) -> Entry:
    name, version = directory.parent.name, directory.name
    size_bytes = sum(p.stat().st_size for p in directory.rglob("*") if p.is_file())
    try:
        card = cards.read_card(directory)
    except PrepareError as error:
        return Entry(name, version, "unfinished", size_bytes, reason=str(error))
    return Entry(
        name,
        version,
        card.status,
        size_bytes,
        card.kind,
        card.weight_type,
        card.source.name,
        card.built_at,
        ignores=card.ignores,
        number=card.number,
        promoted=versions.is_promoted(directory.parent, version),
    )


def find(engines_dir: Path, wanted: str) -> Path:
    """The directory of `name@3` or `name@<digest>`. For `name` alone: the promoted version, or the
    newest with a card if none was promoted."""
    name, version = split(wanted)
    found = versions_of(engines_dir, checked_name(name))
    if not found:
        known = ", ".join(sorted({e.name for e in entries(engines_dir)})) or "none"
        raise WrongInput(
            f"No engine named {name} in {engines_dir}; existing: {known}. "
            "`trt-responses serve MODEL` prepares one."
        )
    if version:
        chosen = [e for e in found if version in (e.version, str(e.number))]
    elif pointer := versions.promoted(engines_dir / name):
        chosen = [e for e in found if e.version == pointer.version]
        version = str(pointer.number or pointer.version)
    else:
        chosen = found
    if not chosen:
        known = ", ".join(entry.label for entry in found)
        raise WrongInput(
            f"Engine {name} has no version {version} in {engines_dir}; existing: {known}. "
            f"`trt-responses engine promote {name} N` chooses the one to serve."
        )
    return engines_dir / name / chosen[0].version


def split(wanted: str) -> tuple[str, str]:
    """The name, and the version after `@` or `/` if any: a number or a digest."""
    name, mark, version = wanted.partition("@" if "@" in wanted else "/")
    if mark and not (VERSION.fullmatch(version) or NUMBER.fullmatch(version)):
        raise WrongInput(
            f"{shown(wanted)} is not an engine name; use NAME, NAME@VERSION or NAME@DIGEST (12 hex "
            "digits)."
        )
    return name, version


def select(engines_dir: Path, wanted: str | None = None) -> Selection:
    """The engine to serve, and why: the requested one, the single one, or demo."""
    name, why = (wanted, "requested") if wanted else _default(engines_dir)
    directory = find(engines_dir, name)
    card = cards.read_card(directory)
    return Selection(directory, card, why)


def _default(engines_dir: Path) -> tuple[str, str]:
    names = sorted({entry.name for entry in entries(engines_dir)})
    match names:
        case []:
            raise WrongInput(
                f"No engine in {engines_dir}; run `make engine` for the demo, or "
                "`make engine CHECKPOINT=… NAME=…`."
            )
        case [only]:
            return only, "the only engine found"
    if DEMO in names:
        return DEMO, f"the default; other engines: {', '.join(n for n in names if n != DEMO)}"
    raise WrongInput(
        f"{engines_dir} has {len(names)} engines; choose one with ENGINE=: {', '.join(names)}."
    )


def difference(
    card: Card, directory: Path, machine: ServingMachine | None, *, deep: bool = False
) -> str | None:
    """The first difference of a card from its directory and machine, with compiled plans and
    adapters. Without a machine it compares the files alone."""
    here = cards.compare(card, directory, machine, deep=deep)
    compiled = chain_difference(card, directory) if machine is not None else None
    return here or compiled or adapter_difference(directory, deep=deep)


def serve_ready(selection: Selection, machine: ServingMachine) -> Selection:
    """The selection, if its card matches the machine and the files. Raises a `PrepareError`
    otherwise."""
    if found := difference(selection.card, selection.directory, machine):
        raise PrepareError(f"engine {selection.card.name}: {found}")
    return selection


def verify(
    engines_dir: Path, wanted: str | None, machine: ServingMachine, *, deep: bool = False
) -> list[Verdict]:
    """The first difference of each engine from its card, or of the `wanted` one alone."""
    chosen = [_entry(find(engines_dir, wanted))] if wanted else entries(engines_dir)
    return [Verdict(entry, _difference(engines_dir, entry, machine, deep)) for entry in chosen]


def _difference(engines_dir: Path, entry: Entry, machine: ServingMachine, deep: bool) -> str | None:
    if entry.status == "unfinished":
        return entry.reason
    directory = engines_dir / entry.name / entry.version
    return difference(cards.read_card(directory), directory, machine, deep=deep)


def remove(engines_dir: Path, wanted: str) -> list[Entry]:
    """Delete an engine, or one version of it, and return the deleted versions."""
    name, version = split(wanted)
    directory = find(engines_dir, wanted)
    home = directory.parent
    if home.is_symlink() or directory.is_symlink():
        raise PrepareError(f"engine {wanted!r} is a link, not a directory; remove the link itself.")
    with locked(home):
        if version:
            return [remove_version(directory)]
        for each in _versions(home):
            _check_free(each)
        gone = versions_of(engines_dir, name)
        try:
            _deleted([*_versions(home), home])
        except OSError as error:
            raise PrepareError(f"{home} cannot be removed ({error.strerror}).") from None
    return gone


def remove_version(directory: Path) -> Entry:
    """Delete one version under its engine's lock. Refuses the promoted one unless it is the
    last."""
    home, gone = directory.parent, _entry(directory)
    _check_free(directory)
    with changing(home):  # so that no process promotes it meanwhile
        if versions.is_promoted(home, directory.name):
            if len(_versions(home)) > 1:
                raise PrepareError(
                    f"engine {gone.label} is the promoted version; promote another first, or "
                    "remove the whole engine by its name."
                )
            (home / versions.POINTER).unlink()
        cache = directory.with_name(f"{directory.name}.cache")  # a runtime's, for this GPU
        try:
            _deleted([directory, *([cache] if cache.is_dir() else [])])
        except OSError as error:
            raise PrepareError(f"{directory} cannot be removed ({error.strerror}).") from None
        versions.note(home, versions.Change(versions.now(), "removed", gone.number, gone.version))
    return gone


def _check_free(directory: Path) -> None:
    if is_served(directory):
        label = _entry(directory).label
        raise PrepareError(f"engine {label} is loaded by a server; stop the server first.")


def _deleted(directories: list[Path]) -> None:
    for path in directories:
        (path / cards.CARD).unlink(missing_ok=True)  # first: so that a half-removed engine is none
        shutil.rmtree(path)
