"""Writes the head of a GGUF file: the model's numbers, its vocabulary, and the table of tensors.
Uses llama.cpp's keys; writes no values.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

from trt_responses.engines.stand_ins import is_whole, spelled
from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.safetensors import Array
from trt_responses.prepare.faults import refusal
from trt_responses.prepare.llamacpp.merges import both_spellings, merges, stand_in_merges
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID
from trt_responses.tokens.vocabulary import Vocabulary

_HEADER, _COUNT = 24, struct.Struct("<Q")
"""The bytes before the first value, whose last eight count the values."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One tensor of the file: its logical shape, its stored type, and its values in slices."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    slices: Callable[[], Iterator[Array]]

    @property
    def size_bytes(self) -> int:
        block, bytes_each = gguf.GGML_QUANT_SIZES[self.kind]
        return int(np.prod(self.shape, dtype=np.int64)) // block * bytes_each


def write_head(
    target: Path, a: Architecture, vocabulary: Vocabulary, tensors: Sequence[Planned]
) -> None:
    """Write the head of a file."""
    writer = gguf.GGUFWriter(target, "gpt-oss")
    _add_numbers(writer, a)
    for tensor in tensors:
        # The declared dtype is ignored once a raw one is given, unless it is uint8.
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.float32), tensor.size_bytes, tensor.kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    end = target.stat().st_size
    writer.write_ti_data_to_file()
    writer.close()
    head = target.read_bytes()
    count = _COUNT.unpack_from(head, _HEADER - _COUNT.size)[0]
    more, values = _tokenizer_values(vocabulary, a.vocabulary)
    start = head[: _HEADER - _COUNT.size] + _COUNT.pack(count + more)
    target.write_bytes(start + head[_HEADER:end] + values + head[end:])


@lru_cache(maxsize=1)  # 4 s, and a process has one vocabulary
def _tokenizer_values(vocabulary: Vocabulary, size: int) -> tuple[int, bytes]:
    """How many values the vocabulary takes, and their bytes as a file holds them."""
    with tempfile.TemporaryDirectory() as folder:
        writer = gguf.GGUFWriter(Path(folder) / "values", "")
        writer.kv_data[0].clear()  # the name of the architecture
        _add_tokenizer(writer, vocabulary, size)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return len(writer.kv_data[0]), (Path(folder) / "values").read_bytes()[_HEADER:]


def _add_numbers(writer: gguf.GGUFWriter, a: Architecture) -> None:
    writer.add_block_count(a.layers)
    writer.add_context_length(a.context)
    writer.add_embedding_length(a.hidden)
    writer.add_feed_forward_length(a.intermediate)
    writer.add_expert_feed_forward_length(a.intermediate)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_key_length(a.head_dim)
    writer.add_value_length(a.head_dim)
    writer.add_layer_norm_rms_eps(a.rms_eps)
    writer.add_sliding_window(a.sliding_window)
    writer.add_expert_count(a.experts)
    writer.add_expert_used_count(a.experts_per_token)
    writer.add_rope_freq_base(a.rope_theta)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(a.rope_factor)
    writer.add_rope_scaling_orig_ctx_len(a.rope_original_context)
    writer.add_rope_scaling_yarn_beta_fast(a.beta_fast)
    writer.add_rope_scaling_yarn_beta_slow(a.beta_slow)
    writer.add_vocab_size(a.vocabulary)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: Vocabulary, size: int) -> None:
    """Write the vocabulary. Requests consist of ids only: guides and logs use the strings."""
    ordinary = [in_letters(spelled(raw).encode()) for raw in vocabulary.token_bytes]
    specials = [vocabulary.control_name(n) for n in range(FIRST_CONTROL_ID, size)]
    spares = size - len(ordinary) - len(specials)
    if spares:
        raise refusal("vocabulary", f"{len(ordinary)} ordinary ids", FIRST_CONTROL_ID)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-4o")
    writer.add_token_list(ordinary + specials)
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_token_types([normal] * len(ordinary) + [control] * len(specials))
    made = chain.from_iterable(map(both_spellings, merges(vocabulary.token_bytes)))
    writer.add_token_merges(
        [" ".join(map(in_letters, pair)) for pair in (*stand_in_merges(), *made)]
    )
    writer.add_bos_token_id(CONTROL.startoftext)
    writer.add_eos_token_id(CONTROL.return_)
    writer.add_pad_token_id(CONTROL.endoftext)
    # A guide ends with it; llama.cpp would look for a likely name in no certain order.
    writer.add_eot_token_id(CONTROL.endoftext)


def token_strings(vocabulary: Vocabulary) -> Iterator[tuple[bytes, ...]]:
    """The valid spellings of each ordinary id in a file: its bytes, and, where a character is cut,
    the stand-in form."""
    for raw in vocabulary.token_bytes:
        both = (raw,) if is_whole(raw) else (raw, spelled(raw).encode())
        yield tuple(in_letters(each).encode() for each in both)


def in_letters(raw: bytes) -> str:
    """The bytes in GPT-2's alphabet."""
    return raw.decode("latin-1").translate(LETTERS)


def _byte_letters() -> dict[int, int]:
    """GPT-2's alphabet: a printable byte maps to itself, the others to letters from 256 on."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in prints]
    return {byte: 256 + n for n, byte in enumerate(others)}


LETTERS = _byte_letters()
