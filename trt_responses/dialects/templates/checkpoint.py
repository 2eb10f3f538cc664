"""Reads a prepared model's tokeniser, template and family from the keys of its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from trt_responses.dialects.templates.families import Family, find, from_dict
from trt_responses.dialects.templates.tokeniser import Tokeniser
from trt_responses.dialects.templates.write.template import Template, template_of_gguf
from trt_responses.errors import StartupError

GGUF = "tokenizer.ggml."
HUGGING_FACE, RESPONSE_TEMPLATE = "tokenizer.huggingface.json", "tokenizer.response_template"
"""Keys from a checkpoint directory: its tokenizer.json, and its `response_template`."""
ENDS = ("eos", "eot", "eom")
"""GGUF's names of ids that end a turn."""


class Speech(NamedTuple):
    """The parts of a dialect."""

    template: Template
    tokeniser: Tokeniser
    family: Family
    stop_ids: tuple[int, ...]
    """Ids that end a turn; the first is the one that the template writes."""


def speech_of(
    path: Path, family: str | None = None, form: Mapping[str, Any] | None = None
) -> Speech:
    """The speech in `dialect.json`, which holds a GGUF file's token keys. `family`: from the
    operator or the card; `form`: the card's, which comes first."""
    try:
        keys: Mapping[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise StartupError(f"{path} cannot be read: {error}") from None
    tokens, types = keys[f"{GGUF}tokens"], keys[f"{GGUF}token_type"]
    pre = keys.get(f"{GGUF}pre", "default")
    if (settings := keys.get(HUGGING_FACE)) is not None:  # the tokeniser's own file has more
        tokeniser = Tokeniser.from_settings(settings, str(path))
    else:
        tokeniser = Tokeniser.from_gguf(tokens, types, keys[f"{GGUF}merges"], pre)
    template = template_of_gguf(keys, tokens)
    if template is None:
        raise StartupError("The file has no chat template: use a file that includes one.")
    named = [keys.get(f"{GGUF}{end}_token_id") for end in ENDS]
    ends = [n for n in named if isinstance(n, int) and n in tokeniser.controls]
    spelled = [tokeniser.controls[n] for n in ends]
    row = (
        find(
            template.source,
            tokeniser.controls.values(),
            response_template=keys.get(RESPONSE_TEMPLATE),
            setting=family,
            terminators=spelled,
        )
        if form is None
        else from_dict(form)
    )
    return Speech(template, tokeniser, row, stop_ids_of(row, tokeniser, ends))


def stop_ids_of(family: Family, tokeniser: Tokeniser, ends: Iterable[int]) -> tuple[int, ...]:
    """The ids that end a turn: the family's, then the file's own."""
    own = [tokeniser.id_of(text) for text in family.terminators]
    stop_ids = dict.fromkeys(n for n in (*own, *ends) if n is not None)
    if not stop_ids:
        raise StartupError(
            "The file names no token that ends a turn (tokenizer.ggml.eos_token_id)."
        )
    return tuple(stop_ids)
