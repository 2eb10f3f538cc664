"""The numerical truth: the NumPy forward against llama.cpp over our own GGUF files.

About 25 s in all on one core; each llama.cpp start takes 3 s there, more beside other work.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import TINY, Form, Recipe, write_checkpoint
from scripts.gguf_model import convert
from tests.support.gather import generated
from trt_responses.engine import GenerateOptions
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.prepare.checkpoint.forward import Reference, clamped_swiglu, rotations, visible
from trt_responses.prepare.checkpoint.open import Checkpoint, open_checkpoint
from trt_responses.prepare.llamacpp.build import prepare
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.verify import PROMPT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trt_responses.engine import Logprob
    from trt_responses.prepare.checkpoint.safetensors import Tensor
    from trt_responses.prepare.shelf.card import Card
    from trt_responses.tokens.vocabulary import Vocabulary

    Floats = NDArray[np.float32]

pytestmark = pytest.mark.xdist_group("numeric")  # its models are made once per process

PROMPT_IDS = np.random.default_rng(1).integers(0, 199_000, 300).tolist()
"""Longer than the window of 128."""

EXACT = 2e-3
"""Float32 throughout: measured 4e-5. What follows is rounding, measured on this checkpoint."""
YARN_TRUNCATED = 0.1
"""llama.cpp rounds YaRN's range outwards, gpt-oss was trained without: measured 0.03."""
BF16_ROUNDED = 0.1
"""bfloat16 products and a float16 cache: measured 0.03."""
MXFP4_ROUNDED = 0.2
"""ggml rounds activations to 8 bits before it multiplies with MXFP4: measured 0.06."""


@dataclass(frozen=True)
class Models:
    """The same random model in each form, made once."""

    folder: Path
    vocabulary: Vocabulary

    def checkpoint(self, form: Form) -> Checkpoint:
        directory = self.folder / form
        if not directory.exists():
            write_checkpoint(directory, Recipe(form=form))
        return open_checkpoint(directory)

    def exact(self, form: Form) -> Floats:
        """llama.cpp's answer to the prompt, over a float32 file."""
        model, target = self.folder / f"{form}.gguf", self.folder / f"{form}.npy"
        convert(self.checkpoint(form), model, self.vocabulary, weight_type="f32", unpack=True)
        script = Path(__file__).parents[1] / "support" / "llama_logprobs.py"
        command = [sys.executable, *map(str, (script, model, target)), json.dumps(PROMPT_IDS)]
        subprocess.run(command, check=True, capture_output=True, timeout=500)
        found: Floats = np.load(target)
        return found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Models:
    return Models(tmp_path_factory.mktemp("numeric"), vocabulary)


def away(a: Floats, b: Floats) -> float:
    return float(np.abs(a - b).max())


@pytest.mark.parametrize("form", ["f32", "mxfp4"])
def test_llama_cpp_agrees_with_the_reference_but_for_its_yarn(models: Models, form: Form) -> None:
    """All 201,088 log probabilities after 300 tokens. The deviation is real, and bounded."""
    engine = models.exact(form)
    checkpoint = models.checkpoint(form)
    assert np.isfinite(engine).all()
    as_llama_cpp = Reference(checkpoint, truncate=True).logprobs(PROMPT_IDS)[0]
    assert away(engine, as_llama_cpp) < EXACT
    assert int(engine.argmax()) == int(as_llama_cpp.argmax())
    as_trained = Reference(checkpoint).logprobs(PROMPT_IDS)[0]
    assert EXACT < away(engine, as_trained) < YARN_TRUNCATED


def altered(checkpoint: Checkpoint, part: str) -> Checkpoint:
    """The checkpoint with one part of the architecture taken away or changed."""
    a = checkpoint.architecture
    changes = {
        "window": replace(a, sliding_window=300),
        "one expert": replace(a, experts_per_token=1),
        "yarn": replace(a, rope_factor=1.0001),
        "epsilon": replace(a, rms_eps=0.1),
    }
    tensors = dict(checkpoint.tensors)
    if part == "sinks":
        for name in [name for name in tensors if name.endswith("sinks")]:
            tensors[name] = _zeros(tensors[name])
    return replace(checkpoint, architecture=changes.get(part, a), tensors=tensors)


def _zeros(tensor: Tensor) -> Tensor:
    return replace(tensor, read=lambda: np.full(tensor.shape, -30, np.float32))


