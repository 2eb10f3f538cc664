"""The graph on onnxruntime against the NumPy forward: every way in which a step can be cut.

Budget: 20 s on one core.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import TINY, Form, Recipe, write_checkpoint
from tests.support.graph_chain import Chain, planned, room_of
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.open import Checkpoint, open_checkpoint
from trt_responses.prepare.graph.experts import ALWAYS_EXACT
from trt_responses.prepare.graph.write import GraphSpec, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.graph_chain import Floats, Row

pytestmark = [
    pytest.mark.xdist_group("graph"),  # its models are made once per process
    pytest.mark.slow,  # 20 s, and 350 MB: a whole vocabulary, and the forward beside each graph
]

EXACT = 1e-4
"""Float32 throughout: measured 2e-5."""
SEEN = 1e-2
"""What a missing part changes at least: measured 0.028 and more."""
HALF_ROUNDED = 0.03
"""Float16 throughout: measured 8e-3."""
SMALL = replace(TINY, layers=2)
IDS = np.random.default_rng(1).integers(0, 199_000, 300).tolist()
"""More than two windows of 128."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Form], Checkpoint]:
    """A checkpoint in each form, written once."""
    folder = tmp_path_factory.mktemp("graph")

    def make(form: Form) -> Checkpoint:
        if not (folder / form).exists():
            write_checkpoint(folder / form, Recipe(form=form))
        return open_checkpoint(folder / form)

    return make


@pytest.fixture(scope="module")
def checkpoint(made: Callable[[Form], Checkpoint]) -> Checkpoint:
    return made("bf16")


