"""What a transcript expects: a log with a short line for each event, adjacent deltas merged.

`python -m tests.support.golden --write NAME…` writes what the named transcripts (or all) give now
into their files, for a person to read before it counts as expected. Nothing else ever writes them.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tests.support.replay import FOLDER, Json, Stage, load, names, plain, staged
from trt_responses.features.explain.transcript import compact, summary, written
from trt_responses.harmony.read.reader import Tables
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Sequence


def told(stage: Stage) -> Json:
    """What a transcript expects, of a run that is over."""
    return {
        "log": compact(stage.events()),
        "response": summary(plain(stage.log.response)),
        "repairs": dict(sorted(stage.machine.repairs.items())),
    }


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
