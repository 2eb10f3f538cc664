"""A GGUF file as people download it: true bytes for tokens, every type of tensor that it likes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

from trt_responses.prepare.llamacpp.gguf import plan
from trt_responses.prepare.llamacpp.head import token_strings
from trt_responses.tokens.control import FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.llamacpp.gguf import WeightType
    from trt_responses.tokens.vocabulary import Vocabulary


def write_download(
    checkpoint: Checkpoint,
    path: Path,
    vocabulary: Vocabulary,
    *,
    weight_type: WeightType = "q8_0",
    tensors: slice = slice(None),
) -> None:
    """What another converter would have made of the checkpoint, or a part of it."""
    a = checkpoint.architecture
    writer = gguf.GGUFWriter(path, "gpt-oss")
    writer.add_name("A download")
    writer.add_block_count(a.layers)
    writer.add_context_length(a.context)
    writer.add_embedding_length(a.hidden)
    writer.add_expert_feed_forward_length(a.intermediate)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_key_length(a.head_dim)
    writer.add_layer_norm_rms_eps(a.rms_eps)
    writer.add_sliding_window(a.sliding_window)
    writer.add_expert_count(a.experts)
    writer.add_expert_used_count(a.experts_per_token)
    writer.add_rope_freq_base(a.rope_theta)
    writer.add_rope_scaling_factor(a.rope_factor)
    writer.add_rope_scaling_orig_ctx_len(a.rope_original_context)
    names = range(FIRST_CONTROL_ID, VOCABULARY_SIZE)
    controls = [vocabulary.control_name(n).encode() for n in names]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*(lawful[0] for lawful in token_strings(vocabulary)), *controls])
    for each in plan(checkpoint, weight_type)[tensors]:
        data = np.concatenate([part.reshape(-1).view(np.uint8) for part in each.slices()])
        block, size = gguf.GGML_QUANT_SIZES[each.kind]
        row_bytes = each.shape[-1] // block * size
        whole = data.reshape(*each.shape[:-1], row_bytes)
        writer.add_tensor(each.name, whole, raw_dtype=each.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
