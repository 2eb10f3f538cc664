"""Prompts beyond the slots: what a slot loses to another prompt is saved, and restored later.

A slot's state is saved as its request had read its prompt, since a later prompt may begin with that
and not with the answer. So the slot is cut to that length first. What was restored cannot be cut:
llama.cpp saves only the last window of a windowed layer, and would read what is missing as if it
were there.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field

from trt_responses.engine import CONTINUATION_PRIORITY
from trt_responses.engines.llamacpp.process import Child
from trt_responses.engines.llamacpp.request import Request
from trt_responses.engines.llamacpp.states import State, States, length, open_files
from trt_responses.engines.slots import Slot

logger = logging.getLogger(__name__)

MIN_IDS = 256
"""The least ids that are worth a state: a few steps of the engine beside reading them again."""
BESIDE_BYTES = 16 * 2**20
"""The largest state to save while other requests run: llama.cpp takes 1 ms per MiB, and runs no
step meanwhile."""


@dataclass(slots=True)
class Held:
    """What a slot of the child holds, beyond its ids."""

    owner: str | None = None
    lora: object = None
    read: int = 0
    """The length of the last prompt. If no id followed, it may not have been read."""
    cuts: tuple[int, ...] = ()
    """Where it may be worth saving: the end of a run's first prompt, and where another one parted
    from it."""
    floor: int = 0
    """The length of the state that was restored into it."""


@dataclass(slots=True)
class Change:
    """What happens to a slot before a request starts in it."""

    child: Child
    slot: Slot
    states: States
    saving: asyncio.Lock
    held: Held
    """The slot until now."""
    lora: object
    save: list[list[int]]
    restore: State | None
    then: Held
    """The slot from now on."""
    beside: bool
    """Whether other requests run."""


@dataclass(slots=True)
class PromptCache:
    """The saved prompts of one engine."""

    bound_bytes: int
    files: list[int] = field(default_factory=list)
    _states: States = field(init=False)
    _saving: asyncio.Lock = field(init=False)
    _held: dict[int, Held] = field(init=False)
    _bytes_per_id: float = 0.0

    def __post_init__(self) -> None:
        self.clear()

    def open(self) -> None:
        """Open the files, for all children. A system that has none keeps no prompts."""
        if self.bound_bytes:
            self.files += open_files()
        self.clear()

    @property
    def size_bytes(self) -> int:
        """The bytes of all states."""
        return self._states.size_bytes

    def clear(self) -> None:
        """Forget everything: the child is gone."""
        _empty(self.files)
        self._states = States(self.files, self.bound_bytes)
        self._saving = asyncio.Lock()
        self._held = {}

    def close(self) -> None:
        while self.files:
            os.close(self.files.pop())

    async def measure(self, child: Child) -> None:
        """Save the first slot of a new child, which holds a short prompt: a longer one takes no
        more bytes an id. Without that nothing is saved."""
        if not self.files:
            return
        try:
            reply = await child.post("/slots/0?action=save", {"filename": str(self.files[0])})
        except OSError:
            return  # the child is gone
        self._bytes_per_id = os.fstat(self.files[0]).st_size / (reply.get("n_saved") or 1)
        os.ftruncate(self.files[0], 0)
        if "n_saved" not in reply:
            logger.warning("cannot save prompts: keeping only those in slots: %s", reply)

    def claim(
        self, child: Child, slot: Slot, request: Request, *, beside: bool
    ) -> Coroutine[None, None, None] | None:
        """What is to be awaited before the request starts in this slot, or None."""
        if not self._bytes_per_id:
            return None
        held = self._held.get(slot.number, Held())
        if min(slot.known, len(slot.ids) - 1) < held.floor:  # it reads one id at least
            slot.reusable, slot.known = False, 0
        state, shared = self._states.find(slot.ids, slot.owner)
        if length(state) - slot.known < MIN_IDS:
            state = None
        then = self._held[slot.number] = _then(held, slot, request, shared)
        save = self._worth_saving(held, slot) if held.lora == request.lora else []
        if state is None and not save:
            return None
        if state is not None:
            self._states.use(state)
        states, saving, lora = self._states, self._saving, request.lora
        change = Change(child, slot, states, saving, held, lora, save, state, then, beside)
        return self._change(change)

    def _worth_saving(self, held: Held, slot: Slot) -> list[list[int]]:
        """The beginnings of the slot's old ids that are lost otherwise, longest first: each cut
        takes away the rest."""
        found: list[list[int]] = []
        covered = slot.known
        for cut in held.cuts:
            if held.floor < cut < held.read < len(slot.left):
                ids = slot.left[:cut]
                covered = max(
                    covered, length(self._states.find(slot.left[: cut + 1], held.owner)[0])
                )
                if cut - covered >= MIN_IDS:
                    found.insert(0, ids)
                    covered = cut
        return found

    async def _change(self, change: Change) -> None:
        try:
            for ids in change.save:
                async with change.saving:
                    await self._save(change, ids)
            if change.restore is not None:
                await self._restore(change, change.restore)
        except OSError:  # the child is gone
            change.slot.reusable = False
        finally:
            if change.restore is not None:
                change.restore.readers -= 1

    async def _save(self, change: Change, ids: list[int]) -> None:
        """Cut the slot to these ids and save it."""
        states, number = change.states, change.slot.number
        size_bytes = int(len(ids) * states.bytes_per_id(len(ids), self._bytes_per_id))
        if change.beside and size_bytes > BESIDE_BYTES:
            return
        evicted = states.room(size_bytes)
        if evicted is None:
            return
        await asyncio.to_thread(_empty, evicted)
        states.free(evicted)
        file = states.file()  # if the child is gone, its file is too: it may still be written to
        await _read(change.child, number, ids, change.held.lora)
        reply = await change.child.post(f"/slots/{number}?action=save", {"filename": str(file)})
        if reply.get("n_saved") == len(ids):
            states.keep(State(file, change.held.owner, ids, os.fstat(file).st_size))
        else:
            _empty((file,))
            states.free((file,))
        logger.debug("saved %d ids of slot %d: %s", len(ids), number, reply)

    async def _restore(self, change: Change, state: State) -> None:
        slot, child = change.slot, change.child
        slot.reusable, slot.known = False, 0
        if change.held.lora != change.lora:  # else llama.cpp would clear the slot for the adapter
            await _read(child, slot.number, state.ids[:1], change.lora)
        reply = await child.post(
            f"/slots/{slot.number}?action=restore", {"filename": str(state.file)}
        )
        if reply.get("n_restored") == len(state.ids):
            slot.reusable, slot.known = True, len(state.ids)
            change.then.floor = len(state.ids)
        logger.debug("restored %d ids to slot %d: %s", len(state.ids), slot.number, reply)


def _then(held: Held, slot: Slot, request: Request, shared: int) -> Held:
    """What the slot holds once it has read the request's prompt. `shared`: the prefix that the
    prompt shares with a state."""
    ids = len(slot.ids)
    goes_on = request.options.priority >= CONTINUATION_PRIORITY and held.cuts
    cuts = held.cuts if goes_on and slot.known >= held.cuts[-1] else (shared, ids - 1)
    floor = held.floor if slot.known else 0
    return Held(slot.owner, request.lora, ids, cuts, floor)


async def _read(child: Child, number: int, ids: list[int], lora: object) -> None:
    """Have a slot hold these ids and no more."""
    fields = {"prompt": ids, "n_predict": 0, "id_slot": number, "cache_prompt": True}
    if lora is not None:
        fields["lora"] = lora
    await child.post("/completion", fields)


def _empty(files: Iterable[int]) -> None:
    for file in files:
        os.ftruncate(file, 0)
