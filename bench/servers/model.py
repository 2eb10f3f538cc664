"""A gpt-oss without weights, as other servers read it: a configuration and a tokeniser.

Both Rust servers know Harmony by the model's type, SMG by its folder's name too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from bench.peer_apps import CONFIG
from trt_responses.prepare.llamacpp.head import byte_letters
from trt_responses.prepare.llamacpp.merges import merges
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, FIRST_PADDING_ID

if TYPE_CHECKING:
    from trt_responses.tokens.vocabulary import Vocabulary

NAME = "gpt-oss"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PRETOKENS = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDING}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDING}",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
"""o200k's words, as a tokeniser's file spells them."""


def model(vocabulary: Vocabulary, parent: Path) -> Path:
    """The folder, made at its first use (about ten seconds)."""
    folder = parent / NAME
    if not folder.exists():
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent) as making:
            whole = Path(making) / NAME
            whole.mkdir()
            for name, content in _files(vocabulary).items():
                (whole / name).write_bytes(orjson.dumps(content))
            whole.rename(folder)
    return folder


def _files(vocabulary: Vocabulary) -> dict[str, object]:
    ends = [CONTROL.return_, CONTROL.endoftext, CONTROL.call]
    return {
        "config.json": CONFIG,
        "generation_config.json": {"eos_token_id": ends, "pad_token_id": CONTROL.endoftext},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": vocabulary.control_name(CONTROL.return_),
            "pad_token": vocabulary.control_name(CONTROL.endoftext),
        },
        "tokenizer.json": _tokenizer(vocabulary),
    }


def _tokenizer(vocabulary: Vocabulary) -> dict[str, object]:
    letters = byte_letters()
    pairs = merges(vocabulary.token_bytes)
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PRETOKENS}, "behavior": "Isolated"}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": each, "content": vocabulary.control_name(each), "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for each in range(FIRST_CONTROL_ID, FIRST_PADDING_ID)
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split | {"invert": False}, level | {"trim_offsets": True}],
        },
        "decoder": level | {"trim_offsets": True},
        "model": {
            "type": "BPE",
            "vocab": {
                raw.decode("latin-1").translate(letters): number
                for number, raw in enumerate(vocabulary.token_bytes)
            },
            "merges": [
                [part.decode("latin-1").translate(letters) for part in pair] for pair in pairs
            ],
        },
    }