@pytest.fixture(scope="module")
def loaded(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Two groups of two layers."""
    return Chain.of(checkpoint, tmp_path_factory.mktemp("chain"))


@pytest.fixture
def chain(loaded: Chain) -> Chain:
    loaded.reset(1)
    return loaded


@pytest.fixture(scope="module")
def truth(checkpoint: Checkpoint) -> Floats:
    """The forward's logits at each of the last 44 of the 300 positions."""
    return Reference(checkpoint).logits(IDS, last=44)


def away(found: Floats, expected: Floats) -> float:
    return float(np.abs(found - expected).max())


def row_of(ids: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([ids], np.int64)


@pytest.mark.parametrize("form", ["f32", "bf16", "mxfp4"])
def test_a_prefill_is_the_forward_of_every_form(
    form: Form, made: Callable[[Form], Checkpoint], tmp_path: Path
) -> None:
    checkpoint = made(form)
    found = Chain.of(checkpoint, tmp_path).step(row_of(IDS), [0])
    assert away(found.logits, Reference(checkpoint).logits(IDS)) < EXACT


def test_the_head_gives_the_largest_logits_their_ids_and_the_sum(chain: Chain) -> None:
    found = chain.step(row_of(IDS[:50]), [0])
    order = np.argsort(-found.logits, axis=-1, kind="stable")[:, :20]
    np.testing.assert_array_equal(found.ids, order)
    np.testing.assert_array_equal(found.values, np.take_along_axis(found.logits, order, -1))
    total = np.log(np.exp(found.logits.astype(np.float64)).sum(axis=-1))
    np.testing.assert_allclose(found.lse, total, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_cuts_of_a_prompt_change_nothing(chain: Chain, truth: Floats, seed: int) -> None:
    cuts = np.random.default_rng(seed).choice(np.arange(1, 300), 8, replace=False)
    bounds = [0, *sorted(cuts.tolist()), 300]
    for begin, end in pairwise(bounds):
        found = chain.step(row_of(IDS[begin:end]), [begin])
    assert away(found.logits, truth[-1:]) < EXACT


def test_tokens_one_by_one_are_the_forward_at_each(chain: Chain, truth: Floats) -> None:
    chain.step(row_of(IDS[:256]), [0])
    found = [chain.step(row_of(IDS[n : n + 1]), [n]).logits for n in range(256, 300)]
    assert away(np.concatenate(found), truth) < EXACT


def test_ragged_rows_of_one_step_are_each_their_own_forward(
    chain: Chain, checkpoint: Checkpoint
) -> None:
    """Four slots, each as full as it is, take a step of 64; `last` says where to read."""
    lens, last = [0, 7, 130, 236], [63, 4, 30, 63]
    chain.reset(4)
    for slot, count in enumerate(lens):
        if count:
            chain.prefill(slot, IDS[:count], 0)
    ids = np.array([IDS[count : count + 64] for count in lens], np.int64)
    found = chain.step(ids, lens, last)
    reference = Reference(checkpoint)
    for slot, (count, read) in enumerate(zip(lens, last, strict=True)):
        expected = reference.logits(IDS[: count + read + 1])
        assert away(found.logits[slot], expected[0]) < EXACT, slot


@pytest.mark.parametrize("group", [1, 3, 4])
def test_the_grouping_of_layers_changes_nothing(
    group: int, checkpoint: Checkpoint, truth: Floats, tmp_path: Path
) -> None:
    plan = planned(checkpoint, group=group)
    chain = Chain.of(checkpoint, tmp_path, plan)
    assert len(chain.sessions) == 2 + -(-4 // group)
    assert away(chain.step(row_of(IDS), [0]).logits, truth[-1:]) < EXACT


def test_what_lies_behind_the_end_of_a_slot_changes_nothing(chain: Chain) -> None:
    chain.step(row_of(IDS[:200]), [0])
    rng, clean = np.random.default_rng(0), dict(chain.caches)
    expected = chain.step(row_of(IDS[200:210]), [200])
    for name, cache in clean.items():
        cache[:, :, 201:] = 1000 * rng.standard_normal(cache[:, :, 201:].shape, np.float32)
        chain.caches[name] = cache
    found = chain.step(row_of(IDS[200:210]), [200])
    np.testing.assert_array_equal(found.logits, expected.logits)


def test_a_full_slot_may_idle_and_keeps_all_but_its_last_row(chain: Chain) -> None:
    chain.reset(2)
    length = chain.plan.length
    chain.prefill(0, IDS[:10], 0)
    rng = np.random.default_rng(0)
    for cache in chain.caches.values():
        cache[1, :, 1:] = rng.standard_normal(cache[1, :, 1:].shape, np.float32)
    before = {name: cache.copy() for name, cache in chain.caches.items()}
    found = chain.step(np.array([[IDS[10]], [5]], np.int64), [10, length])
    for name, cache in chain.caches.items():
        np.testing.assert_array_equal(cache[1, :, :length], before[name][1, :, :length])
        assert not cache[:, :, 0].any(), "the sink's row stays zero"
    chain.reset(1)
    alone = chain.step(row_of(IDS[:11]), [0])
    assert away(found.logits[0], alone.logits[0]) < EXACT


def test_a_slot_holds_its_whole_length(chain: Chain, checkpoint: Checkpoint) -> None:
    ids = (IDS + IDS)[: chain.plan.length]
    chain.step(row_of(ids[:300]), [0])
    found = chain.step(row_of(ids[300:]), [300])
    assert away(found.logits, Reference(checkpoint).logits(ids)) < EXACT


@dataclass
class Request:
    prompt: list[int]
    wanted: int
    written: list[int] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)
    at: int = 0
    """Tokens in its slot."""

    @property
    def whole(self) -> list[int]:
        return self.prompt + self.written

    def take(self, found: Row, row: int) -> None:
        self.written.append(int(found.ids[row, 0]))
        self.rows.append(found.logits[row].copy())


class Batch:
    """Four slots, and a schedule by chance: requests join while others decode, slots are reused."""

    def __init__(self, chain: Chain, waiting: list[Request], seed: int) -> None:
        self._chain = chain
        self._waiting = waiting
        self._rng = np.random.default_rng(seed)
        self._slots: list[Request | None] = [None] * 4
        self._stands = [0] * 4
        self.joined = 0
        """Requests that began while another decoded."""
        chain.reset(4)

    def run(self) -> None:
        while self._waiting or any(self._slots):
            self._admit()
            reading = [s for s, r in enumerate(self._slots) if r and r.at < len(r.prompt)]
            if reading and self._rng.random() < 0.5:
                self._prefill(int(self._rng.choice(reading)))
            else:
                self._decode()

    def _admit(self) -> None:
        for slot, request in enumerate(self._slots):
            if request is None and self._waiting and self._rng.random() < 0.5:
                self.joined += any(r is not None and r.written for r in self._slots)
                self._slots[slot] = self._waiting.pop(0)
                self._stands[slot] = 0

    def _prefill(self, slot: int) -> None:
        request = self._slots[slot]
        assert request
        count = int(self._rng.integers(1, ALWAYS_EXACT + 1))
        ids = request.prompt[request.at : request.at + count]
        found = self._chain.prefill(slot, ids, request.at)
        request.at += len(ids)
        self._stands[slot] = request.at
        if request.at == len(request.prompt):
            request.take(found, 0)

    def _decode(self) -> None:
        """One token for all; a slot that has none to give idles where it stands, with any token."""
        ids = self._rng.integers(0, 199_000, (4, 1))
        live = [s for s, r in enumerate(self._slots) if r and r.written]
        for slot in live:
            ids[slot] = self._at(slot).written[-1]
        found = self._chain.step(ids, self._stands)
        for slot in live:
            request = self._at(slot)
            request.at += 1
            self._stands[slot] = request.at
            if len(request.written) < request.wanted:
                request.take(found, slot)
            else:
                self._slots[slot] = None

    def _at(self, slot: int) -> Request:
        request = self._slots[slot]
        assert request
        return request


@pytest.mark.parametrize("seed", range(2))
def test_requests_that_join_while_others_decode_are_each_their_own_forward(
    chain: Chain, checkpoint: Checkpoint, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    requests = [
        Request(rng.integers(0, 199_000, size).tolist(), wanted)
        for size, wanted in ((37, 12), (150, 6), (5, 12), (200, 4), (90, 8), (1, 12))
    ]
    batch = Batch(chain, list(requests), seed)
    batch.run()
    assert batch.joined >= 2
    reference = Reference(checkpoint)
    for request in requests:
        assert len(request.rows) == request.wanted
        expected = reference.logits(request.whole[:-1], last=request.wanted)
        assert away(np.stack(request.rows), expected) < EXACT
        assert request.written == expected.argmax(axis=-1).tolist()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Chain]:
    """Sixteen experts, so that one can be asked for more than twice its even share."""
    folder = tmp_path_factory.mktemp("crowded")
    recipe = Recipe(replace(SMALL, experts=16))
    checkpoint = open_checkpoint(write_checkpoint(folder / "checkpoint", recipe))
    return checkpoint, Chain.of(checkpoint, folder)


def test_a_step_that_overflows_says_so_and_in_pieces_of_64_it_is_exact(
    crowded: tuple[Checkpoint, Chain],
) -> None:
    checkpoint, chain = crowded
    chain.reset(1)
    before, same = IDS[:30], [7] * 250
    expected = Reference(checkpoint).logits(before + same)
    chain.step(row_of(before), [0])
    wrong = chain.step(row_of(same), [30])
    assert chain.overflow > 0
    assert away(wrong.logits, expected) > SEEN
    for at in range(0, 250, ALWAYS_EXACT):
        found = chain.step(row_of(same[at : at + ALWAYS_EXACT]), [30 + at])
        assert chain.overflow <= 0
    assert away(found.logits, expected) < EXACT


def test_a_step_in_which_no_expert_is_full_is_exact_though_one_could_be(
    crowded: tuple[Checkpoint, Chain],
) -> None:
    checkpoint, chain = crowded
    chain.reset(1)
    ids = IDS[:90]
    assert room_of(len(ids), checkpoint.architecture) < len(ids)
    found = chain.step(row_of(ids), [0])
    assert chain.overflow <= 0
    assert away(found.logits, Reference(checkpoint).logits(ids)) < EXACT


@pytest.mark.parametrize("layer", [0, 1])
def test_the_fullest_layer_of_a_group_tells_by_how_much_it_overflows(
    crowded: tuple[Checkpoint, Chain], tmp_path: Path, layer: int
) -> None:
    """All 90 tokens want one expert of that layer, which takes 64."""
    checkpoint, _ = crowded
    name = f"model.layers.{layer}.mlp.router.bias"
    tensors = dict(checkpoint.tensors)
    tensors[name] = replace(tensors[name], read=lambda: 100 * np.eye(16, dtype=np.float32)[3])
    chain = Chain.of(replace(checkpoint, tensors=tensors), tmp_path)
    chain.step(row_of(IDS[:90]), [0])
    assert chain.overflow == 90 - ALWAYS_EXACT


def test_float16_is_the_forward_but_for_rounding(checkpoint: Checkpoint, tmp_path: Path) -> None:
    chain = Chain.of(checkpoint, tmp_path, planned(checkpoint, "float16"))
    chain.step(row_of(IDS[:200]), [0])
    found = chain.step(row_of(IDS[200:]), [200])
    expected = Reference(checkpoint).logits(IDS)
    assert EXACT < away(found.logits, expected) < HALF_ROUNDED
    assert found.logits.dtype == found.lse.dtype == np.float32


def altered(checkpoint: Checkpoint, part: str) -> Checkpoint:
    """The checkpoint with one part taken away or changed."""
    a = checkpoint.architecture
    changes = {
        "window shorter": replace(a, sliding_window=127),
        "window longer": replace(a, sliding_window=129),
        "yarn truncated": replace(a, truncate=True),
        "one expert": replace(a, experts_per_token=1),
        "epsilon": replace(a, rms_eps=0.1),
    }
    tensors = dict(checkpoint.tensors)
    if part == "no sinks":
        for name in [name for name in tensors if name.endswith("sinks")]:
            tensors[name] = replace(tensors[name], read=partial(np.full, (a.heads,), -30.0))
    return replace(checkpoint, architecture=changes.get(part, a), tensors=tensors)


@pytest.mark.parametrize(
    "part",
    ["window shorter", "window longer", "yarn truncated", "one expert", "epsilon", "no sinks"],
)
def test_the_comparison_would_see_each_part_missing(
    checkpoint: Checkpoint, truth: Floats, tmp_path: Path, part: str
) -> None:
    found = Chain.of(altered(checkpoint, part), tmp_path).step(row_of(IDS), [0])
    assert away(found.logits, truth[-1:]) > SEEN


def test_a_longer_slot_changes_nothing(
    checkpoint: Checkpoint, truth: Floats, tmp_path: Path
) -> None:
    a = checkpoint.architecture
    plan = GraphSpec(a, 2, 1000, 64, 5, "float32", grouped(4, 4))
    found = Chain.of(checkpoint, tmp_path, plan).step(row_of(IDS), [0])
    assert away(found.logits, truth[-1:]) < EXACT
