"""Compares the engine's numbers with our own forward pass in NumPy, on three prompts."""

from __future__ import annotations

from trt_responses.doctor.numeric import LIKELIEST
from trt_responses.doctor.numeric import PROMPT as COUNTED
from trt_responses.engine import GenerateOptions
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prove.bench import Bench
from trt_responses.prove.canaries import PROMPT, ids
from trt_responses.prove.claims import Figures, Skipped, check

CODE = PROMPT.replace("How are you?", "Write add.") + "<|channel|>final<|message|>def add("
PROMPTS = {"greeting": PROMPT, "longer than the window": COUNTED, "code": CODE}
LIMIT = 1.0
"""The largest accepted difference: engines compute in bfloat16 or with 8-bit weights, by about 0.3
apart. A missing part of the model differs by over 3."""
BYTES_PER_S = 2.5e8
"""How fast NumPy passes weights, for the estimated time."""


def numerics(bench: Bench) -> Figures:
    """The largest difference of the likeliest ids' log probabilities, for each prompt."""
    checkpoint, engine = bench.reference(), bench.engine()
    if not (likeliest := min(engine.engine.limits().max_logprobs, LIKELIEST)):
        raise Skipped("the engine gives no log probabilities")
    # llama.cpp rounds YaRN's range outwards.
    reference = Reference(checkpoint, truncate=True if bench.kind == "llamacpp" else None)
    options = GenerateOptions(1, (), temperature=0.0, logprobs=likeliest)
    figures: Figures = {"limit": LIMIT}
    for name, text in PROMPTS.items():
        sink, last = engine.answer(ids(text), options)
        check({f"{name}: no log probabilities ({last.error})": not sink.logprobs}, figures)
        expected = reference.logprobs(ids(text))[0]
        away = max(abs(float(expected[n]) - value) for n, value in sink.logprobs[0].top)
        figures[name] = round(away, 4)
        check({f"{name}: differs by {away:.3f}, limit {LIMIT}": not away <= LIMIT}, figures)
    return figures


def seconds(bench: Bench) -> float:
    """The estimated seconds: our own forward pass reads every weight for each prompt."""
    return 5.0 + len(PROMPTS) * bench.size_bytes / BYTES_PER_S
