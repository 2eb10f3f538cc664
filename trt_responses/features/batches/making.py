"""The making of one batch: its file is checked, and each of its requests is answered once."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from trt_responses.errors import ApiError, InvalidRequest, ServerShutdown, error_body, invalid_value
from trt_responses.features.batches.answers import AnswersBatches
from trt_responses.features.batches.work import Work, lines_of
from trt_responses.features.files.files import Files
from trt_responses.frozen import replace
from trt_responses.run.parts import Parts
from trt_responses.run.request import RunRequest
from trt_responses.run.run import Run
from trt_responses.run.runs import Runs
from trt_responses.store import Job, Record
from trt_responses.stores.whole import whole_store
from trt_responses.tasks import beside
from trt_responses.wire.dialect import OPENAI
from trt_responses.wire.response import Usage

logger = logging.getLogger(__name__)

MOST_REQUESTS = 50_000
MOST_FAULTS = 20
"""Faults of an input file that the batch names."""
LOOK_S = 0.1
"""Seconds between two looks for an idle place."""
BEHIND_ALL = 0.0
"""The engine's priority of a batch's requests."""
DRAINED = 503
AGAIN = (429, DRAINED)
"""Statuses after which a request is tried again: where this server ends, by the next one."""

EXPIRED = {
    "code": "batch_expired",
    "message": "This request could not be executed before the completion window expired.",
}
GENERAL = "The server failed ({0.__class__.__name__}); the log has the details."

NO_TOKENS: Mapping[str, int] = {}

Fault = tuple[str, str]
"""A code, and what is wrong."""


@dataclass(slots=True)
class Maker:
    """What batches are made with, and the places that they may have."""

    parts: Parts
    runs: Runs
    files: Files
    answers: Mapping[str, AnswersBatches]
    """By the APIs' paths."""
    places: Callable[[], int]
    """Returns the engine's places, now."""
    most_line_bytes: int
    sleep: Callable[[float], Awaitable[None]]
    notify: Callable[[str, str], None]
    """Called with the kind of an event, and the id of the batch that has ended so."""
    _starting: int = 0

    async def place(self, stop: asyncio.Event) -> bool:
        """Wait for a place in the engine that nothing else wants; False if `stop` came first. When
        the run has begun, `started` has to be called."""
        admission = self.parts.admission
        while (
            not self.runs.takes_work
            or admission.waiting
            or admission.running + self._starting >= self.places()
        ):
            if stop.is_set():
                return False
            await self.sleep(LOOK_S)
        self._starting += 1
        return True

    def started(self) -> None:
        self._starting -= 1


class Reply(NamedTuple):
    """The answer to a request, in JSON, and its tokens by name."""

    status: int
    body: bytes
    tokens: Mapping[str, int] = NO_TOKENS


