"""What the graph's files are: their ports, their bytes, their types, and what is refused.

Budget: 6 s on one core.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import ml_dtypes
import numpy as np
import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.graph_chain import planned, room_of, session
from tests.support.graphs import link_names
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.mxfp4 import dequantised
from trt_responses.prepare.checkpoint.open import Checkpoint, open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.graph import onnx_file
from trt_responses.prepare.graph.builder import Builder
from trt_responses.prepare.graph.experts import capacity, dispatched
from trt_responses.prepare.graph.onnx_file import INT64, Element, Shape
from trt_responses.prepare.graph.weights import PROJECTIONS, dense, input_name, packed
from trt_responses.prepare.graph.write import GraphSpec, grouped, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trt_responses.prepare.checkpoint.architecture import Architecture
    from trt_responses.prepare.checkpoint.safetensors import Array

pytestmark = pytest.mark.xdist_group("graph files")  # its model is made once per process

SMALL = replace(TINY, layers=2, hidden=32)
ELEMENTS: tuple[Element, ...] = get_args(Element)
BF16_ROUNDED = 0.3
"""Measured 0.08."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("files")
    return open_checkpoint(write_checkpoint(folder, Recipe(SMALL, "mxfp4")))


def test_the_ports_are_those_of_the_contract(checkpoint: Checkpoint, tmp_path: Path) -> None:
    written = write(planned(checkpoint, "float16", group=1), checkpoint, tmp_path)
    assert [link.name for link in written.links] == [
        "embed",
        "layers_00_00",
        "layers_01_01",
        "head",
    ]
    hidden = f"float16 B,S,{SMALL.hidden}"
    embed, _, second, head = written.links
    assert [*embed.inputs.items()] == [("input_ids", "int64 B,S")]
    assert [*embed.outputs.items()] == [("hidden", hidden)]
    assert (embed.first, embed.count) == (head.first, head.count) == (0, 0)
    assert (second.first, second.count) == (1, 1)
    assert [*second.inputs.items()] == [
        ("hidden", hidden),
        ("lens", "int64 B"),
        ("past_k_1", "float16 B,2,401,64"),
        ("past_v_1", "float16 B,2,401,64"),
        ("layers.1.gate_up", f"float16 4,128,{SMALL.hidden}"),
        ("layers.1.down", f"float16 4,{SMALL.hidden},64"),
    ]
    assert [*second.outputs.items()] == [
        ("present_k_1", "float16 B,2,401,64"),
        ("present_v_1", "float16 B,2,401,64"),
        ("hidden_out", hidden),
        ("overflow", "int64 1"),
    ]
    assert [*head.inputs.items()] == [("hidden", hidden), ("last", "int64 B")]
    assert [*head.outputs.items()] == [
        ("values", "float32 B,20"),
        ("ids", "int64 B,20"),
        ("lse", "float32 B"),
        ("logits", "float32 B,201088"),
    ]


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_type_gives_valid_files_that_say_their_ports(
    checkpoint: Checkpoint, tmp_path: Path, element: Element
) -> None:
    import onnx

    written = write(planned(checkpoint, element), checkpoint, tmp_path)
    for link in written.links:
        path = written.folder / f"{link.name}.onnx"
        onnx.checker.check_model(path, full_check=True)
        found = onnx.load(path, load_external_data=False).graph
        assert [port.name for port in found.input] == [*link.inputs]
        assert [port.name for port in found.output] == [*link.outputs]


