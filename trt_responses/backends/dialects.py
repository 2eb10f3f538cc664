"""Creates dialects: Harmony, or the template dialect of a model with a chat template."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.backends.installed import maker, needed
from trt_responses.errors import StartupError
from trt_responses.harmony.dialect import harmony
from trt_responses.prepare.files import DIALECT
from trt_responses.stores.at_rest.spelled import Spelled
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.dialect import Dialect
    from trt_responses.dialects.templates.dialect import TemplateDialect
    from trt_responses.prepare.shelf.card import Card, DialectFacts
    from trt_responses.prepare.verify import Question
    from trt_responses.stores.whole import Spell
    from trt_responses.tokens.vocabulary import Vocabulary


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary, loaded once per process: loading takes 0.3 s."""
    return vocabularies.load()


def dialect_of(directory: Path | None = None, card: Card | None = None) -> Dialect:
    """The dialect of a model: Harmony, unless its card names a chat template."""
    if directory is None or card is None or card.dialect is None:
        return harmony(vocabulary())
    return _recorded(directory, card.dialect)


def dialect_named(name: str) -> Dialect:
    """Harmony, the dialect of a model's directory, or one that another package brings."""
    if name == "harmony":
        return harmony(vocabulary())
    if os.sep in name:
        return dialect_in(Path(name))
    dialect: Dialect = maker("dialects", name, ("harmony",))()
    return dialect


@cache
def dialect_in(directory: Path) -> Dialect:
    """The dialect of a prepared model's directory, or of a checkpoint's, which needs no weights."""
    if not directory.is_dir():
        raise StartupError(f"{directory} is no directory with a model's tokeniser.")
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        file = directory / DIALECT
        if not file.exists():
            file = Path(folder, DIALECT)
            file.write_bytes(orjson.dumps(_keys_of(directory)))
        return thread.submit(_fitted, file, None).result()  # it runs an event loop of its own


def _keys_of(directory: Path) -> Mapping[str, object]:
    from trt_responses.prepare.checkpoint.language import language_of
    from trt_responses.prepare.checkpoint.open import MAX_CONFIG_BYTES, json_object

    config = json_object(directory, "config.json", MAX_CONFIG_BYTES)
    if type(size := config.get("vocab_size")) is not int:
        raise StartupError(f"{directory}/config.json names no vocab_size.")
    return language_of(directory, config, size)[0]


def _recorded(directory: Path, facts: DialectFacts) -> TemplateDialect:
    """The dialect of a prepared model, as its card describes it. If another release wrote the card,
    the template is read again."""
    with needed("The reader of chat templates"):
        from trt_responses.dialects.templates.families import OtherForm
    with suppress(OtherForm):
        return template_dialect(directory / DIALECT, facts.family, facts.form or {})
    with ThreadPoolExecutor(1) as thread:  # it runs an event loop of its own
        return thread.submit(_fitted, directory / DIALECT, facts.family).result()


def template_dialect(
    file: Path, family: str | None, form: Mapping[str, Any] | None = None
) -> TemplateDialect:
    """The dialect of a model with a chat template, from the keys of its file. `form`: from its
    card."""
    with needed("The reader of chat templates"):
        from trt_responses.dialects.templates.checkpoint import speech_of
        from trt_responses.dialects.templates.dialect import TemplateDialect
    return TemplateDialect(*speech_of(file, family, form))


def _fitted(file: Path, family: str | None) -> TemplateDialect:
    """The dialect as its template describes it, unless the operator wants text alone."""
    dialect = template_dialect(file, family)
    if family == "text":
        return dialect
    found = dialect.fitted()
    if dialect.name == family != found.name:
        dialect.probed()  # a family that was named must fit
    return found


def dialect_facts(file: Path, family: str | None) -> DialectFacts:
    """The facts about a model's dialect that its card records."""
    from trt_responses.prepare.shelf.card import DialectFacts

    dialect = _fitted(file, family)
    probes, form = dialect.probed(), dialect.form()
    return DialectFacts(dialect.name, dialect.places.stops, probes, form)


def prompts_of(file: Path, family: str, texts: Sequence[str]) -> list[list[int]]:
    """The prompt for each user text, as the model's template renders it."""
    return asyncio.run(_fitted(file, family).prompts(texts))


def question_of(directory: Path, card: Card) -> Question | None:
    """The question that verifies a template model; None for a Harmony model."""
    if card.dialect is None:
        return None
    from trt_responses.prepare.verify import Question

    dialect = _recorded(directory, card.dialect)
    (prompt,) = asyncio.run(dialect.prompts(["Hello"]))
    return Question(prompt, dialect.places.stops, len(dialect.lexicon.token_bytes))


@cache
def spelled() -> Spell:
    """A function from a stored block's ids to its Harmony text. Stores compare its result, and keep
    the text of a block for which it differs."""
    return Spelled(vocabulary(), harmony(vocabulary()).tables.pieces)
