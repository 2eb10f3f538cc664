"""Adds an adapter to a prepared engine, and removes one, under the engine's lock.

Knows the shelf and the list of adapters; what a kind of engine makes of a file is handed in.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.files import reason
from trt_responses.prepare.faults import PrepareError, WrongInput, refusal
from trt_responses.prepare.shelf import shelf, versions
from trt_responses.prepare.shelf.adapters import FOLDER, Adapter, adapters_of, write_adapters
from trt_responses.prepare.shelf.card import read_card
from trt_responses.prepare.shelf.locks import is_held, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from trt_responses.prepare.files import EngineFile
    from trt_responses.prepare.shelf.card import Card, Kind


class Imported(NamedTuple):
    """An adapter's files, as an engine of some kind loads them."""

    rank: int
    modules: tuple[str, ...]
    files: tuple[EngineFile, ...]


if TYPE_CHECKING:
    Import = Callable[[Path, Path, Card, str], Imported]
    """Checks a source against an engine (its directory and its card), and writes the files of an
    adapter of that name into the engine's folder of adapters."""


class Change(NamedTuple):
    """An adapter that was added or removed, and its engine."""

    adapter: Adapter
    card: Card

    @property
    def label(self) -> str:
        return f"{self.adapter.name} of {self.card.label}"


def add(
    engines_dir: Path, wanted: str, name: str, source: Path, kinds: Mapping[Kind, Import]
) -> Change:
    """Add an adapter, from a file or a directory. `kinds` are the kinds of engine that take one.

    The list is written last: what was begun and not finished is no adapter, and is replaced by the
    next one of that name.
    """
    _check_name(name)
    if not source.exists():
        raise refusal(
            f"adapter {name}", f"nothing at {source}", "a file or a directory", WrongInput
        )
    directory = shelf.find(engines_dir, wanted)
    card = read_card(directory)
    if (imported := kinds.get(card.kind)) is None:
        raise WrongInput(
            f"engine {card.label}: it is of kind {card.kind}, which takes no adapters; kinds that "
            f"do are {', '.join(kinds)}."
        )
    with _changing(directory, name):
        earlier = adapters_of(directory)
        if any(adapter.name == name for adapter in earlier):
            raise WrongInput(
                f"adapter {name}: {card.label} has one of that name; remove that first."
            )
        (directory / FOLDER).mkdir(exist_ok=True)
        made = imported(source, directory, card, name)
        adapter = Adapter(
            name=name,
            source=source.name,
            rank=made.rank,
            modules=made.modules,
            files=made.files,
            added_at=versions.now(),
        )
        write_adapters(directory, [*earlier, adapter])
    return Change(adapter, card)


def remove(engines_dir: Path, wanted: str, name: str) -> Change:
    """Remove an adapter from the list, then its files; not while a server has the engine loaded."""
    _check_name(name)
    directory = shelf.find(engines_dir, wanted)
    card = read_card(directory)
    with _changing(directory, name):
        adapters = adapters_of(directory)
        found = next((adapter for adapter in adapters if adapter.name == name), None)
        if found is None:
            known = ", ".join(adapter.name for adapter in adapters) or "none"
            raise WrongInput(f"adapter {name}: {card.label} has no such one, but: {known}.")
        if is_held(directory):
            raise PrepareError(f"engine {card.label}: a server has it loaded; stop that first.")
        _check_name(found.place)
        write_adapters(directory, [adapter for adapter in adapters if adapter is not found])
        _delete(directory / FOLDER / found.place)
    return Change(found, card)


def _check_name(name: str) -> None:
    """Refuse what is no name of a file or folder in the folder of adapters."""
    if not shelf.NAME.fullmatch(name) or ".." in name:
        expected = "lower-case letters, digits, dots, dashes, underscores"
        raise refusal("name of the adapter", repr(name), expected, WrongInput)


@contextmanager
def _changing(directory: Path, name: str) -> Iterator[None]:
    """The engine's lock. A file that cannot be read or written is a `PrepareError` in it."""
    try:
        with locked(directory.parent):
            yield
    except OSError as error:
        place = error.filename or directory / FOLDER
        raise PrepareError(f"adapter {name}: {place}: {reason(error)}.") from None


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
