"""The files of a graph on onnxruntime, step by step and with nothing clever: for tests only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trt_responses.prepare.graph.experts import ALWAYS_EXACT, EVEN_SHARES
from trt_responses.prepare.graph.weights import PROJECTIONS, dense, input_name
from trt_responses.prepare.graph.write import GraphSpec, grouped, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import onnxruntime
    from numpy.typing import NDArray

    from trt_responses.prepare.checkpoint.architecture import Architecture
    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.graph.onnx_file import Element
    from trt_responses.prepare.graph.write import Written

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]
    Array = NDArray[np.generic]


class Row(NamedTuple):
    """What the head says, a row for each slot."""

    values: Floats
    ids: Ids
    lse: Floats
    logits: Floats


def room_of(tokens: int, a: Architecture) -> int:
    """How many of a step's tokens one expert takes, as the graph works it out."""
    share = -(-EVEN_SHARES * a.experts_per_token * tokens // a.experts)
    return min(tokens, max(ALWAYS_EXACT, share))


def planned(checkpoint: Checkpoint, element: Element = "float32", group: int = 2) -> GraphSpec:
    a = checkpoint.architecture
    return GraphSpec(a, 4, 400, 300, 20, element, grouped(a.layers, group))


@dataclass
class Chain:
    """A written graph, loaded, with the caches of some slots."""

    plan: GraphSpec
    sessions: list[onnxruntime.InferenceSession]
    experts: dict[str, Array]
    overflow: int = 0
    """Of the last step."""
    caches: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, checkpoint: Checkpoint, folder: Path, plan: GraphSpec | None = None) -> Chain:
        plan = plan or planned(checkpoint)
        return cls.loaded(write(plan, checkpoint, folder), plan, checkpoint)

    @classmethod
    def loaded(cls, written: Written, plan: GraphSpec, checkpoint: Checkpoint) -> Chain:
        sessions = [session(written.folder / f"{link.name}.onnx") for link in written.links]
        experts = {
            input_name(n, projection): dense(checkpoint, n, projection, plan.element)
            for n in range(plan.architecture.layers)
            for projection in PROJECTIONS
        }
        chain = cls(plan, sessions, experts)
        chain.reset(1)
        return chain

    def reset(self, slots: int) -> None:
        """So many empty slots."""
        a = self.plan.architecture
        shape = (slots, a.kv_heads, self.plan.length + 1, a.head_dim)
        type = np.float16 if self.plan.element == "float16" else np.float32
        names = [f"past_{kv}_{n}" for kv in "kv" for n in range(a.layers)]
        self.caches = {name: np.zeros(shape, type) for name in names}

    def step(self, ids: Ids, lens: Sequence[int], last: Sequence[int] | None = None) -> Row:
        """S tokens more in every slot."""
        return self._run(self.caches, ids, lens, last)

    def prefill(self, slot: int, ids: Sequence[int], at: int) -> Row:
        """A chunk of one slot."""
        own = {name: cache[slot : slot + 1] for name, cache in self.caches.items()}
        found = self._run(own, np.array([ids], np.int64), [at], None)
        for name, cache in own.items():
            self.caches[name][slot : slot + 1] = cache
        return found

    def _run(
        self,
        caches: dict[str, Array],
        ids: Ids,
        lens: Sequence[int],
        last: Sequence[int] | None,
    ) -> Row:
        embed, *groups, head = self.sessions
        (hidden,) = embed.run(None, {"input_ids": ids})
        loads = []
        for group in groups:
            given = {**caches, **self.experts, "hidden": hidden, "lens": np.array(lens, np.int64)}
            wanted = {port.name for port in group.get_inputs()}
            names = [port.name for port in group.get_outputs()]
            found = group.run(names, {k: v for k, v in given.items() if k in wanted})
            outputs = dict(zip(names, found, strict=True))
            hidden = outputs.pop("hidden_out")
            loads.append(int(outputs.pop("overflow")[0]))
            caches.update({k.replace("present", "past"): v for k, v in outputs.items()})
        self.overflow = max(loads)
        read = [ids.shape[1] - 1] * len(ids) if last is None else last
        return Row(*head.run(Row._fields, {"hidden": hidden, "last": np.array(read, np.int64)}))


def session(path: Path) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it would keep the most that a step ever took
    options.log_severity_level = 3  # it warns of each cache that is not updated in place
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
