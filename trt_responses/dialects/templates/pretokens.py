"""The pre-tokenisers that GGUF files name, in the form of `tokenizers`. A closed list.

A file that names another one is refused: a guess could give ids that the model was not trained on.
The patterns come from the tokenisers' own files; the names are llama.cpp's.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_EDGE = r"[^\r\n\p{L}\p{N}]?"

_QWEN2 = f"{_CONTRACTIONS}|{_LETTERS}|\\p{{N}}|{_SIGNS}|{_TAIL}"
_QWEN35 = (
    f"{_CONTRACTIONS}|[^\\r\\n\\p{{L}}\\p{{N}}]?[\\p{{L}}\\p{{M}}]+|\\p{{N}}"
    f"| ?[^\\s\\p{{L}}\\p{{M}}\\p{{N}}]+[\\r\\n]*|{_TAIL}"
)
_LLAMA3 = f"{_CONTRACTIONS}|{_LETTERS}|\\p{{N}}{{1,3}}|{_SIGNS}|{_TAIL}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TEKKEN = (
    f"{_EDGE}{_UPPER}*{_LOWER}+|{_EDGE}{_UPPER}+{_LOWER}*|\\p{{N}}"
    f"| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*|{_TAIL}"
)
_GPT4O = (
    f"{_EDGE}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_EDGE}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    f"|\\p{{N}}{{1,3}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*|{_TAIL}"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _TAIL,
)

PRETOKENISERS: dict[str, tuple[str, ...]] = {
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "deepseek-r1-qwen": (_QWEN2,),
    "glm4": (_LLAMA3,),
    "chatglm-bpe": (_LLAMA3,),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "deepseek-v3": _DEEPSEEK3,
    "tekken": (_TEKKEN,),
    "gpt-4o": (_GPT4O,),
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
}
"""The patterns that split a text, applied in order, by the value of `tokenizer.ggml.pre`."""

COMPOSED = frozenset({"qwen2", "qwen35"})
"""Pre-tokenisers that first compose characters (NFC)."""

WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "tekken"})
"""Pre-tokenisers that use a word of the vocabulary without its merges (`ignore_merges`)."""

BYTE_LEVEL: Json = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}
"""Maps each byte to a character; as a decoder, the reverse."""


def pretokeniser(pre: str) -> Json:
    """The `pre_tokenizer` for tokenizer.json."""
    splits = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
        for one in PRETOKENISERS[pre]
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, BYTE_LEVEL]}


def normaliser(pre: str) -> Json | None:
    """The `normalizer` for tokenizer.json, or None."""
    return {"type": "NFC"} if pre in COMPOSED else None
