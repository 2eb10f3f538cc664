"""The demo model through the graph, token for token as the NumPy forward would write.

Budget: 8 s on one core.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.demo.wordings import SOURCE
from tests.support.graph_chain import Chain, planned
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.demo import expand

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.tokens.vocabulary import Vocabulary

QUESTIONS = (
    "What is the capital of France?",
    "Count from 3 to 7",
    "Repeat after me: green apple",
    "What is 12 + 7?",
)
TOKENS = 40
EXACT = 2e-4
"""Measured 1.0e-4: eight layers of sums in another order."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo") / "checkpoint"
    expand(SOURCE, directory)
    return directory


@pytest.mark.slow  # 8 s, and 350 MB: the whole demo
def test_four_questions_side_by_side_get_the_tokens_of_the_forward(
    demo: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    """The forward reads each whole text once: where its choice at every place is the token that
    stands there, it would have written the same."""
    checkpoint = open_checkpoint(demo)
    texts = [prompt(vocabulary, question) for question in QUESTIONS]
    rows = written(Chain.of(checkpoint, tmp_path, planned(checkpoint)), texts, tmp_path)
    gc.collect()  # the sessions, of 140 MB
    reference = Reference(checkpoint)
    for slot, text in enumerate(texts):
        expected = reference.logits(text[:-1], last=TOKENS)
        assert text[-TOKENS:] == expected.argmax(axis=-1).tolist()
        for found, row in zip(rows, expected, strict=True):
            assert np.abs(np.load(found)[slot] - row).max() < EXACT
    said = vocabulary.encoding.decode(texts[0])
    assert "The capital of France is Paris." in said


def prompt(vocabulary: Vocabulary, question: str) -> list[int]:
    text = f"<|start|>user<|message|>{question}<|end|><|start|>assistant"
    return list(vocabulary.encoding.encode(text, allowed_special="all"))


def written(chain: Chain, texts: list[list[int]], folder: Path) -> list[Path]:
    """Each text grown greedily, in slots of one batch; files of the logits of each step, which are
    130 MB in all."""
    rows = [folder / f"{number}.npy" for number in range(TOKENS)]
    chain.reset(len(texts))
    first = [chain.prefill(slot, text, 0) for slot, text in enumerate(texts)]
    np.save(rows[0], np.concatenate([found.logits for found in first]))
    for slot, text in enumerate(texts):
        text.append(int(first[slot].ids[0, 0]))
    for row in rows[1:]:
        last = np.array([text[-1:] for text in texts], np.int64)
        found = chain.step(last, [len(text) - 1 for text in texts])
        np.save(row, found.logits)
        for slot, text in enumerate(texts):
            text.append(int(found.ids[slot, 0]))
    return rows
