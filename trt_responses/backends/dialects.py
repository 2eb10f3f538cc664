"""The dialects there are: Harmony, and those of models with a chat template of their own."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

from trt_responses.backends.installed import needed
from trt_responses.harmony.dialect import harmony
from trt_responses.prepare.files import DIALECT
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trt_responses.dialect import Dialect
    from trt_responses.dialects.templates.dialect import TemplateDialect
    from trt_responses.prepare.shelf.card import Card, DialectFacts
    from trt_responses.prepare.verify import Question
    from trt_responses.store import Spell
    from trt_responses.tokens.vocabulary import Vocabulary


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary, loaded once however many engines and apps a process has: it takes 0.3 s."""
    return vocabularies.load()


def dialect_of(directory: Path | None = None, card: Card | None = None) -> Dialect:
    """The dialect of a model: Harmony, unless its card names a chat template."""
    if directory is None or card is None or card.dialect is None:
        return harmony(vocabulary())
    return template_dialect(directory / DIALECT, card.dialect.family)


def template_dialect(file: Path, family: str | None) -> TemplateDialect:
    """The dialect of a model with a chat template, from the keys of its file."""
    with needed("What reads chat templates", "templates"):
        from trt_responses.dialects.templates.checkpoint import speech_of
        from trt_responses.dialects.templates.dialect import TemplateDialect
    return TemplateDialect(*speech_of(file, family))


def dialect_facts(file: Path, family: str | None) -> DialectFacts:
    """The facts about a model's dialect that its card records."""
    from trt_responses.prepare.shelf.card import DialectFacts

    spoken = template_dialect(file, family)
    return DialectFacts(spoken.name, spoken.places.stops, spoken.probed())


def prompts_of(file: Path, family: str, texts: Sequence[str]) -> list[list[int]]:
    """A prompt for each of a user's texts, as the model's template writes it."""
    return asyncio.run(template_dialect(file, family).prompts(texts))


def question_of(directory: Path, card: Card) -> Question | None:
    """The question that verifies a model which does not speak Harmony; None for one that does."""
    if card.dialect is None:
        return None
    from trt_responses.prepare.verify import Question

    spoken = template_dialect(directory / DIALECT, card.dialect.family)
    (prompt,) = asyncio.run(spoken.prompts(["Hello"]))
    return Question(prompt, spoken.places.stops, len(spoken.lexicon.token_bytes))


def spelled() -> Spell:
    """A function from a stored block's ids to its text, in Harmony, since a history may be older
    than the model. Stores compare, so that a text which it does not give is kept."""
    return harmony(vocabulary()).spelled
