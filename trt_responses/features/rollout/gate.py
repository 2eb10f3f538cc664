"""The gate: recorded prompts through the promoted version and the new one, compared.

Each prompt goes through the same way as a client's request, greedily and unstored. The promoted
version queues with the clients' requests; the new one gets copies of what that has to do
(`company.py`), so that both are timed under the same load. What is only slow is measured again,
since a machine may be busy for a moment. Where one has to be stopped before the other is loaded,
what the first has made is recorded. Knows how runs are made; knows no file and no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.responses import accept
from trt_responses.errors import ApiError, InvalidRequest, ServerBusy
from trt_responses.feature import Features
from trt_responses.features.rollout.company import Company
from trt_responses.features.rollout.loaded import Loaded
from trt_responses.features.rollout.measures import GateReport, Row, Took, better, report_of, slow
from trt_responses.frozen import dataclass
from trt_responses.run.admission import Place
from trt_responses.run.assembly import assembled
from trt_responses.run.draft import Draft
from trt_responses.run.facts import RunFacts
from trt_responses.run.parts import Parts
from trt_responses.run.request import RunRequest
from trt_responses.run.run import Run
from trt_responses.wire.parse import parse

Before = Callable[[int], Awaitable[Took]]
"""Gives what the version before makes of a prompt, by its place."""

TIMED_ROUNDS = 5
"""So often is measured what seems slow."""
PROMPT_S = 120.0
"""So long may the new version take for one prompt."""
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
"""The prompts used when the operator gives none."""


class Refused(Exception):
    """The gate stays shut, with the reason."""


def accepted_prompts(bodies: Sequence[Mapping[str, Any]]) -> list[Accepted]:
    """Bodies of `POST /v1/responses` as the gate sends them; raises an `InvalidRequest` that names
    the first invalid one."""
    found = []
    for place, body in enumerate(bodies, 1):
        body_sent = {
            "model": "gate",
            "max_output_tokens": MOST_TOKENS,
            **body,
            **{"temperature": 0, "store": False, "background": False, "stream": False},
        }
        for name in ("previous_response_id", "conversation", "prompt_cache_key"):
            body_sent.pop(name, None)
        try:
            found.append(accept(parse(orjson.dumps(body_sent))))
        except InvalidRequest as error:
            raise InvalidRequest(f"Prompt {place} of the gate: {error.message}") from None
    return found


@dataclass(frozen=True)
class Gate:
    """Compares two versions over the parts of a server."""

    parts: Parts
    prompts: Sequence[Accepted]
    made_by: Callable[[Loaded], Iterable[Run]]
    """The responses that a version is making."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def compare(self, old: Loaded, new: Loaded, *, exact: bool = False) -> GateReport:
        """Compare two loaded versions, which work at the same time."""

        async def before(place: int) -> Took:
            return await self._old(self.prompts[place], old)

        company = Company(new.engine, partial(self.made_by, old), self.sleep)
        return await self._compared(before, new, company.kept(), exact)

    async def accompany(self, old: Loaded, new: Loaded) -> None:
        """Keep the new version in company until cancelled, while another process compares."""
        async with Company(new.engine, partial(self.made_by, old), self.sleep).kept():
            await asyncio.Event().wait()

    async def recorded(self, old: Loaded) -> list[Took]:
        """What the promoted version makes of the prompts, with the better of two rounds' times."""
        rounds = [[await self._old(prompt, old) for prompt in self.prompts] for _ in range(2)]
        return [better(*both) for both in zip(*rounds, strict=True)]

    async def compare_recorded(
        self, recorded: Sequence[Took], new: Loaded, *, exact: bool = False
    ) -> GateReport:
        """Compare one that is loaded with what was recorded of another one."""

        async def before(place: int) -> Took:
            return recorded[place]

        return await self._compared(before, new, nullcontext(), exact)

    async def _compared(
        self,
        before: Before,
        new: Loaded,
        company: AbstractAsyncContextManager[None],
        exact: bool,
    ) -> GateReport:
        rows: list[Row] = []
        try:
            for place in range(len(self.prompts)):
                rows.append(await self._first(place, before, new))  # noqa: PERF401 - kept if it raises
            self._check_output(rows, exact)
            async with company:
                timed: list[Row] = []  # what was quick before it had company does not count
                for _ in range(TIMED_ROUNDS):
                    timed = rows = await self._timed(timed, before, new)
                    report = report_of(rows, len(self.prompts))
                    if (why := slow(report, rows)) is None:
                        return report
            raise Refused(why)
        except Refused as refusal:
            return replace(report_of(rows, len(self.prompts)), refused=str(refusal))

    def _check_output(self, rows: Sequence[Row], exact: bool) -> None:
        repairs = report_of(rows, len(self.prompts)).repairs
        if repairs is not None and repairs[1] > repairs[0]:
            raise Refused(
                f"it needed {repairs[1]} repairs of malformed output, the promoted version "
                f"{repairs[0]}"
            )
        if exact and (different := [n for n, row in enumerate(rows, 1) if row.equal < 1]):
            raise Refused(
                f"its tokens are not those of the promoted version for the prompts {different}"
            )

    async def _first(self, place: int, before: Before, new: Loaded) -> Row:
        """One prompt of both, which also warms them; refused when it does not end lawfully."""
        prompt, which = self.prompts[place], f"prompt {place + 1} of {len(self.prompts)}"
        row = await self._both(place, before, new, which)
        took = row.new
        if took.fault is not None:
            raise Refused(f"{which} ended {took.status}: {took.fault}")
        _check_alive(new, which)
        guided = prompt.answer is not None or bool(prompt.tools)
        if guided and took.status != "completed" and row.old.status == "completed":
            raise Refused(f"{which} has a guided answer, which did not come to its end")
        return row

    async def _timed(self, rows: Sequence[Row], before: Before, new: Loaded) -> list[Row]:
        """Both once more, with the better of each one's times where there are `rows` already."""
        found = []
        for place in range(len(self.prompts)):
            row = await self._both(place, before, new, "a prompt")
            if row.new.fault is not None:
                raise Refused(f"a prompt ended {row.new.status} the second time: {row.new.fault}")
            _check_alive(new, "a prompt that it had answered before")
            found.append(row)
        if not rows:
            return found
        return [
            Row(better(row.old, again.old), better(row.new, again.new))
            for row, again in zip(rows, found, strict=True)
        ]

    async def _both(self, place: int, before: Before, new: Loaded, which: str) -> Row:
        """Of both at the same time."""
        old = asyncio.ensure_future(before(place))
        try:
            took = await self._new(self.prompts[place], new, which)
            return Row(await old, took)
        finally:
            old.cancel()
            await asyncio.gather(old, return_exceptions=True)

    async def _old(self, prompt: Accepted, old: Loaded) -> Took:
        """In the queue with the clients; retries while the server is full."""
        while True:
            try:
                place = self.parts.admission.enter(OWNER)
            except ServerBusy:
                await self.sleep(BUSY_S)
                continue
            return await self._facts(prompt, old, place)

    async def _new(self, prompt: Accepted, new: Loaded, which: str) -> Took:
        try:
            async with asyncio.timeout(PROMPT_S):
                return await self._facts(prompt, new, _NoLine())
        except TimeoutError:
            raise Refused(f"{which} did not end within {PROMPT_S:g} s") from None
        except ApiError as error:
            raise Refused(f"{which} was rejected: {error.message}") from None

    async def _facts(self, prompt: Accepted, loaded: Loaded, place: Place) -> Took:
        ended: list[RunFacts] = []

        class Ears:
            def run_ended(self, facts: RunFacts) -> None:
                ended.append(facts)

        parts = replace(self.parts, engine=loaded.engine, recovery=None, listeners=(Ears(),))
        lease = loaded.lease()
        try:
            request = RunRequest(prompt, OWNER, parts.clock_ns())
            draft = Draft(request, Features(parts.features).steps(prompt), parts)
            draft.place = place
            try:
                run = await assembled(draft)
                await run.make()
            finally:
                await draft.release()
            return _took(run, ended[0])
        finally:
            place.leave()
            lease.release()


def _check_alive(new: Loaded, which: str) -> None:
    """Refuse a version that has died at a prompt, also one that has mended itself since."""
    health = new.engine.health()
    if not (health.alive and health.ready):
        raise Refused(f"it died at {which}: {health.reason or 'it gave no reason'}")
    if health.restarts:
        raise Refused(f"it died at {which}, and was started again")


class _NoLine:
    """A slot that never waits: only the gate uses the new version."""

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
    requested, first = facts.requested_ns or 0, facts.first_token_ns or 0
    return Took(
        status=last.status,
        fault=fault,
        token_ids=tuple(run.reader.kept),
        repairs=sum(facts.repairs.values()),
        first_token_s=max(0, first - requested) / 1e9,
        decode_s=max(0, (facts.last_token_ns or first) - first) / 1e9,
    )
