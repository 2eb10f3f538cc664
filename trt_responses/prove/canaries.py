"""Canaries of the engine, where HTTP cannot see: options, guides, stop ids, numbers, LoRA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from trt_responses.backends.dialects import vocabulary
from trt_responses.engine import Gathered, GenerateOptions
from trt_responses.engines.ask import CANARY, PROBE_IDS, ignored_options
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, Skipped, check
from trt_responses.prove.machine import ADAPTER

GREEDY = GenerateOptions(8, (), temperature=0.0)
PROMPT = "<|start|>user<|message|>Hello! How are you?<|end|><|start|>assistant"
GUIDED_TEXT = '"yes, déjà"'


def prompt() -> list[int]:
    """The ids of a short question."""
    ids: list[int] = vocabulary().encoding.encode(PROMPT, allowed_special="all")
    return ids


def options(bench: Bench) -> Figures:
    """Bans, the seed, min_p and penalties work, or the engine names them as ignored."""
    engine = bench.engine()

    async def answer(ids: Sequence[int], wanted: GenerateOptions) -> Sequence[int]:
        sink = Gathered()
        engine.begin(ids, wanted, sink)
        last = await sink.last
        return () if last.finish == "error" else sink.token_ids

    found = engine.run(ignored_options(answer, PROBE_IDS))
    named = engine.engine.limits().ignores
    figures: Figures = {"ignored": sorted(found), "named as ignored": sorted(named)}
    unnamed = ", ".join(sorted(found - named))
    check([(f"the engine ignores {unnamed} and does not say so", unnamed)], figures)
    return figures


def guides(bench: Bench) -> Figures:
    """A guide gives exactly its text, letters beyond ASCII included."""
    engine = bench.engine()
    kinds = engine.engine.limits().guides
    if not kinds:
        raise Skipped("the engine has no guides")
    sink, last = engine.answer(prompt(), CANARY)
    ids = [n for n in sink.token_ids if n != last.stop_id]
    figures: Figures = {"kinds": sorted(kinds), "tokens": len(ids)}
    wrong = vocabulary().text(ids) != GUIDED_TEXT
    ends = kinds.get("json_schema", frozenset())
    check(
        [
            (f"the guided answer ended with {last.finish}", last.stop_id not in ends),
            ("the guided answer does not match its schema", wrong),
        ],
        figures,
    )
    return figures


def stops(bench: Bench) -> Figures:
    """An id that stops is the last one, and is named."""
    engine = bench.engine()
    free, _ = engine.answer(prompt(), GREEDY)
    check([("the engine gave no ids", not free.token_ids)])
    stop_id = free.token_ids[-1]
    place = free.token_ids.index(stop_id)
    sink, last = engine.answer(prompt(), replace(GREEDY, stop_ids=(stop_id,)))
    check(
        [
            (f"it ended with {last.finish} instead of stop", last.finish != "stop"),
            ("the stop id is not named", last.stop_id != stop_id),
            ("the stop id is not the last id", sink.token_ids != free.token_ids[: place + 1]),
        ]
    )
    return {"stopped after": place + 1}


def logprobs(bench: Bench) -> Figures:
    """Each id has its log probability, and the likeliest ids beside it, best first."""
    engine = bench.engine()
    most = min(engine.engine.limits().max_logprobs, 5)
    if not most:
        raise Skipped("the engine gives no log probabilities")
    sink, _ = engine.answer(prompt(), replace(GREEDY, logprobs=most))
    tops = [[value for _, value in entry.top] for entry in sink.logprobs]
    values = [
        value
        for entry, top in zip(sink.logprobs, tops, strict=True)
        for value in (entry.logprob, *top)
    ]
    finite = all(math.isfinite(value) and value <= 0 for value in values)
    greedy = [entry.top[0][0] for entry in sink.logprobs if entry.top]
    other = [entry.token_id for entry in sink.logprobs] != sink.token_ids
    check(
        [
            ("a log probability is of another id", other),
            ("a log probability is no finite number up to 0", not finite),
            ("the greedy id is not the likeliest", greedy != sink.token_ids),
            ("the likeliest ids are not in order", any(sorted(t)[::-1] != t for t in tops)),
        ]
    )
    return {"ids": len(sink.token_ids), "beside each": most}


def lora(bench: Bench) -> Figures:
    """The adapter answers, and its numbers are not the model's."""
    engine = bench.engine()
    if ADAPTER not in engine.engine.limits().adapters:
        raise Failed("the engine does not list the adapter")
    wanted = replace(GREEDY, max_tokens=1, logprobs=min(engine.engine.limits().max_logprobs, 5))
    (plain, _), (adapted, last) = (
        engine.answer(prompt(), each) for each in (wanted, replace(wanted, adapter=ADAPTER))
    )
    check([(f"the adapter failed: {last.error}", last.finish == "error" or not adapted.token_ids)])
    same = plain.token_ids == adapted.token_ids and plain.logprobs == adapted.logprobs
    check([("the adapter changes no number: it is not applied", same)])
    return {"same first id": plain.token_ids == adapted.token_ids}
