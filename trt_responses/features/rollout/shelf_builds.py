"""The prepared versions of an engine, as a running server loads them."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import orjson

from trt_responses.backends.settings import EngineSettings
from trt_responses.errors import InvalidRequest, UsageError
from trt_responses.features.rollout.gate import PROMPTS, accepted_prompts
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.memory import memory
from trt_responses.prepare.shelf import promotion, shelf, versions
from trt_responses.prepare.shelf.adapters import adapters_of
from trt_responses.prepare.shelf.card import read_card
from trt_responses.prepare.shelf.locks import mark_served
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.accept.accepted import Accepted
    from trt_responses.engine import Engine
    from trt_responses.features.rollout.builds import Act
    from trt_responses.prepare.shelf.card import Card
    from trt_responses.prepare.shelf.shelf import Entry, Selection
    from trt_responses.settings import Settings

    EngineOf = Callable[[Selection, Settings], Engine]

CARD_SHOWN = (
    "kind",
    "name",
    "version",
    "number",
    "weight_type",
    "limits",
    "libraries",
    "hardware",
    "chain",
)
"""The fields of an engine's card that an explanation shows: what may make two servers differ."""
GATE = "gate.jsonl"
"""The file with an operator's own prompts, beside the engines."""
ON_CPU = ("llamacpp", "onnx")
ELEMENT_BYTES = {"llamacpp": 2, "onnx": 4}
"""The bytes of a number in the cache of a context."""


def version_of(selection: Selection, settings: Settings) -> Version:
    """The version that a selection is, as clients name it."""
    card = selection.card
    return Version(settings.model_name or card.name, card.kind, card.number, card.version)


def loaded(selection: Selection, settings: Settings, engine_of: EngineOf) -> Loaded:
    """A version with its engine, which is not started. Its directory is kept from being removed
    while the engine lives."""
    card = {name: value for name, value in asdict(selection.card).items() if name in CARD_SHOWN}
    adapters = adapters_of(selection.directory)
    card["adapters"] = {adapter.name: adapter.sha256 for adapter in adapters}
    return Loaded(
        version_of(selection, settings),
        engine_of(selection, settings),
        partial(mark_served, selection.directory),
        card,
    )


class PreparedBuilds:
    """The prepared versions of one name on the shelf."""

    def __init__(self, name: str, settings: Settings, engine_of: EngineOf) -> None:
        self.name = name
        self._settings = settings
        self._engine_of = engine_of

    @property
    def _home(self) -> Path:
        return self._settings.engines_dir / self.name

    def find(self, wanted: str | None, served: Version) -> PreparedBuild:
        engines_dir = self._settings.engines_dir
        label = self.name if wanted is None else f"{self.name}@{wanted}"
        directory = shelf.find(engines_dir, label)
        if wanted is None and directory.name == served.digest:
            directory = self._home / self._usable()[0].version
        card = read_card(directory)
        selection = shelf.Selection(directory, card, "as requested")
        return PreparedBuild(selection, self._settings, self._engine_of)

    def versions(self) -> list[Version]:
        model = self._settings.model_name or self.name
        return [Version(model, e.kind, e.number, e.version) for e in self._usable() if e.number]

    def _usable(self) -> list[Entry]:
        """The versions that can be served, the newest first."""
        found = shelf.versions_of(self._settings.engines_dir, self.name)
        usable = [e for e in found if e.status in ("built", "verified")]
        return sorted(usable, key=lambda e: (e.number or 0, e.built_at), reverse=True)

    def promote(self, version: Version, reason: str) -> None:
        if versions.is_promoted(self._home, version.digest):
            return
        wanted = f"{self.name}@{version.digest}"
        promotion.promote(self._settings.engines_dir, wanted, reason)

    def note(self, act: Act, version: Version, reason: str) -> None:
        change = versions.Change(versions.now(), act, version.number, version.digest, reason)
        versions.note(self._home, change)


class PreparedBuild:
    """One prepared version."""

    def __init__(self, selection: Selection, settings: Settings, engine_of: EngineOf) -> None:
        self._selection = selection
        self._settings = settings
        self._engine_of = engine_of
        self.version = version_of(selection, settings)

    def fault(self, beside: Version) -> str | None:
        """The reason why it cannot be loaded beside that version. Every file is digested anew: what
        a disk or a copy has changed must not be served."""
        directory, card = self._selection.directory, self._selection.card
        machine = this_machine(EngineSettings.of(self._settings).trtllm_python)
        if found := shelf.difference(card, directory, machine, deep=True):
            return found
        if card.dialect != read_card(directory.with_name(beside.digest)).dialect:
            return f"it speaks another language than {beside.label}: restart the server with it"
        return None

    def no_room(self, served: Version, *, beside: bool) -> str | None:
        """The reason why memory does not hold it. Whether a GPU's holds one alone is known when it
        is started."""
        card = self._selection.card
        if card.kind not in ON_CPU or served.kind not in ON_CPU:
            return (
                f"memory: engines of kind {card.kind} take a GPU's memory, and two at once are not "
                "loaded"
                if beside
                else None
            )
        free = memory().free_bytes  # the weights of what is served are mapped, and count as free
        if (other := self._card_of(served)) is not None:
            mapped = other.limits.memory_bytes
            free += -mapped if beside else memory_bytes(other, self._settings) - mapped
        if (needed := memory_bytes(card, self._settings)) <= free:
            return None
        where = "beside" if beside else "in the place of"
        return (
            f"memory: {card.label} needs {needed / 2**30:.2f} GiB {where} {served.label}, and "
            f"{max(0, free) / 2**30:.2f} GiB are free"
        )

    def _card_of(self, version: Version) -> Card | None:
        """The card of another version of the same engine."""
        try:
            return read_card(self._selection.directory.with_name(version.digest))
        except PrepareError:
            return None

    def load(self) -> Loaded:
        return loaded(self._selection, self._settings, self._engine_of)


def memory_bytes(card: Card, settings: Settings) -> int:
    """The bytes that an engine on the CPU takes: its weights, and the cache of all its contexts."""
    local = EngineSettings.of(settings)
    a, chain = card.architecture, card.chain
    if a is None:  # of a file that says no more: as much again as the weights
        return 2 * card.limits.memory_bytes
    tokens = chain.length * chain.slots if chain else local.context_tokens * local.slots
    per_token = 2 * a.layers * a.kv_heads * a.head_dim * ELEMENT_BYTES.get(card.kind, 2)
    return card.limits.memory_bytes + tokens * per_token


def gate_prompts(engines_dir: Path) -> list[Accepted]:
    """The prompts of the gate: the operator's own, one body of `POST /v1/responses` a line, or
    those that come with the server."""
    path = engines_dir / GATE
    where = f"{PREFIX}ENGINES_DIR: {path}"
    try:
        lines = path.read_bytes().splitlines()
        bodies = [orjson.loads(line) for line in lines if line.strip()]
    except (FileNotFoundError, NotADirectoryError):
        return accepted_prompts(PROMPTS)
    except OSError as error:
        raise UsageError(f"{where} cannot be read ({error.strerror}).") from None
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{where} has a line that is not JSON: {error}.") from None
    if not bodies or not all(isinstance(body, dict) for body in bodies):
        raise UsageError(f"{where}: expected one JSON object a line, at least one.")
    try:
        return accepted_prompts(bodies)
    except InvalidRequest as error:
        raise UsageError(f"{where}: {error.message}") from None
