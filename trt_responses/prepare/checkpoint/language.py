"""The tokens and the chat template of a Hugging Face directory, by GGUF's keys.
Every target that serves such a model writes these keys into `dialect.json`. Reads JSON: executes
nothing, and does not interpret the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf

from trt_responses.prepare.checkpoint.open import inside, json_object
from trt_responses.prepare.faults import refusal, shown

Json = Mapping[str, Any]

MAX_TOKENIZER_BYTES, MAX_TOKENIZER_CONFIG_BYTES = 100_000_000, 10_000_000
TOKENIZER, GENERATION, TOKENIZER_CONFIG, TEMPLATE = (
    *("tokenizer.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"),
)
MOST_TOKENS = 1 << 20
"""More than any vocabulary has."""
ENDS = ("eos", "eot", "eom")
"""GGUF's names for the ids that end a turn."""


def language_of(
    directory: Path, config: Json, size: int
) -> tuple[dict[str, object], tuple[Path, ...]]:
    """The keys as in a GGUF file, and the files that they come from. `size`: the rows of the
    embedding."""
    tokenizer: Json = json_object(directory, TOKENIZER, MAX_TOKENIZER_BYTES)
    settings = _optional(directory, TOKENIZER_CONFIG)
    generation = _optional(directory, GENERATION)
    try:
        tokens, types = _tokens(tokenizer, size)
        listed = tokenizer["model"]["merges"]
        merges = [one if isinstance(one, str) else " ".join(one) for one in listed]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refusal(TOKENIZER, f"{type(error).__name__} {error}", "byte-level BPE") from None
    keys: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.huggingface.json": tokenizer,
    }
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    more = ends if isinstance(ends, list) else [ends]
    ids = [id_of(settings.get("eos_token"), tokens), *more]
    lawful = dict.fromkeys(n for n in ids if type(n) is int and 0 <= n < size)
    keys |= {f"tokenizer.ggml.{e}_token_id": n for e, n in zip(ENDS, lawful, strict=False)}
    if (begin := id_of(settings.get("bos_token"), tokens)) is not None:
        keys["tokenizer.ggml.bos_token_id"] = begin
    template = _template(directory, settings)
    if template is None:
        raise refusal(str(directory), "no chat template", f"{TEMPLATE}, or one in the tokeniser's")
    keys["tokenizer.chat_template"] = template
    if (response := settings.get("response_template")) is not None:
        keys["tokenizer.response_template"] = response
    names = (TOKENIZER, TOKENIZER_CONFIG, GENERATION, TEMPLATE)
    return keys, tuple(inside(directory, name) for name in names if (directory / name).exists())


def _optional(directory: Path, name: str) -> dict[str, object]:
    there = (directory / name).exists()
    return json_object(directory, name, MAX_TOKENIZER_CONFIG_BYTES) if there else {}


def _tokens(tokenizer: Json, size: int) -> tuple[list[str], list[int]]:
    """The spelling and the GGUF type of each id. The embedding has more rows than there are
    tokens."""
    tokens = [f"[PAD{n}]" for n in range(size)]
    types = [int(gguf.TokenType.UNUSED)] * size
    for text, number in tokenizer["model"]["vocab"].items():
        _place(tokens, types, number, text, gguf.TokenType.NORMAL)
    for one in tokenizer.get("added_tokens") or ():
        kind = gguf.TokenType.CONTROL if one["special"] else gguf.TokenType.USER_DEFINED
        _place(tokens, types, one["id"], one["content"], kind)
    return tokens, types


def _place(
    tokens: list[str], types: list[int], number: int, text: str, kind: gguf.TokenType
) -> None:
    if type(number) is not int or not 0 <= number < len(tokens):
        raise refusal(f"{TOKENIZER}, {shown(text)}", f"the id {number}", f"one below {len(tokens)}")
    tokens[number], types[number] = text, int(kind)


def id_of(named: object, tokens: Sequence[str]) -> int | None:
    """The id of a token named in the tokeniser's file, by a text or by an object with a text."""
    text = named.get("content") if isinstance(named, dict) else named
    return tokens.index(text) if isinstance(text, str) and text in tokens else None


def _template(directory: Path, settings: Json) -> object:
    """The text of the chat template: from its own file, else from the tokeniser's config."""
    if (directory / TEMPLATE).exists():
        try:
            return inside(directory, TEMPLATE).read_text("utf-8")
        except UnicodeDecodeError:
            raise refusal(TEMPLATE, "no UTF-8", "a text") from None
    listed = settings.get("chat_template")
    if isinstance(listed, list):
        named = {one.get("name"): one.get("template") for one in listed if isinstance(one, dict)}
        return named.get("tool_use") or named.get("default")
    return listed
