"""The onnxruntime executor: slots of their own, rewound and asked in part, beside the NumPy truth.

That the graph itself is right is shown in `test_graph.py`. Budget: 4 s on one core.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.graphs import Graph, planned, written
from trt_responses.errors import StartupError
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.graph.write import write

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.engines.tensorrt.executor import Rows
    from trt_responses.engines.tensorrt.onnx import OnnxExecutor

SLOTS, CHUNK = 3, 16


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("onnx")
    recipe = Recipe(replace(TINY, layers=2, hidden=32), "f32")
    checkpoint = write_checkpoint(folder / "checkpoint", recipe)
    return written(planned(checkpoint, folder, slots=SLOTS, length=64, chunk=CHUNK))


class Slot:
    """The ids of a slot, and what the reference says after them."""

    def __init__(self, number: int, executor: OnnxExecutor, reference: Reference) -> None:
        self.number = number
        self.ids: list[int] = []
        self._executor = executor
        self._reference = reference

    def read(self, ids: list[int]) -> None:
        rows = self._executor.prefill(self.number, np.asarray(ids, np.int64), len(self.ids))
        self.ids += ids
        self.agrees(rows, 0)

    def agrees(self, rows: Rows, place: int) -> None:
        truth = self._reference.logits(self.ids)[0]
        np.testing.assert_allclose(rows.logits(place), truth, atol=1e-4)
        best = np.sort(truth)[::-1][: rows.values.shape[1]]
        np.testing.assert_allclose(rows.values[place], best, atol=1e-4)
        total = np.log(np.exp(truth.astype(np.float64)).sum())
        assert rows.lse[place] == pytest.approx(total, abs=1e-4)


@pytest.mark.slow  # 90 MB: sessions of onnxruntime
def test_slots_are_apart_whoever_is_asked_and_can_be_rewound(graph: Graph) -> None:
    executor = graph.executor()
    reference = Reference(open_checkpoint(graph.checkpoint))
    noise = np.random.default_rng(1)

    def some(size: int) -> list[int]:
        return [int(n) for n in noise.integers(0, 199_000, size)]

    slots = [Slot(number, executor, reference) for number in range(SLOTS)]
    for slot, sizes in ((slots[1], (16, 5)), (slots[2], (7,)), (slots[0], (11,))):
        for size in sizes:
            slot.read(some(size))
    for asked in (None, range(1, 3), range(2, 3), range(2), None):
        ids = np.asarray(some(SLOTS), np.int64)
        lens = np.asarray([len(slot.ids) for slot in slots])
        rows = executor.decode(ids, lens, asked)
        for number in asked or range(SLOTS):
            slots[number].ids.append(int(ids[number]))
            slots[number].agrees(rows, number)
    slots[1].ids = slots[1].ids[:9]  # rewound: the rest of the cache is rubbish now
    slots[1].read(some(4))
    executor.close()


@pytest.mark.slow  # 110 MB: sessions of onnxruntime
def test_what_a_cpu_does_not_compute_is_refused(graph: Graph, tmp_path: Path) -> None:
    half = replace(graph, folder=tmp_path, plan=replace(graph.plan, element="bfloat16"))
    write(half.plan, open_checkpoint(half.checkpoint), tmp_path)
    with pytest.raises(StartupError, match="KIND=onnx"):
        half.executor()


def test_a_graph_that_is_not_there_or_broken_is_refused(graph: Graph, tmp_path: Path) -> None:
    missing = replace(graph, folder=tmp_path)
    with pytest.raises(StartupError, match=r"embed\.onnx cannot be loaded"):
        missing.executor()
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "embed.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(StartupError, match=r"embed\.onnx cannot be loaded"):
        missing.executor()


@pytest.mark.parametrize("package", ["onnxruntime", "onnxruntime.capi"])
def test_without_the_extra_the_remedy_is_said(
    graph: Graph, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StartupError, match=r"pip install 'trt-responses\[tensorrt\]'"):
        graph.executor()
