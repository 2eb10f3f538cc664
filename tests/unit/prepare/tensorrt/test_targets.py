"""What is compiled for which GPU and how: choices, weights as constants, sizes, refusals, progress.

Nothing here compiles; each refusal comes before the first byte is written.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import GPT_OSS_20B, TINY, Recipe, write_checkpoint
from tests.support.tensorrt import named_binding, real_names, with_the_real_binding
from trt_responses.cli.engines.graph import options_of
from trt_responses.cli.main import main
from trt_responses.prepare.checkpoint.mxfp4 import VALUES, codes
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.checkpoint.safetensors import Tensor, widen
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.graph.weights import dense
from trt_responses.prepare.memory import memory
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.shelf.plans import release_in
from trt_responses.prepare.tensorrt import network
from trt_responses.prepare.tensorrt.binding import binding
from trt_responses.prepare.tensorrt.build import Compiler, prepare
from trt_responses.prepare.tensorrt.options import TensorRtOptions
from trt_responses.prepare.tensorrt.size import group_size, peak_bytes, plan_bytes, time_left
from trt_responses.prepare.tensorrt.targets import (
    TARGETS,
    Family,
    default_targets,
    families,
)
from trt_responses.prepare.tensorrt.weights import constant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.shelf.chain import Format
    from trt_responses.prepare.tensorrt.weights import Constant
    from trt_responses.tokens.vocabulary import Vocabulary

NAMES = Path(__file__).parents[3] / "data" / "tensorrt_enterprise_names.txt"
SMALL = replace(TINY, layers=1, intermediate=96)
FOUR_BITS = Family(("sm120",), "mxfp4", "bfloat16")
EIGHT_BITS = Family(("sm86",), "int8", "bfloat16")

USED: Mapping[str, tuple[str, ...]] = {
    "Builder": (
        "create_network",
        "create_builder_config",
        "create_optimization_profile",
        "build_serialized_network",
    ),
    "ComputeCapability": (),
    "DataType": ("FLOAT", "HALF", "BF16", "INT8", "INT64", "FP4", "E8M0"),
    "IAttention": ("decomposable",),
    "IAttentionInputLayer": ("attention",),
    "IBuilderConfig": (
        "add_optimization_profile",
        "set_compute_capability",
        "num_compute_capabilities",
    ),
    "IHostMemory": ("nbytes",),
    "ILayer": ("get_input", "get_output", "num_inputs", "set_input", "type"),
    "ILogger": ("log", "ERROR", "INTERNAL_ERROR"),
    "INetworkDefinition": (
        "add_constant",
        "add_dequantize",
        "get_input",
        "get_layer",
        "get_output",
        "num_inputs",
        "num_layers",
        "num_outputs",
        "remove_tensor",
    ),
    "IOptimizationProfile": ("set_shape",),
    "ITensor": ("dtype", "name", "shape"),
    "LayerType": ("ATTENTION_INPUT",),
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),
    "OnnxParser": ("parse_from_file", "num_errors", "get_error"),
    "Weights": (),
}
"""Every name that the builder asks of the binding; a test compares them with both packages."""
RTX_ONLY = ("ComputeCapability", "num_compute_capabilities", "set_compute_capability")
"""Without these there are no targets: the enterprise builder compiles for the GPU at hand."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("source") / "packed"
    return open_checkpoint(write_checkpoint(path, Recipe(SMALL, "mxfp4")))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("source") / "plain"
    return open_checkpoint(write_checkpoint(path, Recipe(SMALL, "bf16")))


# --- the binding --------------------------------------------------------------------------------


def attributes() -> set[str]:
    """Every attribute that the building module takes from anything."""
    tree = ast.parse(Path(network.__file__).read_text("utf-8"))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_the_rtx_binding_has_every_name_that_the_builder_uses() -> None:
    assert with_the_real_binding("""
from trt_responses.prepare.tensorrt.binding import binding
print(binding().flavour, binding().module is real)
""").split() == [b"rtx", b"True"]
    for name, members in USED.items():
        assert [m for m in members if m not in real_names()[name]] == [], name
    for target in TARGETS:
        assert target.upper() in real_names()["ComputeCapability"]


