"""The tools that each `engine build` gets, and the lines that it prints at the end."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.progress import megabytes, shown_on
from trt_responses.prepare.shelf import versions
from trt_responses.prepare.shelf.shelf import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.prepare.pipeline import Built
    from trt_responses.settings import Settings


def to_stderr(sentence: str) -> None:
    """Print a sentence to standard error."""
    print(sentence, file=sys.stderr)


@contextmanager
def build_tools(settings: Settings) -> Iterator[BuildTools]:
    """The real vocabulary and engines; progress goes to standard error."""
    from trt_responses.backends.dialects import (
        dialect_facts,
        prompts_of,
        question_of,
        vocabulary,
    )
    from trt_responses.backends.engines import engine_of

    with shown_on(sys.stderr) as progress:
        yield BuildTools(
            vocabulary(),
            progress,
            lambda directory, card: engine_of(Selection(directory, card, "to verify it"), settings),
            dialect_for=dialect_facts,
            prompts_for=prompts_of,
            question=question_of,
            say=to_stderr,
        )


def print_built(built: Built) -> None:
    """Print a line about a new engine, and one for each family of plans. An engine that already
    existed prints nothing."""
    card = built.card
    if built.phases:
        took = f"prepared in {sum(card.seconds.values()):.1f} s"
        print(f"engine {card.label}: {card.status}, {took}", file=sys.stderr)
        for family in card.chain.compiled if card.chain else ():
            how = "exact" if family.exact else "rounded"
            print(
                f"  {', '.join(family.targets)}: {family.weights} experts ({how}), "
                f"{megabytes(family.size_bytes)} of plans, at most {megabytes(family.peak_bytes)} "
                "of memory to compile one",
                file=sys.stderr,
            )
    for note in built.notes:
        print(note, file=sys.stderr)
    served = versions.promoted(built.directory.parent)
    if built.phases and served is not None and served.version != card.version:
        print(
            f"{card.name}@{served.number or served.version} is still promoted; to serve the new "
            f"version: trt-responses engine promote {card.name} {card.number or card.version}",
            file=sys.stderr,
        )
