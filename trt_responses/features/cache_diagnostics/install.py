"""Compares a prompt with an earlier response's, id by id: `prompt_cache_diagnostics`.

The ids of recent responses are those that are kept to be explained. Knows ids, and what a stored
response holds of its request; knows no engine, and not whether one still has the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.feature import Step
from trt_responses.features.explain.explanations import Explanations
from trt_responses.features.run_traces.trace import Trace
from trt_responses.frozen import replace
from trt_responses.run.draft import Draft
from trt_responses.run.run import Run
from trt_responses.setup.server import Server
from trt_responses.store import Record
from trt_responses.wire.response import Response

Json = dict[str, Any]

SUMMARIES = ("summary", "context")
"""The kinds of blocks that a compaction leaves."""


class Diagnoses:
    """Compares the prompts of requests that name a response to compare with."""

    reads = ("compared",)

    def __init__(self, kept: Explanations) -> None:
        self._kept = kept

    def accept(self, accepted: Accepted) -> Step | None:
        assert accepted.compared is not None
        return DiagnosisStep(self._kept, accepted.compared)


class DiagnosisStep(Step):
    """Compares one run's prompt."""

    order = 95  # what else extends the last snapshot copies the keys that it knows

    def __init__(self, kept: Explanations, compared: str) -> None:
        self._kept, self._compared = kept, compared
        self._found: Json = {}

    async def prompted(self, draft: Draft) -> None:
        self._found = await self._diagnosis(draft)

    async def conclude(self, last: Response, run: Run) -> Response:
        more: Json = {"prompt_cache_diagnostics": self._found}
        return replace(last, **more)

    async def _diagnosis(self, draft: Draft) -> Json:
        record = await draft.parts.store.get(self._compared, draft.owner)
        if not isinstance(record, Record) or record.version:
            return {"type": "comparison_response_not_found"}
        run = self._kept.get(self._compared, draft.owner)
        if run is None:
            return {"type": "unavailable"}
        ids, before = draft.prompt.ids, orjson.loads(record.body)
        adapter, model = draft.accepted.sampling.adapter, draft.parts.model
        same_model = before["model"] == (model if adapter is None else f"{model}:{adapter}")
        common = common_ids(ids, _in_cache(run.trace)) if same_model else 0
        if common >= len(run.trace.prompt_ids):
            return {"type": "cache_hit"}
        reason = _reason(draft, before, record) if same_model else "model_changed"
        return {
            "type": "cache_miss",
            "reason": reason,
            "cache_missed_tokens": len(ids) - common,
            "comparison_reusable_tokens": common,
        }


def _in_cache(trace: Trace) -> list[int]:
    """All the ids that a run has left in its engine's cache."""
    written = (part for segment in trace.segments for part in (segment.forced, segment.kept))
    return [*trace.prompt_ids, *(token_id for part in written for token_id in part)]


def common_ids(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of ids with which both begin."""
    for place, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            return place
    return min(len(one), len(other))


def _reason(draft: Draft, before: Json, record: Record) -> str:
    """What of the two requests differs, the first thing that stands in a prompt."""
    echo = draft.accepted.echo
    pairs = (
        ("reasoning_effort_changed", echo.reasoning["effort"], before["reasoning"]["effort"]),
        ("tools_changed", _plain(echo.tools), before["tools"]),
        ("text_format_changed", _plain(echo.text["format"]), before["text"]["format"]),
        ("verbosity_changed", echo.text["verbosity"], before["text"]["verbosity"]),
    )
    for reason, here, there in pairs:
        if here != there:
            return reason
    known = {block.ids for block in record.blocks}
    fresh = [block for block in draft.prompt.blocks if block.ids not in known]
    compacted = any(block.kind in SUMMARIES for block in fresh)
    return "context_compacted" if compacted else "input_changed"


def _plain(value: object) -> Any:
    """A value as JSON has it."""
    return orjson.loads(orjson.dumps(value))


def install(server: Server) -> None:
    server.features.append(Diagnoses(server.of(Explanations)))
