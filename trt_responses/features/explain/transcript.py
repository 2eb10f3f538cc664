"""A run's trace as a transcript: what the model wrote, and the log that it must give.

The form is that of `tests/transcripts/`, which holds a claim for each of its files; a trace of a
run that went wrong becomes one of them. Ids, times and the prompt are left out: the log is made
anew, by the real reader and machine, with ids that a transcript can name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import orjson

from trt_responses.dialect import Dialect
from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.features.explain.explanations import Outline
from trt_responses.features.run_traces.trace import Trace
from trt_responses.language.reader import Reader
from trt_responses.log.item_events import Callee
from trt_responses.log.log import Cursor, Log
from trt_responses.log.machine import Machine
from trt_responses.run.ending import End, ending, last_snapshot
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID
from trt_responses.tokens.vocabulary import Vocabulary
from trt_responses.wire import events as e
from trt_responses.wire.response import Response
from trt_responses.wire.tools import TOOLS

Json = dict[str, Any]

CALL_KEYS = (
    *("phase", "call_id", "name", "arguments", "input", "action", "operation"),
    *("code", "outputs"),
)
PROMPT_TOKENS, CACHED_TOKENS = 12, 4
"""Of the prompt that all transcripts have."""
CREATED_AT = 1_700_000_000
ENGINE_FAULT = "The engine failed: out of memory."
FINISHES = {"completed": "stop", "incomplete": "length", "failed": "error", "cancelled": "abort"}
STOPS = frozenset({CONTROL.return_, CONTROL.call, CONTROL.end})
"""Ids that end a transcript's segment before its last."""

SHORT = 2_000
"""Ids that are written as text: encoding takes quadratic time in a text without a word break."""


