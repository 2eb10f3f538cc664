"""Transcripts of models that do not speak Harmony: the files of `tests/transcripts/templates/`.

`python -m tests.support.template_transcripts --write NAME…` writes what the named ones (or all)
give now into their files, for a person to read before it counts as expected.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from tests.support.golden import told
from tests.support.replay import FOLDER as HARMONY
from tests.support.replay import Part, Stage, Transcript
from tests.support.template_families import checkpoint
from tests.support.template_turns import reader_of
from trt_responses.features.explain.transcript import written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.wire.response import Response

FOLDER = HARMONY / "templates"


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Transcript:
    source = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    assert source["name"] == name
    encode = checkpoint(source["template"]).tokeniser.encode
    parts = tuple(
        Part(tuple(tuple(encode(step)) for step in part["steps"]), part["finish"])
        for part in source["segments"]
    )
    return Transcript(name, source, tuple(source["tools"]), parts)


def staged(
    transcript: Transcript,
    parts: Sequence[Part] | None = None,
    response: Response | None = None,
) -> Stage:
    """A run over the transcript, or over other parts in its place."""
    source = transcript.source
    reader = reader_of(source["template"], source["begins"])
    return Stage(
        None, parts or transcript.parts, transcript.tools, reader=reader, response=response
    )


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] != ["--write"]:
        raise SystemExit(__doc__)
    for name in arguments[1:] or names():
        transcript = load(name)
        stage = staged(transcript)
        asyncio.run(stage.play())
        (FOLDER / f"{name}.json").write_text(written(transcript.source | told(stage)), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
