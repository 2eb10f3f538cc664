"""A gpt-oss without weights, as other servers read it: a configuration and a tokeniser.

Both Rust servers know Harmony by the model's type, SMG by its folder's name too.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from responses_conformance.mocks.play import CALL, ENDOFTEXT, RETURN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "gpt-oss"
RANKS_FILE = "o200k_base.tiktoken"
RANKS_FOLDER = "TIKTOKEN_ENCODINGS_BASE"
FIRST_CONTROL_ID, FIRST_PADDING_ID = 199_998, 200_019
CONTROL = {
    199_998: "startoftext",
    ENDOFTEXT: "endoftext",
    RETURN: "return",
    200_003: "constrain",
    200_005: "channel",
    200_006: "start",
    200_007: "end",
    200_008: "message",
    CALL: "call",
    200_018: "endofprompt",
}
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "vocab_size": 201_088,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "layer_types": ["full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "max_position_embeddings": 131_072,
    "eos_token_id": RETURN,
    "torch_dtype": "bfloat16",
}
"""Of a gpt-oss of one layer."""
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


def ranks() -> list[bytes]:
    """The bytes of each ordinary id, from the folder that TIKTOKEN_ENCODINGS_BASE names."""
    file = Path(os.environ.get(RANKS_FOLDER, "")) / RANKS_FILE
    if not file.is_file():
        raise FileNotFoundError(f"Set {RANKS_FOLDER} to a folder that holds {RANKS_FILE}.")
    return [base64.b64decode(line.split()[0]) for line in file.read_bytes().splitlines()]


def model(token_bytes: Sequence[bytes], parent: Path) -> Path:
    """The folder, made at its first use (about ten seconds)."""
    folder = parent / NAME
    if not folder.exists():
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent) as making:
            whole = Path(making) / NAME
            whole.mkdir()
            for name, content in _files(token_bytes).items():
                (whole / name).write_text(json.dumps(content), "utf-8")
            whole.rename(folder)
    return folder


def _files(token_bytes: Sequence[bytes]) -> dict[str, object]:
    return {
        "config.json": CONFIG,
        "generation_config.json": {
            "eos_token_id": [RETURN, ENDOFTEXT, CALL],
            "pad_token_id": ENDOFTEXT,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": _name(RETURN),
            "pad_token": _name(ENDOFTEXT),
        },
        "tokenizer.json": _tokenizer(token_bytes),
    }


def _name(token_id: int) -> str:
    return f"<|{CONTROL.get(token_id, f'reserved_{token_id}')}|>"


def _tokenizer(token_bytes: Sequence[bytes]) -> dict[str, object]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PRETOKENS}, "behavior": "Isolated"}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": each, "content": _name(each), "special": True}
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
            "vocab": {_letters(raw): number for number, raw in enumerate(token_bytes)},
            "merges": [list(map(_letters, parts)) for parts in _merges(token_bytes)],
        },
    }


def _letters(raw: bytes) -> str:
    """GPT-2's alphabet: a printable byte is itself, the others are letters from 256 on."""
    return raw.decode("latin-1").translate(_ALPHABET)


_PRINTED = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_ALPHABET = {
    byte: 256 + number
    for number, byte in enumerate(byte for byte in range(256) if byte not in _PRINTED)
}


def _merges(token_bytes: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The two parts of each id of more than one byte, in the order of the ranks."""
    known = {raw: rank for rank, raw in enumerate(token_bytes)}
    for rank, raw in enumerate(token_bytes):
        parts = [raw[n : n + 1] for n in range(len(raw))]
        while len(parts) > 2:
            pairs = enumerate(map(bytes.__add__, parts, parts[1:]))
            best, n = min((known.get(pair, rank), n) for n, pair in pairs)
            if best >= rank:
                break
            parts[n : n + 2] = [parts[n] + parts[n + 1]]
        if len(parts) == 2:
            yield parts
