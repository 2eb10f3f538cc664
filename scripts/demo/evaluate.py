"""The examination of the served demo model: through an engine, to figures.

Knows the engine seam and the exam; which engine, and what becomes of the figures, is the caller's.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from scripts.demo import exam
from scripts.demo.conversation import ASSISTANT, EFFORTS, FINAL_HEADER, THOUGHT, encoding
from scripts.demo.rows import GUIDED, encode
from trt_responses.engine import Gathered, GenerateOptions, Guide
from trt_responses.schema.compile import Forms
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scripts.demo.exam import Question, Verdict
    from trt_responses.engine import Engine

MAX_TOKENS = 160
ENDS = (CONTROL.return_, CONTROL.call)
CONTROL_IDS = range(FIRST_CONTROL_ID, VOCABULARY_SIZE)
_FORMS = Forms()
HEADER_ENDS = (*ENDS, CONTROL.end, CONTROL.message)


@dataclass(frozen=True, slots=True)
class Score:
    """Shares of the replies to `prompts` questions. `copied`: of those that had to copy."""

    prompts: int
    well_formed: float
    exact: float
    copied: float | None
    analysis_tokens: float


def score(verdicts: Sequence[Verdict]) -> Score:
    copies = [v.copied for v in verdicts if v.copied is not None]
    return Score(
        len(verdicts),
        round(fmean(v.well_formed for v in verdicts), 4),
        round(fmean(v.exact for v in verdicts), 4),
        round(fmean(copies), 4) if copies else None,
        round(fmean(v.analysis_tokens for v in verdicts), 1),
    )


async def replies(
    engine: Engine, questions: Sequence[Question], *, temperature: float = 0.0
) -> list[list[int]]:
    """The ids of each reply, as many at once as the engine takes."""
    places = asyncio.Semaphore(engine.limits().max_batch)

    async def one(number: int, question: Question) -> list[int]:
        async with places:
            return await _turn(engine, question, temperature, number)

    return list(await asyncio.gather(*(one(n, q) for n, q in enumerate(questions))))


async def _turn(engine: Engine, question: Question, temperature: float, seed: int) -> list[int]:
    """One turn as the server makes it: after a call another header is offered, while it may be,
    and withdrawn when it is no call."""
    prompt, opening = question.prompt_ids, encode(ASSISTANT)
    if question.dialogue.family in GUIDED:
        return await _guided(engine, question, temperature, seed)

    async def written(before: list[int], ends: tuple[int, ...]) -> list[int]:
        options = GenerateOptions(MAX_TOKENS, ends, temperature, seed=seed)
        return await _written(engine, prompt + before, options)

    ids = await written([], ENDS)
    for _ in range(1, question.dialogue.most_calls):
        if ids[-1:] != [CONTROL.call]:
            break
        header = opening + await written(ids + opening, HEADER_ENDS)
        if header[-1] != CONTROL.message or " to=" not in encoding().decode(header):
            break
        ids += header
        ids += await written(ids, ENDS)
    return ids


async def _guided(engine: Engine, question: Question, temperature: float, seed: int) -> list[int]:
    """One turn under a strict schema as the server makes it: a thought, the header of an answer,
    and the body under the engine's guide, whose end the server makes Harmony's."""
    form = question.dialogue.setting.format
    assert form is not None
    ids, body = encode(THOUGHT), encode(ASSISTANT + FINAL_HEADER)
    options = GenerateOptions(MAX_TOKENS, (CONTROL.end, *ENDS), temperature, seed=seed)
    ids += await _written(engine, question.prompt_ids + ids, options)
    ids += body
    guide = _FORMS.form(json.loads(form.schema), "schema").source
    ends = engine.limits().guides["json_schema"]
    options = replace(
        options,
        stop_ids=tuple(sorted(ends)),
        guide=Guide("json_schema", guide),
        banned_ids=tuple(token for token in CONTROL_IDS if token not in ends),
    )
    ids += await _written(engine, question.prompt_ids + ids, options)
    return [*ids[:-1], CONTROL.return_] if ids[-1] in ends else ids


async def _written(engine: Engine, prompt: list[int], options: GenerateOptions) -> list[int]:
    sink = Gathered()
    engine.generate(prompt, options, sink)
    if (last := await sink.last).finish == "error":
        raise RuntimeError(f"the engine failed: {last.error}")
    return sink.token_ids


async def verdicts(
    engine: Engine, questions: Sequence[Question], *, temperature: float = 0.0
) -> list[Verdict]:
    given = await replies(engine, questions, temperature=temperature)
    return [exam.judged(q, ids) for q, ids in zip(questions, given, strict=True)]


async def examined(
    engine: Engine, each: int, seed: int, tell: Callable[[str], None]
) -> dict[str, object]:
    """Every family on seen and held-back wordings, then all families under other conditions."""
    by_family: dict[str, dict[str, object]] = {name: {} for name in exam.EXAMINED}
    totals: dict[str, object] = {}
    for label, held in (("seen", False), ("held_back", True)):
        tell(f"{label.replace('_', '-')} wordings")
        found = await verdicts(engine, exam.questions(each, seed, held=held))
        for name in exam.EXAMINED:
            by_family[name][label] = asdict(score([v for v in found if v.family == name]))
        totals[label] = asdict(score(found))
    others = await _others(engine, max(2, each // 6), seed, tell)
    return {"families": by_family, "total": totals, "conditions": others}


async def _others(
    engine: Engine, each: int, seed: int, tell: Callable[[str], None]
) -> dict[str, object]:
    """Seen wordings under conditions that the bar names."""
    questions = exam.questions(each, seed + 1, held=False)
    found: dict[str, object] = {}
    for effort in EFFORTS:
        tell(f"effort {effort}")
        found[f"effort_{effort}"] = asdict(
            score(await verdicts(engine, exam.with_effort(questions, effort)))
        )
    tell("temperature 1")
    found["temperature_1"] = asdict(score(await verdicts(engine, questions, temperature=1.0)))
    tell("an unknown developer message")
    unseen = exam.with_unseen_instructions(questions, seed)
    found["unknown_instructions"] = asdict(score(await verdicts(engine, unseen)))
    tell("behind 2,000 unrelated tokens")
    long = exam.behind_long_text(questions[::2], seed)
    found["behind_2000_tokens"] = asdict(score(await verdicts(engine, long)))
    return found
