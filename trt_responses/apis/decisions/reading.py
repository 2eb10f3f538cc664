"""Reads from an engine how likely each label of a question is: one token behind a forced header.

Knows the engine's seam and the run's generation; knows no HTTP.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from trt_responses.apis.decisions.questions import Calibration, Likelihood, Question, likelihood
from trt_responses.engine import Chunk, Engine, GenerateOptions, Guide, Limits, Logprob
from trt_responses.errors import ApiError, EngineLost, NotFound, refuse_longer, unsupported_value
from trt_responses.feature import Step
from trt_responses.frozen import replace
from trt_responses.log.fold import Output
from trt_responses.prompt.conversation import input_blocks
from trt_responses.prompt.history import Prior
from trt_responses.prompt.prompt import prompt_behind
from trt_responses.run.draft import Draft
from trt_responses.run.ending import End
from trt_responses.run.generation import Generation
from trt_responses.store import Record
from trt_responses.wire.response import InputTokensDetails, OutputTokensDetails, Usage

AT_ONCE = 8
"""Engine requests of one run: the first one alone, so that the others find the input cached."""
ROUNDS = 3
"""Requests for one distribution, each without the tokens that came before and are no label."""
CERTAIN = -1e-6
"""A forced token that is this likely says that the engine measures behind its guide."""


class Used:
    """The tokens of all engine requests."""

    def __init__(self) -> None:
        self.read = self.cached = self.written = 0

    def usage(self) -> Usage:
        into = InputTokensDetails(min(self.cached, self.read))
        total = self.read + self.written
        return Usage(self.read, self.written, total, into, OutputTokensDetails(0))


class DecisionStep(Step):
    """Has one run answer questions in place of a conversation."""

    moves = False

    def __init__(
        self, questions: Sequence[Question], calibration: Calibration, conversation: str | None
    ) -> None:
        self._questions = questions
        self._calibration = calibration
        self._conversation = conversation
        self.answers: list[Likelihood] = []

    async def acquire(self, draft: Draft) -> None:
        limits = draft.parts.engine.limits()
        if limits.max_logprobs < 2:
            raise unsupported_value("questions", "this engine does not give log probabilities")
        tokens = _tokens(draft.parts.dialect.lexicon.token_bytes)
        for question in self._questions:
            for part in {part for label in question.labels for part in label}:
                if not tokens.get(part):
                    raise unsupported_value(
                        question.place, f"'{part}' is no token of this model, so it has less labels"
                    )

    async def offer(self, draft: Draft) -> None:
        if self._conversation is not None:
            record = await draft.records.get(self._conversation, draft.owner)
            if not isinstance(record, Record) or not record.version:
                raise NotFound(
                    f"Conversation '{self._conversation:.100}' not found.", param="conversation"
                )
            draft.prior = Prior(record.blocks, record.date or None, record)

    async def prompted(self, draft: Draft) -> None:
        draft.answers = False

    def write(self, draft: Draft) -> None:
        draft.generation = partial(Deciding, draft, self._answered)

    async def _answered(self, draft: Draft, options: GenerateOptions, opening: list[int]) -> Used:
        used = Used()
        token_bytes = draft.parts.dialect.lexicon.token_bytes
        reader = LabelReader(draft.engine, draft.limits, options, token_bytes, used)
        first, *others = self._questions
        self.answers = [await self._one(first, draft, opening, reader)]
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(self._one(q, draft, opening, reader)) for q in others]
        self.answers += [task.result() for task in waiting]
        return used

    async def _one(
        self, question: Question, draft: Draft, opening: list[int], reader: LabelReader
    ) -> Likelihood:
        async with reader.places:
            parts, context = draft.parts, draft.limits.context_tokens
            (block,) = await input_blocks(question.text(), parts.renderer, (), context)
            ids, _ = await prompt_behind(draft.prompt, block, draft.accepted, parts)
            if len(ids) + len(opening) + 2 > context:
                refuse_longer(len(ids) + len(opening) + 2, context)
            logs = await reader.logs_of(question.labels, [*ids, *opening])
            if max(logs) == -math.inf:
                raise unsupported_value(
                    question.place, "this engine gives no log probability of a label"
                )
            return likelihood(logs, self._calibration[question.kind], question.kind)


class Deciding(Generation):
    """A generation that reads likelihoods, and writes nothing."""

    def __init__(self, draft: Draft, answered: Any, **parts: Any) -> None:
        super().__init__(**parts)
        self._draft = draft
        self._answered = answered
        self._used = Used()

    async def _turn(self) -> End:
        self.requested_ns = self._clock_ns()
        segment = self.plan.next(self.reader)
        opening = list(segment.forced) if segment is not None else []
        try:
            used = await self.wait_for(self._answered(self._draft, self.options, opening))
        except (ApiError, ExceptionGroup) as fault:
            return End("failed", _first(fault))
        self._used = used or self._used
        return End("completed")

    def close(self, *, stopped: bool) -> None:
        """Do nothing: no item is open."""

    def usage(self, output: Output) -> Usage:
        return self._used.usage()


def _first(fault: Exception) -> ApiError:
    if isinstance(fault, ExceptionGroup):
        return _first(fault.exceptions[0])
    if isinstance(fault, ApiError):
        return fault
    raise fault


class LabelReader:
    """Reads how likely labels are behind a prompt."""

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        options: GenerateOptions,
        token_bytes: tuple[bytes, ...],
        used: Used,
    ) -> None:
        self._engine = engine
        self._options = replace(
            options, max_tokens=1, temperature=1.0, logprobs=limits.max_logprobs, seed=0
        )
        self._guides = limits.guides
        self._token_bytes = token_bytes
        self._tokens = _tokens(token_bytes)
        self._used = used
        self.places = asyncio.Semaphore(AT_ONCE)

    async def logs_of(self, labels: Sequence[tuple[str, ...]], prompt: list[int]) -> list[float]:
        """The log probability of each label."""
        heads = await self._parts({label[0] for label in labels}, prompt)
        if len(labels[0]) == 1:
            return [heads[label[0]] for label in labels]
        found: dict[tuple[str, ...], float] = {}
        for head, log in heads.items():
            group = {label[1] for label in labels if label[0] == head}
            tails = await self._parts(group, [*prompt, self._tokens[head][0]])
            found |= {(head, tail): log + tails[tail] for tail in group}
        return [found[label] for label in labels]

    async def _parts(self, parts: Iterable[str], prompt: list[int]) -> dict[str, float]:
        """The log probability of each of these as the next token, in any of its spellings."""
        wanted = {token_id: part for part in parts for token_id in self._tokens[part]}
        known: dict[int, float] = {}
        others: set[int] = set()
        for _ in range(ROUNDS):
            given = await self._next(prompt, tuple(sorted(others)))
            shift = _shift(known, given)
            new = {token_id: log + shift for token_id, log in given.items()}
            known = new | known
            found = {wanted[token_id] for token_id in known if token_id in wanted}
            more = {token_id for token_id in known if token_id not in wanted} - others
            lacking = set(wanted.values()) - found
            if not lacking or not more:
                break
            if self._guides:
                known |= await self._forced(sorted(lacking), prompt)
                break
            others |= more
        return {part: _total(wanted, known, part) for part in set(wanted.values())}

    async def _forced(self, parts: Sequence[str], prompt: list[int]) -> dict[int, float]:
        """The log probability of each part's plain token, to which a guide leaves the engine no
        other."""
        found = {}
        for part in parts:
            token_id = self._tokens[part][0]
            regex = "regex" in self._guides
            guide = Guide("regex", part) if regex else Guide("lark", f'start: "{part}"')
            given = await self._next(prompt, _beginnings(self._token_bytes, part), guide)
            if given.get(token_id, 0.0) < CERTAIN:
                found[token_id] = given[token_id]
        return found

    async def _next(
        self, prompt: list[int], banned: tuple[int, ...], guide: Guide | None = None
    ) -> dict[int, float]:
        sink = _One()
        options = replace(self._options, banned_ids=banned, guide=guide)
        handle = self._engine.generate(prompt, options, sink)
        try:
            last = await sink.last
        finally:
            handle.abort()
        if not sink.given or last.finish == "error":
            raise last.refusal or EngineLost(last.error or "The engine gave no log probabilities.")
        self._used.read += len(prompt)
        self._used.written += 1
        self._used.cached += sink.cached
        first = sink.given[0]
        return {first.token_id: first.logprob, **dict(first.top)}


def _shift(known: Mapping[int, float], given: Mapping[int, float]) -> float:
    """What is added to likelihoods of a later round: bans may have made the others likelier."""
    both = [known[token_id] - log for token_id, log in given.items() if token_id in known]
    return sum(both) / len(both) if both else 0.0


def _total(wanted: Mapping[int, str], known: Mapping[int, float], part: str) -> float:
    """The log probability of a part; nothing where the engine's likeliest tokens lack it."""
    logs = [log for token_id, log in known.items() if wanted.get(token_id) == part]
    return math.log(math.fsum(map(math.exp, logs))) if logs else -math.inf


