"""What a transcript expects: a log with a short line for each event, adjacent deltas merged.

`python -m tests.support.golden --write NAME…` writes what the named transcripts (or all) give now
into their files, for a person to read before it counts as expected. Nothing else ever writes them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import groupby
from typing import TYPE_CHECKING

from tests.support.replay import FOLDER, Json, Stage, load, names, plain, staged
from trt_responses.harmony.read.reader import Tables
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


CALL_KEYS = ("phase", "call_id", "name", "arguments", "input")


def compact(events: Iterable[Json]) -> list[Json]:
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


def summary(last: Json) -> Json:
    usage = last["usage"]
    return {
        "status": last["status"],
        "incomplete": last["incomplete_details"] and last["incomplete_details"]["reason"],
        "error": last["error"] and last["error"]["message"],
        "usage": {
            "input": usage["input_tokens"],
            "cached": usage["input_tokens_details"]["cached_tokens"],
            "output": usage["output_tokens"],
            "reasoning": usage["output_tokens_details"]["reasoning_tokens"],
        },
        "output": [[item["type"], item["status"]] for item in last["output"]],
    }


def told(stage: Stage) -> Json:
    """What a transcript expects, of a run that is over."""
    return {
        "log": compact(stage.events()),
        "response": summary(plain(stage.log.response)),
        "repairs": dict(sorted(stage.machine.repairs.items())),
    }


def written(source: Json) -> str:
    """A transcript's file: an event on each line."""
    lines = []
    for key, value in source.items():
        if key in ("log", "segments"):
            rows = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f'  "{key}": [\n{rows}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] != ["--write"]:
        raise SystemExit(__doc__)
    vocabulary = vocabularies.load()
    tables = Tables.of(vocabulary)
    for name in arguments[1:] or names():
        transcript = load(name, vocabulary)
        stage = staged(transcript, tables)
        asyncio.run(stage.play())
        (FOLDER / f"{name}.json").write_text(written(transcript.source | told(stage)))


if __name__ == "__main__":
    main(sys.argv[1:])
