"""The deep doctor: the embedded engine's numbers on the demo, judged by the forward in NumPy.

Budget: 15 s on one core.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scripts.demo.wordings import SOURCE
from trt_responses.doctor.numeric import LIKELIEST, PROMPT, compared, deep_check, likeliest
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.demo import expand

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.tokens.vocabulary import Vocabulary


@pytest.mark.early(260)  # MB for a while: a process has little yet
def test_the_deep_doctor_agrees_with_the_engine_and_sees_each_part_missing(
    demo_gguf: Path, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    expand(SOURCE, tmp_path / "demo")
    checkpoint = open_checkpoint(tmp_path / "demo")
    prompt = vocabulary.encoding.encode(PROMPT, allowed_special="all")
    a = checkpoint.architecture
    assert len(prompt) > 2 * a.sliding_window
    engine = LlamaCppEngine(demo_gguf, context_tokens=512, slots=1, threads=1)
    found = asyncio.run(likeliest(engine, prompt))
    assert len(found) == LIKELIEST
    assert compared(found, Reference(checkpoint, truncate=True), prompt).state == "ok"
    for other in (
        replace(a, sliding_window=100_000),
        replace(a, experts_per_token=1),
        replace(a, rope_factor=1.0001),
    ):
        without = Reference(replace(checkpoint, architecture=other), truncate=True)
        assert compared(found, without, prompt).state == "fault", other


def test_the_deep_doctor_finds_an_engine_without_numbers_at_fault(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    expand(SOURCE, tmp_path / "demo")
    checkpoint = open_checkpoint(tmp_path / "demo")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    engine = LlamaCppEngine(tmp_path / "broken.gguf", context_tokens=512, slots=1, threads=1)
    found = deep_check(engine, checkpoint, vocabulary)
    assert (found.state, "no log probabilities" in found.found) == ("fault", True)
    assert compared((), Reference(checkpoint), [1, 2]).state == "fault"