def test_each_element_type_is_the_same_graph(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """But for the casts, so that what is proved of one holds for the others."""
    import onnx

    kinds = []
    for element in ELEMENTS:
        folder = tmp_path / element
        write(planned(checkpoint, element), checkpoint, folder)
        model = onnx.load(folder / "graph" / "layers_00_01.onnx", load_external_data=False)
        kinds.append([node.op_type for node in model.graph.node if node.op_type != "Cast"])
    assert kinds[0] == kinds[1] == kinds[2]


@pytest.mark.slow  # 250 MB: ONNX's evaluator keeps all that it computes
def test_bfloat16_is_the_forward_but_for_rounding(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """onnxruntime has no bfloat16 on a CPU; ONNX's own evaluator has."""
    written = write(planned(checkpoint, "bfloat16"), checkpoint, tmp_path)
    embed, layers, head = (written.folder / f"{link.name}.onnx" for link in written.links)
    ids = np.random.default_rng(1).integers(0, 199_000, (1, 20))
    (hidden,) = evaluated(embed, {"input_ids": ids}, "hidden")
    given = {"hidden": hidden, "lens": np.zeros(1, np.int64)}
    for n in range(2):
        cache = np.zeros((1, 2, 401, 64), ml_dtypes.bfloat16)
        given |= {f"past_{kv}_{n}": cache for kv in "kv"}
        for name in PROJECTIONS:
            weights = dense(checkpoint, n, name, "bfloat16")
            given[input_name(n, name)] = weights.view(ml_dtypes.bfloat16)
    hidden, overflow = evaluated(layers, given, "hidden_out", "overflow")
    assert hidden.dtype == ml_dtypes.bfloat16
    assert overflow[0] <= 0
    (found,) = evaluated(head, {"hidden": hidden, "last": np.array([19])}, "logits")
    expected = Reference(checkpoint).logits(ids[0].tolist())
    assert np.abs(np.subtract(found, expected, dtype=np.float32)).max() < BF16_ROUNDED


def evaluated(path: Path, given: dict[str, Array], *names: str) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    return [np.asarray(value) for value in ReferenceEvaluator(str(path)).run(list(names), given)]


def test_the_same_plan_writes_the_same_bytes_and_tells_their_digests(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    plan, told = planned(checkpoint), list[int]()
    first = write(plan, checkpoint, tmp_path / "a", told.append)
    second = write(plan, checkpoint, tmp_path / "b")
    assert first.digests == second.digests
    assert first.digests.keys() == {path.name for path in first.folder.iterdir()}
    for name, digest in first.digests.items():
        assert hashlib.sha256((first.folder / name).read_bytes()).hexdigest() == digest
    sizes = {path.suffix: path.stat().st_size for path in first.folder.iterdir()}
    assert sizes[".onnx"] < 200_000, "weights lie beside the graph, not in it"
    assert sum(told) > 0.9 * sum(path.stat().st_size for path in first.folder.glob("*.data"))


def test_mapped_weights_begin_on_a_page(checkpoint: Checkpoint, tmp_path: Path) -> None:
    import onnx

    written = write(planned(checkpoint), checkpoint, tmp_path)
    for link in written.links:
        model = onnx.load(written.folder / f"{link.name}.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            assert int(entries.get("offset", 0)) % 4096 == 0
            assert entries.get("location", f"{link.name}.data") == f"{link.name}.data"


def test_the_gates_rows_come_first_and_mxfp4_is_only_moved(checkpoint: Checkpoint) -> None:
    name = "model.layers.1.mlp.experts.gate_up_proj"
    blocks, scales = (checkpoint.tensors[f"{name}_{part}"].read() for part in ("blocks", "scales"))
    whole = dequantised(blocks, scales)
    expected = np.concatenate([whole[:, 0::2], whole[:, 1::2]], axis=1)
    np.testing.assert_array_equal(dense(checkpoint, 1, "gate_up", "float32"), expected)
    np.testing.assert_array_equal(dequantised(*packed(checkpoint, 1, "gate_up")), expected)
    moved = packed(checkpoint, 1, "gate_up").blocks
    assert sorted(moved.tobytes()) == sorted(blocks.tobytes())


@pytest.mark.parametrize("experts", [4, 16])
@pytest.mark.parametrize("tokens", [1, 5, 64, 65, 200])
def test_dispatch_gives_each_expert_its_first_tokens_in_their_order(
    tokens: int, experts: int, tmp_path: Path
) -> None:
    a = replace(TINY, experts=experts)
    room = room_of(tokens, a)
    with Builder(tmp_path, "dispatch", "float32", lambda size_bytes: None) as g:
        chosen = g.input("chosen", INT64, ("T", 2))
        found = dispatched(g, a, chosen, chosen.size(0), g.whole(room))
        shapes: dict[str, Shape] = {"taken": ("E", "C"), "slot": ("T", 2), "load": (1,)}
        for value, (name, shape) in zip(found, shapes.items(), strict=True):
            g.output(value, name, shape)
        g.save()
    rng = np.random.default_rng(tokens)
    likely = np.exp(-np.arange(experts) / 2)
    ids = np.stack(
        [rng.choice(experts, 2, replace=False, p=likely / likely.sum()) for _ in range(tokens)]
    )
    taken, slot, load = session(tmp_path / "dispatch.onnx").run(None, {"chosen": ids})
    for expert in range(experts):
        wanting = np.flatnonzero((ids == expert).any(axis=1))
        assert taken[expert][: len(wanting)].tolist() == wanting[:room].tolist()
        for place, token in enumerate(wanting[:room]):
            assert slot[token][ids[token] == expert].tolist() == [place]
    assert load.tolist() == [max((ids == expert).sum() for expert in range(experts))]
    assert slot.max() < room


def rooms(a: Architecture, tokens: Sequence[int], folder: Path) -> list[int]:
    """What a written graph works out as an expert's capacity, for each number of tokens."""
    with Builder(folder, "room", "float32", lambda size_bytes: None) as g:
        given = g.input("tokens", INT64, (1,))
        g.output(capacity(given, a), "room", (1,))
        g.save()
    graph = session(folder / "room.onnx")
    return [int(graph.run(None, {"tokens": np.array([n])})[0][0]) for n in tokens]


def test_capacity_is_twice_an_even_share_and_64_never_overflow(tmp_path: Path) -> None:
    counts = (1, 64, 65, 256, 512, 1024, 2048)
    for experts, expected in ((32, [1, 64, 64, 64, 128, 256, 512]), (128, [1, *[64] * 5, 128])):
        a = replace(TINY, experts=experts, experts_per_token=4)
        assert rooms(a, counts, tmp_path) == expected
        assert [room_of(n, a) for n in counts] == expected
    assert rooms(TINY, [300], tmp_path) == [300], "half of the experts take a token: none is full"


def test_layers_are_grouped_in_turn() -> None:
    assert grouped(24, 8) == (range(8), range(8, 16), range(16, 24))
    assert grouped(5, 2) == (range(2), range(2, 4), range(4, 5))
    plan = GraphSpec(replace(TINY, layers=5), 1, 10, 10, 1, "float32", grouped(5, 2))
    assert link_names(plan)[1:-1] == ("layers_00_01", "layers_02_03", "layers_04_04")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"slots": 65}, "--slots: found 65, expected 1 to 64."),
        ({"slots": 0}, "--slots: found 0, expected 1 to 64."),
        ({"length": 200_000}, "--length: found 200000, expected 1 to 131072."),
        ({"chunk": 401}, "--chunk: found 401, expected 1 to 400."),
        ({"top": 201_089}, "--top: found 201089, expected 1 to 201088."),
        ({"groups": (range(1),)}, "graph, groups: found [0], expected layers 0 to 1 in turn."),
        (
            {"groups": (range(1, 2), range(1))},
            "graph, groups: found [1, 0], expected layers 0 to 1 in turn.",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    checkpoint: Checkpoint, change: dict[str, object], sentence: str
) -> None:
    with pytest.raises(PrepareError) as refused:
        replace(planned(checkpoint), **change)  # type: ignore[arg-type]  # of each field's kind
    assert str(refused.value) == sentence


def test_a_plan_for_another_checkpoint_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    plan = replace(planned(checkpoint), architecture=replace(SMALL, sliding_window=64))
    with pytest.raises(PrepareError, match="another than the checkpoint's"):
        write(plan, checkpoint, tmp_path)


def test_a_weight_that_float16_cannot_hold_is_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    name = "model.layers.0.self_attn.sinks"
    tensors = dict(checkpoint.tensors)
    tensors[name] = replace(tensors[name], read=lambda: np.full(4, 7e4, np.float32))
    large = replace(checkpoint, tensors=tensors)
    with pytest.raises(PrepareError) as refused:
        write(planned(checkpoint, "float16"), large, tmp_path)
    assert str(refused.value) == "graph, a weight: found 70000, expected at most 65504 for float16."
    write(planned(checkpoint, "bfloat16"), large, tmp_path)


def test_the_formats_numbers_are_the_packages_own() -> None:
    import onnx

    types = onnx.TensorProto
    assert onnx_file.FLOAT32 == types.FLOAT
    assert onnx_file.FLOAT16 == types.FLOAT16
    assert onnx_file.BFLOAT16 == types.BFLOAT16
    assert onnx_file.INT64 == types.INT64
    assert onnx_file.BOOL == types.BOOL


def test_without_the_extra_plans_can_be_made_and_writing_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['onnx'] = None\n"
        "from trt_responses.prepare.graph import write\n"
        "from trt_responses.prepare.faults import PrepareError\n"
        "from trt_responses.prepare.graph.onnx_file import model\n"
        "try: model('empty', [], [], [], [])\n"
        "except PrepareError as error: print(error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300
    )
    assert found.stdout == onnx_file.NEEDS_EXTRA + "\n"
