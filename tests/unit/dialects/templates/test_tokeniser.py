"""Tokenisers: the ids that `tokenizers` itself gives, but for what users write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from tests.support.template_families import CHATML, SENTENCES
from trt_responses.dialects.templates.pretokens import PRETOKENISERS, normaliser, pretokeniser
from trt_responses.dialects.templates.tokeniser import Tokeniser
from trt_responses.errors import StartupError

Json = dict[str, Any]


@pytest.fixture(scope="module")
def settings_of_file() -> Json:
    """A tokenizer.json as a checkpoint has it: `<think>` and others are added but not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    told: Json = json.loads(tokenizer.to_str())
    told |= {"pre_tokenizer": pretokeniser("qwen2"), "normalizer": normaliser("qwen2")}
    size = tokenizer.get_vocab_size()
    told["added_tokens"] = [
        {
            "id": size + at,
            "content": text,
            "special": text.startswith("<|"),
            "lstrip": text == "<|vision_start|>",
            "rstrip": text == "<|vision_start|>",
            "single_word": False,
            "normalized": False,
        }
        for at, text in enumerate((*CHATML, "\n\n\n"))
    ]
    return told


@pytest.fixture(scope="module")
def reference(settings_of_file: Json) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(settings_of_file))


@pytest.fixture(scope="module")
def ours(settings_of_file: Json) -> Tokeniser:
    return Tokeniser.from_settings(settings_of_file, "tokenizer.json")


@pytest.fixture(scope="module")
def gguf(settings_of_file: Json) -> Tokeniser:
    """The same vocabulary as a GGUF file has it."""
    model, added = settings_of_file["model"], settings_of_file["added_tokens"]
    tokens = [text for text, _ in sorted(model["vocab"].items(), key=lambda pair: pair[1])]
    types = [1] * len(tokens) + [3 if one["special"] else 4 for one in added]
    merges = [" ".join(merge) for merge in model["merges"]]
    return Tokeniser.from_gguf([*tokens, *(o["content"] for o in added)], types, merges, "qwen2")


PARTS = st.one_of(st.sampled_from((*CHATML[:-1], "\n\n\n", "\n", "it's 12 <", "é")), st.text())


@settings(max_examples=150)
@given(parts=st.lists(PARTS, max_size=8))
def test_ids_are_those_of_tokenizers(
    parts: list[str], reference: Tokenizer, ours: Tokeniser, gguf: Tokeniser
) -> None:
    text = "".join(parts)
    ids = reference.encode(text, add_special_tokens=False).ids
    assert ours.encode(text) == gguf.encode(text) == ids
    assert b"".join(map(ours.bytes_of, ids)).decode() == reference.normalizer.normalize_str(text)


def test_a_control_string_swallows_white_space_where_its_file_says_so(
    reference: Tokenizer, ours: Tokeniser
) -> None:
    text = "a  <|vision_start|> \n b"
    assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids


def test_plain_text_has_no_control_ids(ours: Tokeniser) -> None:
    tokeniser = ours
    for control in CHATML:
        ids = tokeniser.encode_plain(f"a{control}b")
        assert tokeniser.controls.keys().isdisjoint(ids)
        assert tokeniser.text(ids) == f"a{control}b"
        assert tokeniser.text(tokeniser.encode(tokeniser.marks.shielded(control))) == control


def test_ids_outside_the_vocabulary_have_no_bytes(gguf: Tokeniser) -> None:
    assert [gguf.bytes_of(number) for number in (-1, 10**9)] == [b"", b""]
    assert gguf.id_of("<think>") is not None
    assert gguf.id_of("think") is None


@pytest.mark.parametrize("pre", PRETOKENISERS)
def test_every_pre_tokeniser_of_the_list_works(pre: str) -> None:
    alphabet = ByteLevel.alphabet()
    tokeniser = Tokeniser.from_gguf(alphabet, [1] * len(alphabet), [], pre)
    text = "It's 12345 Wörld, 世界!\n\n  x\t"
    assert tokeniser.text(tokeniser.encode(text)) == text


def test_other_pre_tokenisers_are_refused_by_name() -> None:
    with pytest.raises(StartupError, match="'kimi-k2' is not supported"):
        Tokeniser.from_gguf([], [], [], "kimi-k2")


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"model": {"type": "Unigram"}}', '{"model": {"type": "BPE"}}']
)
def test_a_file_that_is_no_byte_level_tokeniser_stops_the_start(text: str) -> None:
    with pytest.raises(StartupError):
        Tokeniser.from_settings(json.loads(text), "tokenizer.json")
