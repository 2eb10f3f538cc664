"""Options of sampling that other servers have: read from a request, and given to the engine.

`stop_token_ids` and `min_tokens` are made of what every engine has: stops and bans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from trt_responses.engine import CONTINUATION_PRIORITY, Chunk, Engine, GenerateOptions, Handle, Sink
from trt_responses.errors import ApiError, invalid_value, unsupported_value
from trt_responses.feature import Step
from trt_responses.language.steering import Free
from trt_responses.run.draft import Draft

MOST_STOPS, MOST_BIASES = 64, 1024
BAN = -100.0
"""The bias of an id that is never chosen."""
ENDS = {"<|return|>", "<|call|>"}
"""gpt-oss stops at these in any case; vLLM's recipe for it has both among `stop_token_ids`."""
TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")
"""An id as a key: each has one spelling, so that none is named twice."""


class Sampling(NamedTuple):
    """What a request asks for in these words."""

    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0

    @property
    def bans(self) -> tuple[int, ...]:
        """The biased ids, if all of them are banned: which every engine can do."""
        if any(bias > BAN for _, bias in self.logit_bias):
            return ()
        return tuple(token_id for token_id, _ in self.logit_bias)


NOTHING = Sampling()


def _number(place: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid_value(place, f"it must be a number from {low:g} to {high:g}")
    return float(value)


def _whole(place: str, value: Any, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise invalid_value(place, f"it must be a whole number from 0 to {high}")
    return value


def sampling_of(ignored: Mapping[str, Any]) -> Sampling:
    """What a request's fields ask for. Raises for what no engine can do."""
    penalty, bias = ignored.get("repetition_penalty"), ignored.get("logit_bias")
    stops, least = ignored.get("stop_token_ids"), ignored.get("min_tokens")
    return Sampling(
        1.0 if penalty is None else _number("repetition_penalty", penalty, 0.01, 2),
        () if bias is None else _biases(bias),
        () if stops is None else _stops(stops),
        0 if least is None else _whole("min_tokens", least, 2**31),
    )


def _biases(value: Any) -> tuple[tuple[int, float], ...]:
    place = "logit_bias"
    if not isinstance(value, dict) or not all(map(TOKEN_ID.fullmatch, value)):
        raise invalid_value(place, "it must be an object with ids of tokens as keys")
    if len(value) > MOST_BIASES:
        raise invalid_value(place, f"it has {len(value)} ids, limit {MOST_BIASES}")
    return tuple((int(key), _number(place, bias, BAN, -BAN)) for key, bias in value.items())


def _stops(value: Any) -> tuple[int, ...]:
    place = "stop_token_ids"
    if not isinstance(value, list) or len(value) > MOST_STOPS:
        raise invalid_value(place, f"it must be a list of at most {MOST_STOPS} ids of tokens")
    return tuple(dict.fromkeys(_whole(place, token_id, 2**31) for token_id in value))


class SamplingStep(Step):
    """Gives these options to the engine of one run."""

    order = 95  # around the engine that other steps have put there

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    async def acquire(self, draft: Draft) -> None:
        """Refuse what this engine or its vocabulary does not have."""
        limits, lexicon = draft.limits, draft.parts.dialect.lexicon
        others = (i for i in self._sampling.stop_token_ids if lexicon.control_name(i) not in ENDS)
        sampling = self._sampling = self._sampling._replace(stop_token_ids=tuple(others))
        size = len(lexicon.token_bytes)
        biased = [token_id for token_id, _ in sampling.logit_bias]
        for name, ids in (("logit_bias", biased), ("stop_token_ids", sampling.stop_token_ids)):
            if ids and max(ids) >= size:
                what = f"{max(ids)} is no token of text: there are {size}; the server sets others"
                raise invalid_value(name, what)
        for name in ("repetition_penalty", "logit_bias"):
            changed = getattr(sampling, name) != getattr(NOTHING, name)
            banned = name == "logit_bias" and sampling.bans and "banned_ids" not in limits.ignores
            if changed and not banned and name not in limits.extras:
                raise unsupported_value(name, "this engine has nothing like it")
        most = draft.accepted.max_output_tokens
        if most is not None and sampling.min_tokens > most:
            raise invalid_value("min_tokens", f"it is {sampling.min_tokens}, and at most {most}")

    async def planned(self, draft: Draft) -> None:
        """Refuse the least number of tokens for an answer of a given form."""
        if not self._sampling.min_tokens:
            return
        if "banned_ids" in draft.limits.ignores:
            raise unsupported_value("min_tokens", "this engine has nothing like it")
        if not isinstance(draft.plan_for(len(draft.prompt.ids)), Free):
            why = "its answer is guided, by a form, a tool's schema or a limit of reasoning"
            raise unsupported_value("min_tokens", why)

    def write(self, draft: Draft) -> None:
        sampling, bans = self._sampling, self._sampling.bans
        draft.options = replace(
            draft.options,
            repetition_penalty=sampling.repetition_penalty,
            logit_bias=() if bans else sampling.logit_bias,
        )
        if bans or sampling.stop_token_ids or sampling.min_tokens:
            draft.engine = Bounded(draft.engine, sampling, len(draft.prompt.ids))


class Bounded:
    """The engine of one run, which also stops at the client's ids, and not before it has written
    so many tokens."""

    def __init__(self, engine: Engine, sampling: Sampling, prompt_tokens: int) -> None:
        self._engine, self._sampling, self._prompt_tokens = engine, sampling, prompt_tokens
        self.health, self.limits = engine.health, engine.limits
        self.start, self.stop = engine.start, engine.stop

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        options = replace(
            options,
            stop_ids=(*options.stop_ids, *self._sampling.stop_token_ids),
            banned_ids=(*options.banned_ids, *self._sampling.bans),
        )
        written = len(prompt_ids) - self._prompt_tokens
        if (least := self._sampling.min_tokens - written) > 0:
            return _Least(self._engine, prompt_ids, options, sink, least)
        return self._engine.generate(prompt_ids, options, sink)


class _Least:
    """One request as two: first the least number of tokens, with no id that would stop it, then the
    rest. It is the first one's sink, and the handle of both."""

    def __init__(
        self,
        engine: Engine,
        prompt_ids: Sequence[int],
        options: GenerateOptions,
        sink: Sink,
        least: int,
    ) -> None:
        self._engine, self._options, self._sink = engine, options, sink
        self._ids = [*prompt_ids]
        self._left = options.max_tokens
        self._aborted = False
        first = replace(
            options,
            max_tokens=min(least, options.max_tokens),
            stop_ids=(),
            banned_ids=(*options.banned_ids, *options.stop_ids),
        )
        self._handle = engine.generate(prompt_ids, first, self)

    def abort(self) -> None:
        self._aborted = True
        self._handle.abort()

    def push(self, chunk: Chunk, /) -> None:
        self._ids += chunk.token_ids
        self._left -= len(chunk.token_ids)
        if chunk.finish != "length" or self._left < 1:
            self._sink.push(chunk)
            return
        self._sink.push(chunk._replace(finish=None, metrics=None))
        if not self._aborted:
            self._go_on()

    def _go_on(self) -> None:
        rest = replace(self._options, max_tokens=self._left, priority=CONTINUATION_PRIORITY)
        try:
            self._handle = self._engine.generate(self._ids, rest, self._sink)
        except ApiError as fault:
            self._sink.push(Chunk(finish="error", error=fault.message, refusal=fault))