@pytest.mark.parametrize("part", ["window", "one expert", "yarn", "epsilon", "sinks"])
def test_the_comparison_would_see_each_part_missing(models: Models, part: str) -> None:
    """Five times the bound at least, or the agreement above would prove nothing of that part."""
    checkpoint, ids = models.checkpoint("f32"), PROMPT_IDS[:200]
    whole = Reference(checkpoint).logprobs(ids)[0]
    assert away(Reference(altered(checkpoint, part)).logprobs(ids)[0], whole) > 5 * EXACT


def test_the_random_model_reaches_the_clamp(models: Models) -> None:
    weight = models.checkpoint("f32").tensors["model.layers.0.mlp.experts.gate_up_proj"].read()
    normal = np.random.default_rng(2).standard_normal((100, TINY.hidden), np.float32)
    both = normal @ np.asarray(weight[0], np.float32)
    assert 0.02 < float((np.abs(both) > 7).mean()) < 0.3
    assert np.abs(clamped_swiglu(both)).max() <= 7 * 8


def test_layouts_give_equal_logits(models: Models) -> None:
    theirs = Recipe(form="mxfp4", layout="original", shards=2)
    original = open_checkpoint(write_checkpoint(models.folder / "original", theirs))
    ids = PROMPT_IDS[:40]
    ours = Reference(models.checkpoint("mxfp4")).logits(ids)
    np.testing.assert_array_equal(Reference(original).logits(ids), ours)


@pytest.mark.parametrize(("form", "bound"), [("bf16", BF16_ROUNDED), ("mxfp4", MXFP4_ROUNDED)])
def test_a_prepared_engine_answers_as_the_reference_but_for_rounding(
    models: Models, form: Form, bound: float
) -> None:
    """The whole way: checkpoint, build, card, and the engine that serving uses."""

    def over_file(directory: Path, card: Card) -> LlamaCppEngine:
        return embedded(directory / card.files[0].name)

    checkpoint = models.checkpoint(form)
    built = prepare(
        checkpoint.directory,
        models.folder / "engines",
        form,
        BuildTools(models.vocabulary, engine_for=over_file),
    )
    assert built.card.status == "verified"
    reference = Reference(checkpoint, truncate=True)
    prompt = models.vocabulary.encoding.encode(PROMPT, allowed_special="all")
    first = reference.logprobs(prompt)[0]
    assert first[built.card.greedy_ids[0]] > first.max() - 2 * bound
    expected = reference.logprobs(PROMPT_IDS)[0]
    likeliest = asyncio.run(asked(embedded(built.directory / built.card.files[0].name))).top
    assert len(likeliest) == 20
    assert max(abs(expected[n] - logprob) for n, logprob in likeliest) < bound


def embedded(model: Path) -> LlamaCppEngine:
    return LlamaCppEngine(model, context_tokens=512, slots=1, threads=1)


async def asked(engine: LlamaCppEngine) -> Logprob:
    await engine.start()
    try:
        options = GenerateOptions(max_tokens=1, stop_ids=(), temperature=0.0, logprobs=20)
        return (await generated(engine, PROMPT_IDS, options)).logprobs[0]
    finally:
        await engine.stop(5.0)


def test_yarn_leaves_fast_pairs_alone_and_slows_the_slowest_by_its_factor() -> None:
    """Angles after one position, by hand: pair 0 turns by 1, the last by theta^(-62/64) / 32."""
    cos, sin = rotations(TINY, 2, truncate=False)
    angles = np.arctan2(sin[1], cos[1])
    assert angles[0] == pytest.approx(1.0, rel=1e-6)
    assert angles[8] == pytest.approx(150_000 ** (-8 / 32), rel=1e-6)  # the range begins at 8.09
    assert angles[-1] == pytest.approx(150_000 ** (-31 / 32) / 32, rel=1e-5)
    assert np.hypot(cos, sin) == pytest.approx(0.1 * np.log(32) + 1, rel=1e-6)
    truncated = np.arctan2(*reversed([part[1] for part in rotations(TINY, 2, truncate=True)]))
    assert np.flatnonzero(np.abs(truncated / angles - 1) > 1e-4).tolist() == list(range(9, 18))


def test_a_window_counts_the_token_itself() -> None:
    assert visible(4, 2).astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
