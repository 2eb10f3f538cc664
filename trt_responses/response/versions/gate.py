"""The gate: recorded prompts through the promoted version and the new one, compared.

Each prompt goes through the same way as a client's request, greedily and unstored. The promoted
version is asked in the line with everybody else; the new one gets copies of what that has to do
(`company.py`), so that both are timed under the same load. What is only slow is measured again,
since a machine may be busy for a moment. Knows how runs are made; knows no file and no HTTP.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from trt_responses.errors import ApiError, InvalidRequest, ServerBusy
from trt_responses.frozen import dataclass
from trt_responses.response.accept.responses import accept
from trt_responses.response.run.assembly import Assembly
from trt_responses.response.run.inputs import RunInputs
from trt_responses.response.versions.company import Company
from trt_responses.wire.parse import parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from trt_responses.response.accept.accepted import Accepted
    from trt_responses.response.admission import Place
    from trt_responses.response.parts import Parts
    from trt_responses.response.run.run import Run, RunFacts
    from trt_responses.response.versions.versions import Loaded

FIRST_TOKEN_RATIO = 1.5
"""So much longer may a first token take."""
SPEED_RATIO = 0.7
"""So much of the tokens per second must be there."""
TIMED_ROUNDS = 3
"""So often is measured what seems slow."""
PROMPT_S = 120.0
"""So long may the new version take for one prompt."""
UNNOTICED_S, UNNOTICED_TOKEN_S = 0.01, 0.0005
"""A first token that comes so much later, or each of the others, is not noticed, whatever the
ratio."""
LEAST_TOKENS = 4
"""With fewer tokens a speed says nothing."""
OWNER = "gate:"
"""Whose prompts they are; no key's owner is called so."""
MOST_TOKENS = 256
BUSY_S = 0.2

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather at a place.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
        "additionalProperties": False,
    },
    "strict": True,
}
PROMPTS: tuple[dict[str, Any], ...] = (
    {"input": "Hello!"},
    {"input": "Count to twelve."},
    {"input": "What is the capital of France?", "reasoning": {"effort": "high"}},
    {
        "input": "Bern is a city in Switzerland. Say so as JSON.",
        "text": {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}},
        "reasoning": {"effort": "low"},
    },
    {
        "input": "What is the weather in Paris?",
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
    },
    {
        "input": [
            {"role": "user", "content": "My name is Anna."},
            {"role": "assistant", "content": "Hello, Anna!"},
            {"role": "user", "content": "What is my name?"},
        ]
    },
)
"""What is asked where no prompts of the operator's are there."""


@dataclass(frozen=True, slots=True)
class Took:
    """What one version made of one prompt."""

    status: str
    fault: str | None
    token_ids: tuple[int, ...]
    repairs: int
    first_token_s: float
    decode_s: float


