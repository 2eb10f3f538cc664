"""Small vocabularies and real templates of each family: what a checkpoint has, without weights.

A vocabulary is trained here on a few sentences, with the family's own control tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.support import template_forms
from trt_responses.dialects.templates.families import Family, find
from trt_responses.dialects.templates.tables import Tables
from trt_responses.dialects.templates.tokeniser import Control, Tokeniser
from trt_responses.dialects.templates.write.template import Template

FOLDER = Path(__file__).parents[1] / "data" / "templates"

CHATML = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>", "<|vision_start|>"),
)
GLM = (
    *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
    *("<|observation|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"),
    *("</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"),
)
DEEPSEEK = (
    *(
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<think>",
    ),
    *("</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
    *(
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>",
    ),
    *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
)
CONTROLS = {
    "qwen3": CHATML,
    "qwen3_5_think": CHATML,
    "nemotron_3_nano": CHATML,
    "glm4moe": GLM,
    "deepseek_v3_1": DEEPSEEK,
    "deepseekv3": DEEPSEEK,
}
"""By the name of the template's file."""

SENTENCES = (
    "The weather in Oslo is cold and clear, 12 degrees. I think that the user wants the weather.",
    'assistant user system {"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}',
    "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n",
    "function functions tool tools call calls arguments true false null import def return",
)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint's directory says of its language."""

    template: Template
    tokeniser: Tokeniser
    family: Family


@cache
def vocabulary(controls: tuple[str, ...]) -> Tokeniser:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    settings = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    return Tokeniser(settings, [Control(text, size + at) for at, text in enumerate(controls)])


@cache
def checkpoint(name: str) -> Checkpoint:
    """Of a row of the table; or of another published template, as it describes itself."""
    if name not in CONTROLS:
        family = template_forms.family(name)
        tokeniser = vocabulary(template_forms.controls(family))
        return Checkpoint(template_forms.template(name), tokeniser, family)
    special = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
    template = Template((FOLDER / f"{name}.jinja").read_text("utf-8"), special)
    tokeniser = vocabulary(CONTROLS[name])
    family = find(template.source, tokeniser.controls.values())
    return Checkpoint(template, tokeniser, family)


@cache
def tables(name: str) -> Tables:
    """What readers of a checkpoint share."""
    one = checkpoint(name)
    end = one.tokeniser.id_of(template_forms.SPECIAL["eos_token"])
    return Tables.of(one.family, one.tokeniser, () if end is None else (end,))