class Making:
    """One batch under this server."""

    def __init__(self, maker: Maker, job: Job, beat_s: float) -> None:
        self._maker = maker
        self._job = job
        self._beat_s = beat_s
        self._body: dict[str, Any] = orjson.loads(job.body)
        self._answers = maker.answers[self._body["endpoint"]]
        self._age_s = output_age_s(job)
        self._end: Literal["cancelled", "expired", "gone"] | None = None
        self._stop = asyncio.Event()
        self._adding = asyncio.Lock()
        self._tasks = set[asyncio.Task[None]]()
        self._broken: BaseException | None = None
        """Why an answer could not be kept."""
        self._runs: set[Run] = set()

    async def make(self) -> None:
        job, whole = self._job, False
        work = await asyncio.to_thread(Work, self._maker.files, job.owner, job.id, job.term)
        try:
            async with beside(self._beat(work)):
                faults = await asyncio.to_thread(self._check)
                if faults:
                    await self._write_files(work)  # what was answered before the file was deleted
                    self._note("failed", errors={"object": "list", "data": faults})
                else:
                    self._note("in_progress")
                    await self._answer_all(work)
                    if self._end != "gone":
                        self._note("finalizing")
                        await self._write_files(work)
                        self._note(self._end or "completed")
            whole = await self._finish()
        finally:
            work.close(whole=whole)  # here: a server that ends waits for no thread

    def _note(self, status: str, **more: object) -> None:
        self._body |= {"status": status, **more}
        self._body.setdefault(f"{status}_at", int(time.time()))

    async def _beat(self, work: Work) -> None:
        """Keep the lease, and the batch as it is for its readers."""
        store, job = whole_store(self._maker.parts.store), self._job
        while self._end != "gone":
            self._count(work)  # not at each answer: it adds up all of them
            try:
                standing = await store.renew_job(job.id, orjson.dumps(self._body), term=job.term)
            except ApiError as fault:  # away for now: within the lease it may come back
                logger.warning("failed to renew the lease of %s: %s", job.id, fault.message)
                standing = "held"
            if standing == "gone":
                self._end = "gone"
            elif standing == "cancel":
                self._end = "cancelled"
            elif time.time() >= self._body["expires_at"]:
                self._end = "expired"
            if self._end is not None:
                self._stop.set()
            await self._maker.sleep(self._beat_s)

    def _lines(self) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """The requests by their numbers, each with its line's place in the file."""
        pieces = self._maker.files.content(self._job.owner, self._body["input_file_id"])
        return enumerate(lines_of(pieces, self._maker.most_line_bytes), 1)

    def _check(self) -> list[dict[str, object]]:
        """The first faults of the input file."""
        faults, names, number = list[dict[str, object]](), set[bytes](), 0
        try:
            for number, (place, line) in self._lines():
                if (fault := self._fault(line, names)) is not None:
                    faults.append(fault_of(place, *fault))
                if len(faults) == MOST_FAULTS or number > MOST_REQUESTS:
                    break
        except ApiError as error:  # it was deleted meanwhile, or its key is missing
            return [fault_of(None, "invalid_file", error.message)]
        if not 1 <= number <= MOST_REQUESTS:
            message = f"The file must have 1 to {MOST_REQUESTS} requests, a line each."
            faults.append(fault_of(None, "invalid_file", message))
        self._body["request_counts"]["total"] = number
        return faults

    def _fault(self, line: bytes, names: set[bytes]) -> Fault | None:
        if len(line) > self._maker.most_line_bytes:
            return "line_too_long", f"The line has over {self._maker.most_line_bytes} bytes."
        try:
            request = orjson.loads(line)
            name, method, url = request["custom_id"], request["method"], request["url"]
            known = isinstance(name, str) and isinstance(request["body"], dict)
        except (ValueError, KeyError, TypeError):
            known = False
        if not known:
            return "invalid_json_line", (
                "The line is not an object with custom_id, method, url and body."
            )
        if (digest := hashlib.sha256(name.encode()).digest()) in names:
            return "duplicate_custom_id", f"The custom_id '{name:.64}' stands in an earlier line."
        names.add(digest)  # names may be as long as lines
        if (method, url) != ("POST", self._body["endpoint"]):
            return "mismatched_endpoint", f"Expected POST {self._body['endpoint']}."
        return None

    async def _answer_all(self, work: Work) -> None:
        """Answer what no server before has answered, until all is answered or it has to stop."""
        lines = self._lines()
        stopped = asyncio.create_task(self._stop.wait())
        try:
            while (found := await asyncio.to_thread(next, lines, None)) is not None:
                number, (_, line) = found
                if number in work.failed:
                    continue
                if not await self._maker.place(self._stop):
                    break
                task = asyncio.create_task(self._answer(number, line, work))
                self._tasks.add(task)
                task.add_done_callback(self._answered)
            while self._tasks and not self._stop.is_set():
                await asyncio.wait((*self._tasks, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            self._stop.set()
            while self._tasks:  # one may be about to begin its run
                for run in tuple(self._runs):
                    run.cancel()
                await asyncio.wait(self._tasks, timeout=LOOK_S)
        self._count(work)
        if self._broken is not None:
            raise self._broken

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._broken = fault
            self._stop.set()

    async def _answer(self, number: int, line: bytes, work: Work) -> None:
        """Answer one request, which has a place already, and keep the answer."""
        request = orjson.loads(line)
        while True:
            reply = await self._reply(request["body"])
            if reply is None or self._stop.is_set():
                return
            if reply.status not in AGAIN:
                break
            await self._maker.sleep(self._beat_s)
            if not await self._maker.place(self._stop):
                return
        body = orjson.Fragment(reply.body)
        response = {"status_code": reply.status, "request_id": self._name(number), "body": body}
        failed, written = reply.status != 200, self._row(number, request, response, None)
        async with self._adding:
            await asyncio.to_thread(work.add, number, failed, written, reply.tokens)

    def _name(self, number: int) -> str:
        return f"batch_req_{self._job.id.partition('_')[2]}_{number}"

    def _row(self, number: int, request: Any, response: object, error: object) -> bytes:
        facts = {"id": self._name(number), "custom_id": request["custom_id"]}
        return orjson.dumps(facts | {"response": response, "error": error})

    def _expired(self, work: Work) -> Iterator[bytes]:
        """A row for each request without an answer, where the window has ended."""
        with suppress(ApiError, FileNotFoundError):  # the input file was deleted meanwhile
            for number, (_, line) in self._lines() if self._end == "expired" else ():
                if number not in work.failed:
                    yield self._row(number, orjson.loads(line), None, EXPIRED)

    def _count(self, work: Work) -> None:
        failed = sum(work.failed.values())
        counts = {"completed": len(work.failed) - failed, "failed": failed}
        self._body["request_counts"] |= counts
        self._body["usage"] = usage_of(work.tokens)

    async def _reply(self, body: object) -> Reply | None:
        """The answer; None if it was broken off."""
        maker = self._maker
        try:
            try:
                accepted, stream, spelling, whole = await self._answers.wanted(_written(body))
                if stream:
                    raise invalid_value("stream", "a batch has no streams and no background")
                sampling = replace(accepted.sampling, priority=BEHIND_ALL)
                accepted = replace(accepted, sampling=sampling)
                run = await maker.runs.start(
                    RunRequest(accepted, self._job.owner, time.monotonic_ns(), OPENAI, spelling)
                )
            finally:
                maker.started()
            self._runs.add(run)
            try:
                last = await maker.runs.make(run)
            finally:
                self._runs.discard(run)
            if last.status == "cancelled":
                return None
            if last.status == "failed":
                raise run.error or ApiError("The response failed.")
            return Reply(200, whole(run), _tokens(last.usage))
        except Exception as fault:
            error = fault if isinstance(fault, ApiError) else ApiError(GENERAL.format(fault))
            if error is not fault:
                logger.exception("failed to answer a request of %s", self._job.id)
            later = isinstance(error, ServerShutdown) or error.retry_after_s is not None
            status = DRAINED if later else error.status
            return Reply(status, orjson.dumps({"error": error_body(error)}))

    async def _write_files(self, work: Work) -> None:
        for name, failed in (("output", False), ("error", True)):
            file = f"{self._job.id}_{name}.jsonl"
            more = self._expired(work) if failed else ()
            made = await asyncio.to_thread(
                work.write_out, file, self._age_s, failed=failed, more=more
            )
            self._body[f"{name}_file_id"] = made

    async def _finish(self) -> bool:
        """Whether the end is stored; else another server has the batch."""
        job, body = self._job, orjson.dumps(self._body)
        if self._end == "gone":
            return False
        record = Record(job.id, job.owner, body, (), 0, 0, False, "", job.created_at, version=1)
        is_stored = await whole_store(self._maker.parts.store).finish_job(record, term=job.term)
        if is_stored:
            self._maker.notify(f"batch.{self._body['status']}", job.id)
        return is_stored


def _written(body: object) -> bytes:
    """orjson reads four times as deep as it writes."""
    try:
        return orjson.dumps(body)
    except TypeError:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_value") from None


def usage_of(tokens: Mapping[str, int]) -> dict[str, object]:
    """The tokens of a batch's answers, as the API gives them."""
    read, wrote = tokens.get("input", 0), tokens.get("output", 0)
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": tokens.get("cached", 0)},
        "output_tokens": wrote,
        "output_tokens_details": {"reasoning_tokens": tokens.get("reasoning", 0)},
        "total_tokens": read + wrote,
    }


def _tokens(usage: Usage | None) -> Mapping[str, int]:
    if usage is None:
        return NO_TOKENS
    return {
        "input": usage.input_tokens,
        "cached": usage.input_tokens_details.cached_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.output_tokens_details.reasoning_tokens,
    }


def source_of(output_age_s: int | None) -> bytes:
    """What a batch's next server needs beside the batch as the API gives it."""
    return orjson.dumps({"output_age_s": output_age_s})


def output_age_s(job: Job) -> int | None:
    """Seconds until the files of a batch expire, if its client has set that."""
    is_read = job.source.startswith(b"{")  # that of an older server is a path
    age_s: int | None = orjson.loads(job.source)["output_age_s"] if is_read else None
    return age_s


def fault_of(line: int | None, code: str, message: str) -> dict[str, object]:
    """A fault of a file as the API gives it."""
    return {"code": code, "line": line, "message": message, "param": None}
