"""GGUF files of tiny random models that do not speak Harmony, with real chat templates.

What they answer is nonsense; whether it is read, stopped, forced and guided rightly shows anyway.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.support import template_forms
from tests.support.template_families import CONTROLS, FOLDER, SENTENCES

if TYPE_CHECKING:
    from pathlib import Path

LAYERS, HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, HEAD = 2, 64, 128, 2, 1, 32
CONTEXT = 4096
END = {
    "qwen3": "<|im_end|>",
    "qwen3_5_think": "<|im_end|>",
    "glm4moe": "<|endoftext|>",
    "deepseek_v3_1": "<｜end▁of▁sentence｜>",
}
BEGIN = {"deepseek_v3_1": "<｜begin▁of▁sentence｜>"}
PRE = {"glm4moe": "glm4", "deepseek_v3_1": "deepseek-v3"}
SPOKEN_LETTERS = "déjà vu 日本 "


def write_tiny(
    path: Path, template: str, architecture: str = "qwen3", *, seed: int = 0, end_bias: float = 0.0
) -> Path:
    """A file at this path; `template` names one of `tests/data/templates` or of its `forms`."""
    random = np.random.default_rng(seed)
    tokens, merges = tiny_vocabulary()
    controls, source, end = _language(template)
    names = [*tokens, *controls]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE.get(template, "qwen2"))
    writer.add_token_list(names)
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_token_types([normal] * len(tokens) + [control] * len(controls))
    writer.add_token_merges(merges)
    writer.add_eos_token_id(names.index(end))
    if (begin := BEGIN.get(template, template_forms.SPECIAL["bos_token"])) in controls:
        writer.add_bos_token_id(names.index(begin))
    writer.add_chat_template(source)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.4).astype(np.float32))

    def ones(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    add("token_embd.weight", len(names), HIDDEN)
    add("output.weight", len(names), HIDDEN)
    ones("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight", HIDDEN)
        ones(f"{block}.ffn_norm.weight", HIDDEN)
        add(f"{block}.attn_q.weight", HEADS * HEAD, HIDDEN)
        add(f"{block}.attn_k.weight", KV_HEADS * HEAD, HIDDEN)
        add(f"{block}.attn_v.weight", KV_HEADS * HEAD, HIDDEN)
        add(f"{block}.attn_output.weight", HIDDEN, HEADS * HEAD)
        if architecture == "qwen3":
            ones(f"{block}.attn_q_norm.weight", HEAD)
            ones(f"{block}.attn_k_norm.weight", HEAD)
        add(f"{block}.ffn_gate.weight", FEED_FORWARD, HIDDEN)
        add(f"{block}.ffn_up.weight", FEED_FORWARD, HIDDEN)
        add(f"{block}.ffn_down.weight", HIDDEN, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _language(template: str) -> tuple[tuple[str, ...], str, str]:
    """The control strings of a template's vocabulary, its text, and the one that ends a turn."""
    if template in CONTROLS:
        source = (FOLDER / f"{template}.jinja").read_text("utf-8")
        return CONTROLS[template], source, END[template]
    family = template_forms.family(template)
    controls = (*template_forms.controls(family), template_forms.SPECIAL["bos_token"])
    return controls, template_forms.source(template), family.terminators[0]


def tiny_vocabulary() -> tuple[list[str], list[str]]:
    """Tokens by their ids, and merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=460, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([*SENTENCES, SPOKEN_LETTERS * 8], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