class Row(NamedTuple):
    """One prompt, and what both have made of it; the times are the best of each."""

    old: Took
    new: Took

    @property
    def equal(self) -> float:
        """The share of the tokens that are equal, up to the first that is not."""
        old, new = self.old.token_ids, self.new.token_ids
        same = next(
            (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
            min(len(old), len(new)),
        )
        return same / (max(len(old), len(new)) or 1)


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gate has measured, and why it stays shut if it does."""

    prompts: int
    refused: str | None = None
    equal_tokens: float | None = None
    first_token_ratio: float | None = None
    speed_ratio: float | None = None
    repairs: tuple[int, int] | None = None
    """Before, and now."""

    def told(self) -> dict[str, Any]:
        return {
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


class Refused(Exception):
    """The gate stays shut, with the reason."""


def accepted_prompts(bodies: Sequence[Mapping[str, Any]]) -> list[Accepted]:
    """Bodies of `POST /v1/responses` as the gate asks them; raises an `InvalidRequest` that says
    which cannot be asked."""
    found = []
    for place, body in enumerate(bodies, 1):
        asked = {
            "model": "gate",
            "max_output_tokens": MOST_TOKENS,
            **body,
            **{"temperature": 0, "store": False, "background": False, "stream": False},
        }
        for name in ("previous_response_id", "conversation", "prompt_cache_key"):
            asked.pop(name, None)
        try:
            found.append(accept(parse(orjson.dumps(asked))))
        except InvalidRequest as error:
            raise InvalidRequest(f"Prompt {place} of the gate: {error.message}") from None
    return found


class Gate:
    """Compares two versions over the parts of a server."""

    def __init__(
        self,
        parts: Parts,
        prompts: Sequence[Accepted],
        made_by: Callable[[Loaded], Iterable[Run]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`made_by` says which responses a version is making."""
        self._parts = parts
        self._prompts = prompts
        self._made_by = made_by
        self._sleep = sleep

    async def compare(self, old: Loaded, new: Loaded, *, exact: bool = False) -> GateReport:
        rows: list[Row] = []
        try:
            for place, prompt in enumerate(self._prompts, 1):
                rows.append(await self._first(place, prompt, old, new))
            report = self._report(rows)
            if report.repairs is not None and report.repairs[1] > report.repairs[0]:
                raise Refused(
                    f"it needed {report.repairs[1]} repairs of malformed output, the promoted "
                    f"version {report.repairs[0]}"
                )
            if exact and (different := [n for n, row in enumerate(rows, 1) if row.equal < 1]):
                raise Refused(
                    f"its tokens are not those of the promoted version for the prompts {different}"
                )
            async with Company(new.engine, partial(self._made_by, old), self._sleep).kept():
                timed: list[Row] = []  # what was quick before it had company does not count
                for _ in range(TIMED_ROUNDS):
                    timed = rows = await self._timed(timed, old, new)
                    report = self._report(rows)
                    if (slow := _slow(report, rows)) is None:
                        return report
            raise Refused(slow)
        except Refused as refusal:
            return replace(self._report(rows), refused=str(refusal))

    async def _first(self, place: int, prompt: Accepted, old: Loaded, new: Loaded) -> Row:
        """One prompt of both, which also warms them; refused when it does not end lawfully."""
        which = f"prompt {place} of {len(self._prompts)}"
        before, took = await self._both(prompt, old, new, which)
        if took.fault is not None:
            raise Refused(f"{which} ended {took.status}: {took.fault}")
        health = new.engine.health()
        if not (health.alive and health.ready):
            raise Refused(f"it died at {which}: {health.reason or 'it gave no reason'}")
        guided = prompt.answer is not None or bool(prompt.tools)
        if guided and took.status != "completed" and before.status == "completed":
            raise Refused(f"{which} has a guided answer, which did not come to its end")
        return Row(before, took)

    async def _timed(self, rows: Sequence[Row], old: Loaded, new: Loaded) -> list[Row]:
        """Both once more, with the better of each one's times where there are `rows` already."""
        found = []
        for prompt in self._prompts:
            before, took = await self._both(prompt, old, new, "a prompt")
            if took.fault is not None:
                raise Refused(f"a prompt ended {took.status} the second time: {took.fault}")
            found.append(Row(before, took))
        if not rows:
            return found
        return [
            Row(_better(row.old, again.old), _better(row.new, again.new))
            for row, again in zip(rows, found, strict=True)
        ]

    async def _both(
        self, prompt: Accepted, old: Loaded, new: Loaded, which: str
    ) -> tuple[Took, Took]:
        """Of both at the same time."""
        before = asyncio.create_task(self._old(prompt, old))
        try:
            took = await self._new(prompt, new, which)
            return await before, took
        finally:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)

    async def _old(self, prompt: Accepted, old: Loaded) -> Took:
        """In the line with everybody; a server that is full is asked again."""
        while True:
            try:
                place = self._parts.admission.enter(OWNER)
            except ServerBusy:
                await self._sleep(BUSY_S)
                continue
            return await self._asked(prompt, old, place)

    async def _new(self, prompt: Accepted, new: Loaded, which: str) -> Took:
        try:
            return await asyncio.wait_for(self._asked(prompt, new, _NoLine()), PROMPT_S)
        except TimeoutError:
            raise Refused(f"{which} did not end within {PROMPT_S:g} s") from None
        except ApiError as error:
            raise Refused(f"{which} was not taken: {error.message}") from None

    async def _asked(self, prompt: Accepted, loaded: Loaded, place: Place) -> Took:
        heard: list[RunFacts] = []

        class Ears:
            def run_ended(self, facts: RunFacts) -> None:
                heard.append(facts)

        parts = replace(self._parts, engine=loaded.engine, recovery=None, listeners=(Ears(),))
        lease = loaded.lease()
        try:
            assembly = Assembly(parts)
            inputs = RunInputs(assembly.new_id(), prompt, OWNER, parts.clock_ns())
            run = await assembly.run(inputs, place)
            await run.make()
            return _took(run, heard[0])
        finally:
            place.leave()
            lease.release()

    def _report(self, rows: Sequence[Row]) -> GateReport:
        if not rows:
            return GateReport(len(self._prompts))
        tokens = [max(len(row.old.token_ids), len(row.new.token_ids)) for row in rows]
        equal = sum(row.equal * count for row, count in zip(rows, tokens, strict=True))
        speeds = [row for row in rows if min(map(_decoded, row)) >= LEAST_TOKENS]
        return GateReport(
            prompts=len(self._prompts),
            equal_tokens=equal / max(1, sum(tokens)),
            first_token_ratio=_ratio(
                sum(row.new.first_token_s for row in rows),
                sum(row.old.first_token_s for row in rows),
            ),
            speed_ratio=_ratio(_speed([r.new for r in speeds]), _speed([r.old for r in speeds])),
            repairs=(sum(row.old.repairs for row in rows), sum(row.new.repairs for row in rows)),
        )