class _One:
    """A sink of one token."""

    def __init__(self) -> None:
        self.given: list[Logprob] = []
        self.cached = 0
        self.last: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()

    def push(self, chunk: Chunk, /) -> None:
        self.given += chunk.logprobs
        self.cached = chunk.cached_tokens or self.cached
        if (chunk.finish is not None or self.given) and not self.last.done():
            self.last.set_result(chunk)


@lru_cache(maxsize=64)
def _beginnings(token_bytes: tuple[bytes, ...], part: str) -> tuple[int, ...]:
    """The tokens with which a part could be begun in place of its own."""
    spelled = part.encode()
    shorter = {spelled[:end] for end in range(1, len(spelled))}
    return tuple(n for n, piece in enumerate(token_bytes) if piece in shorter) if shorter else ()


@lru_cache(maxsize=8)
def _tokens(token_bytes: tuple[bytes, ...]) -> Mapping[str, Sequence[int]]:
    """The ids of all parts of labels: as they are first, then with a space or a capital."""
    ids: dict[str, list[int]] = {}
    parts = ["yes", "no", *(str(number) for number in range(17)), *map(chr, range(65, 81))]
    spelled = {
        spelling.encode(): part
        for part in parts
        for spelling in (part, f" {part}", part.capitalize(), f" {part.capitalize()}")
    }
    for token_id, piece in enumerate(token_bytes):
        if piece in spelled:
            ids.setdefault(spelled[piece], []).append(token_id)
    for part, found in ids.items():
        found.sort(key=lambda token_id: token_bytes[token_id] != part.encode())
    return ids