def test_the_builder_uses_no_name_of_the_binding_that_is_not_listed() -> None:
    """Whatever it takes from anything, and is called like something of the binding's."""
    said = with_the_real_binding("""
import json
classes = [thing for name in dir(real) if isinstance(thing := getattr(real, name), type)]
print(json.dumps([*dir(real), *(name for thing in classes for name in dir(thing))]))
""")
    theirs = set(json.loads(said))
    listed = set(USED).union(*USED.values())
    ours = {"__class__", "__init__", "append", "ctypes", "data", "scale_type", "scales", "size"}
    assert attributes() & theirs - ours <= listed


def test_the_enterprise_binding_has_them_too_but_for_what_names_targets() -> None:
    theirs = {line for line in NAMES.read_text("ascii").splitlines() if not line.startswith("#")}
    asked = set(USED) | {member for members in USED.values() for member in members}
    assert asked - theirs == set(RTX_ONLY)


def test_a_missing_binding_is_told_with_the_extra_that_brings_it() -> None:
    with pytest.raises(
        PrepareError, match=r"no Python binding is installed.*pip install 'trt-responses\[tenso"
    ):
        binding((("rtx", "no_such_binding"), ("enterprise", "nor_this_one")))


@pytest.mark.slow  # 3 s: a process
def test_building_without_the_extra_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """A process in which none of the extra's packages can be imported; about 1 s."""
    extra = ("onnx", "onnxruntime", "tensorrt_rtx_bindings", "tensorrt_bindings", "llguidance")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extra!r})); "
        "from trt_responses.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    for kind, what in (
        ("tensorrt", "TensorRT: no Python binding"),
        ("onnx", "The package onnx is not"),
    ):
        command = [sys.executable, "-c", code, "engine", "build", "--kind", kind]
        done = subprocess.run(
            [*command, "--engines-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[4],
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.startswith(f"trt-responses: {what}"), done.stderr
        assert "pip install 'trt-responses[tensorrt]'" in done.stderr
        assert done.stderr.count("\n") == 1


# --- targets and families -----------------------------------------------------------------------


def test_packed_experts_stay_4_bits_wide_where_the_gpu_has_them_and_8_elsewhere() -> None:
    assert families(("sm121", "sm86", "sm120", "sm89"), packed=True) == [
        Family(("sm86", "sm89"), "int8", "bfloat16"),
        Family(("sm120", "sm121"), "mxfp4", "bfloat16"),
    ]
    assert families(("sm75",), packed=True) == [Family(("sm75",), "int8", "float16")]


def test_other_checkpoints_are_one_family_in_the_widest_type_that_all_have() -> None:
    every = tuple(TARGETS)
    assert families(every[1:], packed=False) == [Family(every[1:], "bf16", "bfloat16")]
    assert families(("sm75",), packed=False) == [Family(("sm75",), "f16", "float16")]
    assert families(every, packed=True, wanted="f16") == [Family(every, "f16", "float16")]
    assert families(("sm120",), packed=True, wanted="f32") == [Family(("sm120",), "f32", "float32")]
    assert Family(("sm80", "sm86"), "bf16", "bfloat16").folder == "sm80_sm86"


def test_the_default_is_the_gpu_at_hand_or_what_any_packed_model_fits_best() -> None:
    assert default_targets(packed=True, present="sm89") == ("sm89",)
    assert default_targets(packed=True, present="sm90") == ("sm120", "sm121")
    assert default_targets(packed=True, present=None) == ("sm120", "sm121")
    assert default_targets(packed=False, present=None) == tuple(TARGETS)[1:]


@pytest.mark.parametrize(
    ("targets", "packed", "asked", "sentence"),
    [
        (
            ("sm75",),
            False,
            "bf16",
            "--type bf16: the target sm75 (GeForce RTX 20, T4) does not support bfloat16; use "
            "--type f16.",
        ),
        (
            ("sm86", "sm120"),
            True,
            "mxfp4",
            "--type mxfp4: the target sm86 (GeForce RTX 30, A40, A10) does not support 4-bit "
            "floats; use --type int8, which is exact too.",
        ),
        (
            ("sm42",),
            True,
            None,
            "--targets: found 'sm42', expected sm75, sm80, sm86, sm89, sm120, sm121.",
        ),
        (
            ("sm90",),
            True,
            None,
            "--targets: found 'sm90', expected sm75, sm80, sm86, sm89, sm120, sm121; H100 and H200 "
            "are not among TensorRT-RTX's targets.",
        ),
        ((), True, None, "--targets: found none, expected one or more of sm75, sm80, sm86, sm89, "
         "sm120, sm121."),
        (
            ("sm75", "sm120"),
            True,
            None,
            "--targets: found sm75 among others, expected it alone: it computes in float16 and "
            "they in bfloat16; prepare it with another --name, or pass --type f16 for all.",
        ),
        (
            ("sm120",),
            False,
            "mxfp4",
            "--type mxfp4: found a checkpoint without MXFP4 experts, expected one with them.",
        ),
    ],
)  # fmt: skip
def test_what_cannot_go_together_is_refused_by_name(
    targets: tuple[str, ...], packed: bool, asked: Format | None, sentence: str
) -> None:
    with pytest.raises(PrepareError) as caught:
        families(targets, packed, asked)
    assert str(caught.value) == sentence


# --- weights ------------------------------------------------------------------------------------


def read_back(found: Constant) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The constant as the builder's dequantize layer means it."""
    if found.type == "FP4":
        blocks = np.asarray(found.values).reshape(*found.shape[:-1], -1, 16)
        values = VALUES[codes(blocks)]
        assert found.scales is not None
        scales = np.ldexp(np.float32(1), found.scales.astype(np.int32) - 127)
        return (values * scales[..., None]).reshape(found.shape)
    if found.scales is not None:
        values = widen(found.values).reshape(*found.scales.shape, 32)
        return (values * widen(found.scales)[..., None]).reshape(found.shape)
    return widen(found.values)


@pytest.mark.parametrize("projection", ["gate_up", "down"])
@pytest.mark.parametrize(
    "family", [FOUR_BITS, EIGHT_BITS, Family(("sm75",), "int8", "float16")], ids=str
)
def test_packed_weights_mean_bit_for_bit_what_the_checkpoint_says(
    packed: Checkpoint, family: Family, projection: str
) -> None:
    """In the order of rows that the graph's own reader gives, which the CPU's numbers prove."""
    found = constant(packed.tensors, 0, projection, family)
    expected = dense(packed, 0, projection, "float32")
    assert found.exact
    assert found.shape == expected.shape
    np.testing.assert_array_equal(read_back(found), expected)


def test_four_bit_weights_are_the_checkpoint_s_own_bytes(packed: Checkpoint) -> None:
    found = constant(packed.tensors, 0, "down", FOUR_BITS)
    stored = packed.tensors["model.layers.0.mlp.experts.down_proj_blocks"].read()
    assert bytes(found.values.data) == stored.tobytes()
    assert (found.type, found.scale_type) == ("FP4", "E8M0")
    assert found.values.nbytes * 2 == np.prod(found.shape)


def test_plain_weights_are_the_graph_s_own(plain: Checkpoint) -> None:
    for element in ("bfloat16", "float16", "float32"):
        family = Family(("sm120",), "bf16", element)
        for projection in ("gate_up", "down"):
            found = constant(plain.tensors, 0, projection, family)
            np.testing.assert_array_equal(
                found.values,
                dense(plain, 0, projection, element),
            )


def test_a_value_that_float16_has_not_makes_the_weights_not_exact(plain: Checkpoint) -> None:
    name = "model.layers.0.mlp.experts.down_proj"
    stored = np.array(plain.tensors[name].read())
    family = Family(("sm75",), "f16", "float16")

    def with_value(bits: int) -> dict[str, Tensor]:
        values = stored.copy()
        values[0, 0, 0] = bits
        return {**plain.tensors, name: replace(plain.tensors[name], read=lambda: values)}

    one, million = 0x3F80, 0x4974
    assert constant(with_value(one), 0, "down", replace_family(family, "bfloat16")).exact
    assert not constant(with_value(million), 0, "down", family).exact
    assert constant(with_value(million), 0, "down", replace_family(family, "bfloat16")).exact


def replace_family(family: Family, element: str) -> Family:
    return family._replace(element=element)  # type: ignore[arg-type]  # of three literals


# --- sizes and refusals before the first byte ---------------------------------------------------


def test_a_20b_is_planned_as_it_was_measured() -> None:
    """Never below what was measured, and not far above."""
    a = GPT_OSS_20B
    for family, layers, plan, peak in (
        (FOUR_BITS, 1, 508e6, 2.74e9),
        (FOUR_BITS, 8, 3677e6, 13.85e9),
        (EIGHT_BITS, 1, 906e6, 3.08e9),
        (FOUR_BITS, 0, 1159e6, 3.73e9),
    ):
        assert plan <= plan_bytes(a, family, layers) <= 1.2 * plan
        assert peak <= peak_bytes(a, family, layers) <= 1.4 * peak


@pytest.mark.parametrize(("gib", "layers"), [(5, 1), (8, 2), (14, 4), (22, 8), (200, 8)])
def test_groups_grow_with_the_memory_at_hand(gib: int, layers: int) -> None:
    assert group_size(GPT_OSS_20B, [FOUR_BITS], gib * 2**30) == layers


def test_the_largest_family_decides_and_a_small_model_is_one_group() -> None:
    assert group_size(GPT_OSS_20B, [FOUR_BITS, EIGHT_BITS], 12 << 30) == 2
    assert group_size(TINY, [FOUR_BITS], 8 << 30) == TINY.layers


def test_the_enterprise_builder_is_asked_for_no_gpu_but_the_one_at_hand(
    tmp_path: Path, packed: Checkpoint, vocabulary: Vocabulary
) -> None:
    """Its binding has no word for a target; here it is the other one under its name."""
    enterprise = named_binding()._replace(flavour="enterprise")
    tools = BuildTools(vocabulary)
    compiler = Compiler(binding=lambda: enterprise, present=lambda: "sm89")
    with pytest.raises(PrepareError, match="found sm120, expected sm89: the enterprise TensorRT"):
        prepare(
            packed.directory,
            tmp_path,
            "mine",
            tools,
            TensorRtOptions(targets=("sm120",)),
            compiler=compiler,
        )
    compiler = replace(compiler, present=lambda: None)
    with pytest.raises(PrepareError, match="found sm120, sm121, expected a GPU here: the enter"):
        prepare(packed.directory, tmp_path, "mine", tools, TensorRtOptions(), compiler=compiler)


@dataclass
class Case:
    wish: TensorRtOptions
    sentence: str
    memory_bytes: int = 64 << 30
    disk_bytes: int = 1 << 40


REFUSED = {
    "memory": Case(
        TensorRtOptions(targets=("sm120",)),
        r"Not enough memory to compile the embedding: 7\d\d\.\d MB needed, 268\.4 MB free; stop "
        r"other programs, or use a larger machine\.",
        memory_bytes=256 << 20,
    ),
    "disk": Case(
        TensorRtOptions(targets=("sm120", "sm86")),
        r"Not enough disk space: 2\d\d\.\d MB needed, 100\.0 MB free in .*; make room, name fewer "
        r"TARGETS, or choose another directory for engines\.",
        disk_bytes=100_000_000,
    ),
    "target": Case(
        TensorRtOptions(targets=("sm100",)), r"--targets: found 'sm100'.*B200 are not among.*"
    ),
    "group": Case(
        TensorRtOptions(targets=("sm120",), group=0), r"--group: found 0, expected 1 or more.*"
    ),
    "length": Case(
        TensorRtOptions(length=200_000), r"--length: found 200000, expected 1 to 131072\."
    ),
    "slots": Case(TensorRtOptions(slots=65), r"--slots: found 65, expected 1 to 64\."),
    "type": Case(
        TensorRtOptions(weights="q8_0"),  # type: ignore[arg-type]  # the command line lets it through
        r"--type q8_0: found kind tensorrt, expected one of mxfp4.*",
    ),
    "graph targets": Case(
        TensorRtOptions("onnx", ("sm120",)), r"--targets: found sm120, expected none: a bare"
    ),
    "graph type": Case(
        TensorRtOptions("onnx", weights="bf16"),
        r"--type bf16: found a bare graph, expected f32 or f16, which",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence_before_anything_is_compiled(
    tmp_path: Path, packed: Checkpoint, vocabulary: Vocabulary, name: str
) -> None:
    case = REFUSED[name]

    def never(job: object) -> None:
        pytest.fail("something was compiled")

    compiler = Compiler(
        binding=named_binding,
        compiled=never,  # type: ignore[arg-type]  # it does not come to a result
        present=lambda: None,
    )
    tools = BuildTools(
        vocabulary,
        free_bytes=lambda path: case.disk_bytes,
        free_memory_bytes=lambda: case.memory_bytes,
    )
    with pytest.raises(PrepareError, match=f"^{case.sentence}"):
        prepare(packed.directory, tmp_path, "mine", tools, case.wish, compiler=compiler)
    assert not list(tmp_path.rglob("*.onnx"))


def test_a_container_s_limit_counts_where_it_is_the_lower_one(tmp_path: Path) -> None:
    assert memory().free_bytes > 64 << 20
    for folder, files in (
        ("proc", {"meminfo": "MemTotal:  900 kB\nMemAvailable:   500 kB\n"}),
        ("sys/fs/cgroup", {"memory.max": "max\n", "memory.current": "3000\n"}),
    ):
        (tmp_path / folder).mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text)
    assert memory(tmp_path).free_bytes == 500 * 1024
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("103000\n")
    assert memory(tmp_path).free_bytes == 100_000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("2000\n")
    assert memory(tmp_path).free_bytes == 0


@pytest.mark.parametrize("head", [b"", b"vtrt", b"GGUF" + bytes(40)])
def test_a_head_that_is_no_plan_s_is_refused(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "embed.plan").write_bytes(head)
    with pytest.raises(PrepareError, match=r"embed\.plan: found a head of"):
        release_in(tmp_path / "embed.plan")


# --- progress, and the command line -------------------------------------------------------------


def test_the_time_that_is_left_follows_what_the_first_plans_took() -> None:
    sizes = {"embed": 59 * 60e6, "layers": 119 * 60e6, "head": 59 * 60e6}
    assert time_left(sizes, "embed", 0.0) == "1 of 3, about 4 min left"
    assert time_left(sizes, "layers", 30.0) == "2 of 3, about 90 s left".replace("90 s", "2 min")
    assert time_left(sizes, "head", 90.0) == "3 of 3, about 30 s left"


def test_the_command_line_says_what_it_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    wishes: list[TensorRtOptions] = []
    # patched: what the command line asks for, and no build of it
    monkeypatch.setattr(
        "trt_responses.cli.engine.prepare_graph",
        lambda settings, options: bool(wishes.append(options_of(options))),  # type: ignore[func-returns-value]  # None, as status 0
    )
    given = (
        "--targets sm120,SM89 --type int8 --slots 8 --length 2048 --chunk 128 --top 32 --group 4"
    )
    assert main(["engine", "build", "--kind", "tensorrt", *given.split()]) == 0
    assert main(["engine", "build", "--kind", "onnx"]) == 0
    assert wishes == [
        TensorRtOptions("tensorrt", ("sm120", "sm89"), "int8", 8, 2048, 128, 32, 4),
        TensorRtOptions("onnx"),
    ]


def test_the_help_teaches_the_targets(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["engine", "build", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "sm120 GeForce RTX 50" in shown
    assert "pip install 'trt-responses[tensorrt]'" in shown
