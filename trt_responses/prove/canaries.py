"""Canaries of the engine, where HTTP cannot see: options, guides, stop ids, LoRA, and its numbers
beside our own forward pass in NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from trt_responses.backends.dialects import vocabulary
from trt_responses.doctor.numeric import LIKELIEST
from trt_responses.doctor.numeric import PROMPT as COUNTED
from trt_responses.engine import GenerateOptions
from trt_responses.engines.ask import CANARY, PROBE_IDS, ignored_options
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, Skipped, check
from trt_responses.prove.machine import ADAPTER

GREEDY = GenerateOptions(8, (), temperature=0.0)
PROMPT = "<|start|>user<|message|>Hello! How are you?<|end|><|start|>assistant"
CODE = PROMPT.replace("How are you?", "Write add.") + "<|channel|>final<|message|>def add("
PROMPTS = {"greeting": PROMPT, "longer than the window": COUNTED, "code": CODE}
LIMIT = 1.0
"""The largest accepted difference: engines compute in bfloat16 or with 8-bit weights, by about 0.3
apart. A missing part of the model differs by over 3."""
GUIDED_TEXT = '"yes, déjà"'
BESIDE = 5


def ids(text: str = PROMPT) -> list[int]:
    """The ids of a prompt."""
    found: list[int] = vocabulary().encoding.encode(text, allowed_special="all")
    return found


def options(bench: Bench) -> Figures:
    """Bans, the seed, min_p and penalties work, or the engine names them as ignored."""
    engine = bench.engine()

    async def answer(prompt: Sequence[int], wanted: GenerateOptions) -> Sequence[int]:
        sink = await engine.gathered(prompt, wanted)
        return () if sink.last.result().finish == "error" else sink.token_ids

    found, named = engine.run(ignored_options(answer, PROBE_IDS)), engine.engine.limits().ignores
    unnamed = sorted(found - named)
    wrong = {f"the engine ignores {', '.join(unnamed)} and does not say so": unnamed}
    return check(wrong, {"ignored": sorted(found), "named as ignored": sorted(named)})


def guides(bench: Bench) -> Figures:
    """A guide gives exactly its text, letters beyond ASCII included."""
    engine = bench.engine()
    kinds = engine.engine.limits().guides
    if not kinds:
        raise Skipped("the engine has no guides")
    sink, last = engine.answer(ids(), CANARY)
    text = vocabulary().text([n for n in sink.token_ids if n != last.stop_id])
    ends = kinds.get("json_schema", frozenset())
    wrong = {
        f"the guided answer ended with {last.finish}": last.stop_id not in ends,
        "the guided answer does not match its schema": text != GUIDED_TEXT,
    }
    return check(wrong, {"kinds": sorted(kinds), "tokens": len(sink.token_ids)})


def stops(bench: Bench) -> Figures:
    """An id that stops is the last one, and is named."""
    engine = bench.engine()
    free, _ = engine.answer(ids(), GREEDY)
    check({"the engine gave no ids": not free.token_ids})
    stop_id = free.token_ids[-1]
    expected = free.token_ids[: free.token_ids.index(stop_id) + 1]
    sink, last = engine.answer(ids(), replace(GREEDY, stop_ids=(stop_id,)))
    wrong = {
        f"it ended with {last.finish} instead of stop": last.finish != "stop",
        "the stop id is not named": last.stop_id != stop_id,
        "the stop id is not the last id": sink.token_ids != expected,
    }
    return check(wrong, {"stopped after": len(expected)})


def logprobs(bench: Bench) -> Figures:
    """Each id has its log probability, and the likeliest ids beside it, best first."""
    engine = bench.engine()
    if not (most := min(engine.engine.limits().max_logprobs, BESIDE)):
        raise Skipped("the engine gives no log probabilities")
    sink, _ = engine.answer(ids(), replace(GREEDY, logprobs=most))
    tops = [[value for _, value in entry.top] for entry in sink.logprobs]
    values = [entry.logprob for entry in sink.logprobs] + [v for top in tops for v in top]
    finite = all(math.isfinite(value) and value <= 0 for value in values)
    greedy = [entry.top[0][0] for entry in sink.logprobs if entry.top]
    wrong = {
        "a log probability is of another id": [e[0] for e in sink.logprobs] != sink.token_ids,
        "a log probability is no finite number up to 0": not finite,
        "the greedy id is not the likeliest": greedy != sink.token_ids,
        "the likeliest ids are not in order": any(sorted(top)[::-1] != top for top in tops),
    }
    return check(wrong, {"ids": len(sink.token_ids), "beside each": most})


def lora(bench: Bench) -> Figures:
    """The adapter answers, and its numbers are not the model's."""
    engine = bench.engine()
    if ADAPTER not in engine.engine.limits().adapters:
        raise Failed("the engine does not list the adapter")
    wanted = replace(
        GREEDY, max_tokens=1, logprobs=min(engine.engine.limits().max_logprobs, BESIDE)
    )
    plain, _ = engine.answer(ids(), wanted)
    adapted, last = engine.answer(ids(), replace(wanted, adapter=ADAPTER))
    same = plain.token_ids == adapted.token_ids
    wrong = {
        f"the adapter failed: {last.error}": last.finish == "error" or not adapted.token_ids,
        "the adapter changes no number": same and plain.logprobs == adapted.logprobs,
    }
    return check(wrong, {"same first id": same})


def numerics(bench: Bench) -> Figures:
    """The largest difference of the likeliest ids' log probabilities, for each prompt."""
    checkpoint, engine = bench.reference(), bench.engine()
    if not (likeliest := min(engine.engine.limits().max_logprobs, LIKELIEST)):
        raise Skipped("the engine gives no log probabilities")
    # llama.cpp rounds YaRN's range outwards.
    reference = Reference(checkpoint, truncate=True if bench.kind == "llamacpp" else None)
    wanted = GenerateOptions(1, (), temperature=0.0, logprobs=likeliest)
    figures: Figures = {"limit": LIMIT}
    for name, text in PROMPTS.items():
        sink, last = engine.answer(ids(text), wanted)
        check({f"{name}: no log probabilities ({last.error})": not sink.logprobs}, figures)
        expected = reference.logprobs(ids(text))[0]
        away = max(abs(float(expected[n]) - value) for n, value in sink.logprobs[0].top)
        figures[name] = round(away, 4)
        check({f"{name}: differs by {away:.3f}, limit {LIMIT}": not away <= LIMIT}, figures)
    return figures
