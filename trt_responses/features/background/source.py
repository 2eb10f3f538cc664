"""What a job's next server makes its run from: the request as it came, and what fixes its prompt.

Knows requests as bytes; knows no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.responses import accept
from trt_responses.features.background.replayed import digest_of
from trt_responses.frozen import dataclass
from trt_responses.run.run import Run
from trt_responses.store import Job
from trt_responses.wire.dialect import DIALECTS, Dialect
from trt_responses.wire.parse import parse

FORM = 1
"""The version of this format: a server reads the formats that it writes, and no other."""


@dataclass(frozen=True, slots=True)
class Before:
    """A run as its server left it."""

    job: Job
    date: str
    prompt_digest: str


def source_of(run: Run, accepted: Accepted, request: bytes) -> bytes:
    """What another server needs to go on with a run, or nothing when none could: a tool's answers
    are no part of what is kept, and neither is how likely each token was, nor the summary that the
    answer goes on from. A request that names an MCP server may hold its secrets, and is not
    kept."""
    assert run.draft is not None, "it was just started"
    if not run.draft.moves or "mcp" in accepted.unsupported_tools:
        return b""
    head = {
        "form": FORM,
        "dialect": run.log.dialect.name,
        "date": run.date,
        "prompt": digest_of(run.prompt_ids),
    }
    return orjson.dumps(head) + b"\n" + request


def run_of(
    job: Job, built_in: Mapping[str, Sequence[str]]
) -> tuple[Accepted, Dialect, Before, bytes] | None:
    """The source of a run that resumes the job, and its request; None if it is unknown."""
    head, _, request = job.source.partition(b"\n")
    facts: dict[str, Any] = orjson.loads(head)
    frames_left = not job.frames and orjson.loads(job.body)["status"] != "queued"
    if facts["form"] != FORM or frames_left:  # no room for the frames already sent
        return None
    dialect = DIALECTS[facts["dialect"]]
    before = Before(job, facts["date"], facts["prompt"])
    return accept(parse(request), dialect, built_in), dialect, before, request
