"""A run explained: its prompt, its segments and its times, with control ids marked.

Knows traces and the dialect; knows no HTTP and no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import orjson

from trt_responses.dialect import Dialect
from trt_responses.errors import Forbidden
from trt_responses.features.explain.explanations import Outline
from trt_responses.features.explain.transcript import transcript_of
from trt_responses.features.run_traces.trace import SegmentTrace
from trt_responses.frozen import dataclass
from trt_responses.language.fragments import Closed, Fragment, Opened, Repaired, Text
from trt_responses.language.reader import ReaderOptions

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains runs. `redacts`: with counts of tokens in the place of texts and ordinary ids."""

    dialect: Dialect
    engine_of: Callable[[str], Mapping[str, Any]]
    """Returns what is known of the engine that made a response."""
    redacts: bool

    def explanation(self, run: Outline) -> Json:
        """Takes some 20 ms for 10,000 tokens: call it in a thread."""
        trace = run.trace
        return {
            "object": "response.explanation",
            "id": run.id,
            "status": run.status,
            "error": run.error,
            "model": run.model,
            "redacted": self.redacts,
            "plan": trace.plan.partition(" ")[0] if self.redacts else trace.plan,
            "prompt": {
                "tokens": len(trace.prompt_ids),
                "cached_tokens": trace.cached_tokens,
                "pieces": self.pieces(trace.prompt_ids),
            },
            "segments": [self._segment(s, run.arrival_ns) for s in trace.segments],
            "fragments": self._fragments(run),
            "repairs": dict(run.repairs),
            "timeline": list(_timeline(run)),
            "engine": self.engine_of(run.id),
        }

    def transcript(self, run: Outline, name: str) -> Json:
        """The run as a file of `tests/transcripts/`. Likewise in a thread."""
        if self.redacts:
            raise Forbidden(
                "A transcript contains the model's text, and this server redacts texts: "
                "TRT_RESPONSES_EXPLAIN is redacted.",
                code="explain_redacted",
            )
        return transcript_of(run, name, self.dialect)

    def pieces(self, ids: Sequence[int]) -> list[Json]:
        """Runs of ordinary ids with their text, and between them each control id by its name."""
        pieces: list[Json] = []
        for ordinary, run in groupby(ids, key=lambda i: not self.dialect.lexicon.is_control(i)):
            if not ordinary:
                pieces += [{"control": self.dialect.lexicon.control_name(i), "id": i} for i in run]
            elif self.redacts:
                pieces.append({"tokens": sum(1 for _ in run)})
            else:
                text_ids = list(run)
                pieces.append({"text": self.dialect.lexicon.text(text_ids), "ids": text_ids})
        return pieces

    def _segment(self, segment: SegmentTrace, arrival_ns: int) -> Json:
        guide, redacts = segment.guide, self.redacts
        return {
            "name": segment.name,
            "outcome": segment.outcome,
            **({"engine": segment.lost} if segment.lost else {}),
            "max_tokens": segment.max_tokens,
            "guide": guide and {"kind": guide.kind, "source": None if redacts else guide.source},
            **({"answer": self.pieces(segment.answer)} if segment.answer else {}),
            "forced": self.pieces(segment.forced),
            "kept": self.pieces(segment.kept),
            "discarded": self.pieces(segment.discarded),
            "ended_by": segment.ended_by and self.dialect.lexicon.control_name(segment.ended_by),
            "began_ms": _ms(segment.began_ns - arrival_ns),
            "ended_ms": _ms(segment.ended_ns - arrival_ns),
        }

    def _fragments(self, run: Outline) -> list[Json]:
        """What the reader made of the ids: read again, and so the same."""
        trace = run.trace
        options = ReaderOptions(trace.call_ends, (), trace.tools, trace.prompt_ids)
        reader = self.dialect.reader(options)
        fragments: list[Fragment] = []
        for segment in trace.segments:
            if segment.answer:
                reader.answer(segment.answer)
            fragments += reader.feed(segment.forced)
            fragments += reader.feed(segment.read)
        fragments += reader.finish(stopped=run.status == "completed")
        return [self._fragment(fragment) for fragment in fragments]

    def _fragment(self, fragment: Fragment) -> Json:
        match fragment:
            case Opened(channel, recipient, content_type):
                if self.redacts:
                    return {"opened": {"channel": channel}}
                header = {"channel": channel, "recipient": recipient, "content_type": content_type}
                return {"opened": header}
            case Text(pieces) if self.redacts:
                return {"tokens": len(pieces)}
            case Text(pieces):
                return {"text": orjson.loads(b'"%b"' % b"".join(pieces))}
            case Closed(whole):
                return {"closed": "whole" if whole else "cut"}
            case Repaired(kind):
                return {"repaired": kind}
        return {}


def _timeline(run: Outline) -> Iterator[Json]:
    """What happened when, in milliseconds since the request's arrival."""
    marks = [
        ("arrived", run.arrival_ns),
        ("sent to engine", run.requested_ns),
        *((f"{s.name} segment", s.began_ns) for s in run.trace.segments[1:]),
        ("first token", run.first_token_ns),
        ("last token", run.last_token_ns),
        ("ended", run.end_ns),
    ]
    times = [(mark, at_ns) for mark, at_ns in marks if at_ns is not None]
    for mark, at_ns in sorted(times, key=lambda pair: pair[1]):
        yield {"at_ms": _ms(at_ns - run.arrival_ns), "mark": mark}


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)