class _NoLine:
    """A place for who need not wait: nobody else asks the new version."""

    def line_up(self, prompt_tokens: int) -> None: ...

    def turn(self) -> asyncio.Future[None] | None:
        return None

    def headers(self) -> dict[str, str]:
        return {}

    def leave(self, generated_tokens: int = 0) -> None: ...


def _took(run: Run, facts: RunFacts) -> Took:
    last = facts.response
    fault = None
    if last.status not in ("completed", "incomplete"):
        fault = run.error.message.rstrip(".") if run.error is not None else "it gave no reason"
    asked, first = facts.asked_ns or 0, facts.first_token_ns or 0
    return Took(
        status=last.status,
        fault=fault,
        token_ids=tuple(run.reader.kept),
        repairs=sum(facts.repairs.values()),
        first_token_s=max(0, first - asked) / 1e9,
        decode_s=max(0, (facts.last_token_ns or first) - first) / 1e9,
    )


def _better(one: Took, other: Took) -> Took:
    """The earlier outcome, with the better of the times. Times of other lengths do not compare."""
    if len(one.token_ids) != len(other.token_ids):
        return replace(one, first_token_s=min(one.first_token_s, other.first_token_s))
    return replace(
        one,
        first_token_s=min(one.first_token_s, other.first_token_s),
        decode_s=min(one.decode_s, other.decode_s),
    )


def _decoded(took: Took) -> int:
    return len(took.token_ids) - 1


def _speed(took: Sequence[Took]) -> float:
    """Tokens per second, the first ones left out."""
    return max(1, sum(map(_decoded, took))) / (sum(each.decode_s for each in took) or 1e-9)


def _ratio(new: float, old: float) -> float | None:
    return new / old if old > 0 else None


def _slow(report: GateReport, rows: Sequence[Row]) -> str | None:
    """What is too slow, if it is by so much that somebody could notice."""
    first, speed = report.first_token_ratio, report.speed_ratio
    later_s = sum(row.new.first_token_s - row.old.first_token_s for row in rows) / len(rows)
    speeds = [row for row in rows if min(map(_decoded, row)) >= LEAST_TOKENS]
    longer_s = 0.0
    if speeds:
        longer_s = 1 / _speed([r.new for r in speeds]) - 1 / _speed([r.old for r in speeds])
    if first is not None and first > FIRST_TOKEN_RATIO and later_s > UNNOTICED_S:
        return (
            f"its first tokens take {first:.2f} times as long as the promoted version's, and at "
            f"most {FIRST_TOKEN_RATIO:g} times is allowed"
        )
    if speed is not None and speed < SPEED_RATIO and longer_s > UNNOTICED_TOKEN_S:
        return (
            f"it makes {speed:.2f} times the tokens per second of the promoted version, and at "
            f"least {SPEED_RATIO:g} times is asked for"
        )
    return None
