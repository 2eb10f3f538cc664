"""The executor on TensorRT-RTX: a chain of compiled plans, two contexts each, one stream.

Not run on a GPU yet; it is correct over a stand-in with the binding's names that computes on the
CPU. Buffers are allocated once; a slot is an address inside the caches, and a cache is input and
output at the same address. Plans and tensors only: no requests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.engines.tensorrt.executor import Rows
from trt_responses.engines.tensorrt.plan import DECODE, PREFILL, Plan
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

    from trt_responses.engines.tensorrt.cuda import Cuda
    from trt_responses.engines.tensorrt.executor import Floats, Ids

BINDING = "tensorrt_rtx_bindings"
NEEDS_EXTRA = (
    "This engine needs TensorRT-RTX, which is not installed: pip install 'trt-responses[tensorrt]'."
)


class RtxExecutor:
    """`plans`: the folder with `NAME.plan` for each of `names`, in the order of the chain.
    `caches`: the folder of the runtime's compiled code for this GPU."""

    def __init__(
        self,
        plans: Path,
        names: Sequence[str],
        *,
        slots: int,
        chunk: int,
        cuda: Cuda,
        caches: Path | None = None,
        binding: ModuleType | None = None,
    ) -> None:
        trt = binding or _binding()
        self.slots, self.chunk = slots, chunk
        self._cuda = cuda
        _check_room(plans, names, cuda)
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self._plans = [Plan(trt, runtime, plans, name, caches, cuda) for name in names]
        self._embed, self._groups, self._head = self._plans[0], self._plans[1:-1], self._plans[-1]
        self.length = next(iter(self._groups[0].caches().values())).shape[2] - 1
        self.top = self._head.tensors["values"].shape[-1]
        self.vocabulary = self._head.tensors["logits"].shape[-1]
        self._allocate()

    def decode(self, ids: Ids, lens: Ids, needed: range | None = None) -> Rows:
        """Compute a row for every slot: the profile has one size, so `needed` is ignored."""
        return self._computed(DECODE, 0, ids.reshape(-1, 1), lens)

    def prefill(self, slot: int, ids: Ids, at: int) -> Rows:
        return self._computed(PREFILL, slot, ids.reshape(1, -1), np.full(1, at, np.int64))

    def close(self) -> None:
        for plan in self._plans:
            plan.close()
        self._cuda.close()

    def _allocate(self) -> None:
        """Allocate every buffer at its largest size; row 0 of each cache must be zero."""
        cuda, slots = self._cuda, self.slots
        most = max(slots, self.chunk)
        hidden = self._embed.tensors["hidden"]
        self._ids, self._lens, self._last = (cuda.zeros(8 * n) for n in (most, slots, slots))
        self._hidden = [cuda.zeros(hidden.bytes_of(most)) for _ in range(2)]
        self._overflow = [cuda.zeros(8) for _ in self._groups]
        self._found = {
            name: cuda.zeros(tensor.bytes_of(slots))
            for name, tensor in self._head.tensors.items()
            if not tensor.is_input
        }
        self._caches = {
            name: cuda.zeros(tensor.bytes_of(slots))
            for group in self._groups
            for name, tensor in group.caches().items()
        }

    def _computed(self, profile: int, slot: int, ids: Ids, lens: Ids) -> Rows:
        """Run the chain on the stream; the host waits once, at the end."""
        cuda, (rows, steps) = self._cuda, ids.shape
        sent = [np.ascontiguousarray(a) for a in (ids, lens, np.full(rows, steps - 1, np.int64))]
        for address, array in zip((self._ids, self._lens, self._last), sent, strict=True):
            cuda.put(address, array)
        here, there = self._hidden
        self._embed.run(profile, (rows, steps), {"input_ids": self._ids, "hidden": here})
        for group, overflow in zip(self._groups, self._overflow, strict=True):
            given = {"hidden": here, "hidden_out": there, "lens": self._lens, "overflow": overflow}
            group.run(profile, (rows, steps), given | self._slot_of(group, slot))
            here, there = there, here
        found = self._found
        self._head.run(profile, (rows, steps), {"hidden": here, "last": self._last, **found})
        over = [np.zeros(1, np.int64) for _ in self._overflow]
        values, lse = np.zeros((rows, self.top), np.float32), np.zeros(rows, np.float32)
        likeliest = np.zeros((rows, self.top), np.int64)
        for array, address in zip(
            (*over, values, likeliest, lse),
            (*self._overflow, *(found[name] for name in ("values", "ids", "lse"))),
            strict=True,
        ):
            cuda.get(array, address)
        cuda.wait()
        return Rows(values, likeliest, lse, max(int(o[0]) for o in over), self._logits)

    def _slot_of(self, group: Plan, slot: int) -> dict[str, int]:
        """The addresses of a group's caches for one slot, as inputs and as outputs."""
        given = {}
        for name, tensor in group.caches().items():
            address = self._caches[name] + slot * tensor.bytes_of(1)
            given[name] = given[name.replace("past", "present", 1)] = address
        return given

    def _logits(self, row: int) -> Floats:
        whole = np.zeros(self.vocabulary, np.float32)
        self._cuda.get(whole, self._found["logits"] + row * whole.nbytes)
        self._cuda.wait()
        return whole


def _check_room(plans: Path, names: Sequence[str], cuda: Cuda) -> None:
    """Check that the weights fit. Working memory is checked when it is allocated."""
    needed = sum((plans / f"{name}.plan").stat().st_size for name in names)
    if (free := cuda.free_bytes()) < needed:
        raise StartupError(
            f"Not enough GPU memory: the plans need {needed / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} GiB are free. Free some, or serve a smaller model."
        )


def _binding() -> ModuleType:
    try:
        return importlib.import_module(BINDING)
    except ModuleNotFoundError:
        raise StartupError(NEEDS_EXTRA) from None
