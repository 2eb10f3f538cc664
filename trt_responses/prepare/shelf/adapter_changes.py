"""Adds adapters to a prepared engine and removes them, under the engine's lock.
Uses the shelf and the list of adapters; the caller passes in the import of each kind of engine.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from trt_responses.files import reason
from trt_responses.prepare.faults import PrepareError, WrongInput, refusal
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.adapters import FOLDER, Adapter, adapters_of, write_adapters
from trt_responses.prepare.shelf.card import Card, Kind, read_card
from trt_responses.prepare.shelf.locks import is_served, locked

Import = Callable[[Path, Path, Card, str], Adapter]
"""Checks a source against an engine (its directory and its card), and writes an adapter of that
name into the engine's folder of adapters."""


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
    """Add an adapter, from a file or a directory. `kinds`: the kinds of engine with adapters.

    The list is written last: an unfinished addition is no adapter, and the next one of that name
    replaces its files.
    """
    _check_name(name)
    if not source.exists():
        raise WrongInput(f"{source} does not exist; give a file or a directory.")
    directory = shelf.find(engines_dir, wanted)
    card = read_card(directory)
    if (imported := kinds.get(card.kind)) is None:
        raise WrongInput(
            f"engine {card.label} is of kind {card.kind}, which does not support adapters; kinds "
            f"that do: {', '.join(kinds)}."
        )
    with _changing(directory, name):
        earlier = adapters_of(directory)
        if any(adapter.name == name for adapter in earlier):
            raise WrongInput(f"{card.label} already has an adapter named {name}; remove it first.")
        (directory / FOLDER).mkdir(exist_ok=True)
        adapter = imported(source, directory, card, name)
        write_adapters(directory, [*earlier, adapter])
    return Change(adapter, card)


def remove(engines_dir: Path, wanted: str, name: str) -> Change:
    """Remove an adapter from the list, then its files. Refuses while a server has the engine
    loaded."""
    _check_name(name)
    directory = shelf.find(engines_dir, wanted)
    card = read_card(directory)
    with _changing(directory, name):
        adapters = adapters_of(directory)
        found = next((adapter for adapter in adapters if adapter.name == name), None)
        if found is None:
            known = ", ".join(adapter.name for adapter in adapters) or "none"
            raise WrongInput(f"{card.label} has no adapter named {name}; its adapters: {known}.")
        if is_served(directory):
            raise PrepareError(f"engine {card.label} is loaded by a server; stop the server first.")
        _check_name(found.place)
        write_adapters(directory, [adapter for adapter in adapters if adapter is not found])
        _delete(directory / FOLDER / found.place)
    return Change(found, card)


def _check_name(name: str) -> None:
    """Refuse a name that cannot be a file or a folder in the folder of adapters."""
    if not shelf.NAME.fullmatch(name) or ".." in name:
        expected = "lower-case letters, digits, dots, dashes, underscores"
        raise refusal("name of the adapter", repr(name), expected, WrongInput)


@contextmanager
def _changing(directory: Path, name: str) -> Iterator[None]:
    """Hold the engine's lock. Raises a `PrepareError` for a file that cannot be read or written."""
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