class Mint:
    """Ids that a transcript can name: `msg_0`, `msg_1`, `rs_0`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, prefix: str) -> str:
        number = self._counts[prefix]
        self._counts[prefix] += 1
        return f"{prefix}_{number}"


def transcript_of(run: Outline, name: str, dialect: Dialect) -> Json:
    """The transcript of a run that is over. A turn of several calls has none."""
    trace, vocabulary = run.trace, dialect.lexicon
    if not isinstance(vocabulary, Vocabulary):
        raise InvalidRequest(
            "Transcripts are Harmony's, and this model does not speak it.",
            param="transcript",
            code="not_harmony",
        )
    if run.calls > 1 and not trace.call_ends:
        raise InvalidRequest(
            "The response has several calls in one turn, and transcripts have one at most.",
            param="transcript",
            code="several_calls",
        )
    if any(segment.answer for segment in trace.segments):
        raise InvalidRequest(
            "A tool of the server's answered within the response, and transcripts have none.",
            param="transcript",
            code="tool_answers",
        )
    tools = _tools(trace)
    outcome = run.status
    parts = _parts(trace)
    source: Json = {
        "name": name,
        "why": f"Written by explain: {trace.plan}; {outcome}.",
        "tools": tools,
        "segments": [
            {"steps": [written_ids(step, vocabulary) for step in _steps(ids)], "finish": "stop"}
            for ids in parts
        ],
    }
    source["segments"][-1]["finish"] = FINISHES[outcome]
    log, machine = _replayed(parts, outcome, tools, dialect.reader())
    return source | {
        "log": compact(map(orjson.loads, _data(Cursor(log).take()))),
        "response": summary(orjson.loads(orjson.dumps(log.response))),
        "repairs": dict(sorted(machine.repairs.items())),
    }


def _tools(trace: Trace) -> list[str]:
    """Each tool once, by the name that the model knows it by."""
    names = dict.fromkeys(name.removeprefix("functions.") for name in trace.callees)
    kinds = [(trace.callees[name].kind, name) for name in names]
    return [name if kind == "function" else f"{kind}:{name}" for kind, name in kinds]


def callees_of(tools: Iterable[str]) -> dict[str, Callee]:
    """The tools that a transcript names, by each name that the model may write."""
    callees: dict[str, Callee] = {}
    for tool in tools:
        kind, _, name = tool.rpartition(":")
        action = kind if kind in TOOLS else None
        callee = Callee(name, custom=kind == "custom", action=action)
        callees |= {name: callee, f"functions.{name}": callee}
    return callees


def _parts(trace: Trace) -> list[list[int]]:
    """The ids that the reader was given, segment by segment. One that a transcript's engine would
    end early goes on in the next."""
    parts: list[list[int]] = [[]]
    for segment in trace.segments:
        if not STOPS.isdisjoint(parts[-1][-1:]) and STOPS.isdisjoint(parts[-1][:-1]):
            parts.append([])
        parts[-1] += (*segment.forced, *segment.read)
    return parts


def _steps(ids: Sequence[int]) -> list[list[int]]:
    """Headers, texts and what ends them, each a step."""
    steps: list[list[int]] = []
    for before, token_id in zip((None, *ids), ids, strict=False):
        if not steps or token_id in STOPS or before in STOPS or before == CONTROL.message:
            steps.append([])
        steps[-1].append(token_id)
    return steps


def written_ids(ids: Sequence[int], vocabulary: Vocabulary) -> str | list[int | str]:
    """Text with control ids spelled out, where that says these very ids; else the ids."""
    if len(ids) <= SHORT and all(0 <= i < FIRST_CONTROL_ID or i in CONTROL for i in ids):
        text = vocabulary.text(list(ids))
        if vocabulary.encoding.encode(text, allowed_special="all") == list(ids):
            return text
    return list(ids)


def _replayed(
    parts: Sequence[Sequence[int]], outcome: str, tools: Sequence[str], reader: Reader
) -> tuple[Log, Machine]:
    log = Log(Response("resp_0", CREATED_AT, "gpt-oss"))
    machine = Machine(log, callees_of(tools), Mint())
    log.append(e.Created(log.response))
    log.append(e.InProgress(log.response))
    for ids in parts:
        for fragment in reader.feed(ids):
            machine.take(fragment)
    if reader.ended:
        outcome = "completed"
    for fragment in reader.finish(stopped=outcome == "completed"):
        machine.take(fragment)
    end = End(outcome, ApiError(ENGINE_FAULT) if outcome == "failed" else None)  # type: ignore[arg-type]
    from trt_responses.features.turn_usage.usage import usage_by_turn  # a server may lack it

    used = usage_by_turn(PROMPT_TOKENS, reader, log.output, (CACHED_TOKENS,))
    last = last_snapshot(log.begun, log.output, end, CREATED_AT + 9, used)
    for event in ending(last, end.error):
        log.append(event)
    if outcome == "cancelled":
        log.settle(last)
    log.close()
    return log, machine


def _data(frames: bytes) -> list[bytes]:
    return [frame.partition(b"\ndata: ")[2] for frame in frames.split(b"\n\n")[:-1]]


# --- the short form of a log ------------------------------------------------------------------


def compact(events: Iterable[Json]) -> list[Json]:
    """A short line for each event, adjacent deltas merged."""
    lines = []
    for key, run in groupby(events, _delta_of):
        merged = list(run)
        if key is None:
            lines += [_line(event) for event in merged]
        else:
            lines.append(_line(merged[0]) | {"text": "".join(event["delta"] for event in merged)})
    return lines


def _delta_of(event: Json) -> tuple[str, str, int] | None:
    if not event["type"].endswith(".delta"):
        return None
    return event["type"], event["item_id"], event.get("content_index", 0)


def _line(event: Json) -> Json:
    line: Json = {"type": event["type"].removeprefix("response.")}
    if "output_index" in event:
        line["at"] = [event[i] for i in ("output_index", "content_index") if i in event]
    line |= {key: event[key] for key in ("item_id", "message", "name") if key in event}
    for key in ("text", "delta", "arguments", "input"):
        if key in event:
            line["text"] = event[key]
    if line["type"] == "code_interpreter_call_code.done":
        line["text"] = event["code"]
    if "part" in event:
        line |= {"kind": event["part"]["type"], "text": event["part"]["text"]}
    if "item" in event:
        line |= _item(event["item"])
    if "response" in event:
        line["status"] = event["response"]["status"]
    return line


def _item(item: Json) -> Json:
    shown = {"item_id": item["id"], "kind": item["type"], "status": item["status"]}
    shown |= {key: item[key] for key in CALL_KEYS if key in item}
    if "content" in item:
        shown["texts"] = [part["text"] for part in item["content"]]
    return shown


def summary(last: Mapping[str, Any]) -> Json:
    """The last snapshot in short."""
    used = last["usage"]
    return {
        "status": last["status"],
        "incomplete": last["incomplete_details"] and last["incomplete_details"]["reason"],
        "error": last["error"] and last["error"]["message"],
        "usage": {
            "input": used["input_tokens"],
            "cached": used["input_tokens_details"]["cached_tokens"],
            "output": used["output_tokens"],
            "reasoning": used["output_tokens_details"]["reasoning_tokens"],
        },
        "output": [[item["type"], item["status"]] for item in last["output"]],
    }


def written(transcript: Json) -> str:
    """A transcript's file: an event on each line."""
    lines = []
    for key, value in transcript.items():
        if key in ("log", "segments"):
            rows = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f'  "{key}": [\n{rows}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"
