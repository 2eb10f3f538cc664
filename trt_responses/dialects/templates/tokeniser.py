"""A checkpoint's tokeniser: ids of rendered prompts, and bytes of ids.

Control strings are looked up here, one id each. All other text goes through a tokeniser without
control strings, so that user text never becomes a control id. Supports byte-level BPE only, which
Qwen, GLM, DeepSeek, Nemotron and Llama use. No template and no family here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from tokenizers import Tokenizer

from trt_responses.dialects.templates.marks import Marks
from trt_responses.dialects.templates.pretokens import (
    BYTE_LEVEL,
    PRETOKENISERS,
    WHOLE_WORDS,
    normaliser,
    pretokeniser,
)
from trt_responses.errors import StartupError

Json = dict[str, Any]

CONTROL_TYPE, USER_TYPE, UNUSED_TYPE = 3, 4, 5
"""Values of `tokenizer.ggml.token_type` for tokens that are not ordinary text."""


class Control(NamedTuple):
    """An added token. It replaces its text anywhere, and may absorb white space on either side."""

    text: str
    token_id: int
    lstrip: bool = False
    rstrip: bool = False

    @property
    def is_white(self) -> bool:
        """Whether this is ordinary text: white space or a single character."""
        return len(self.text) < 2 or self.text.isspace()


class Tokeniser:
    """One vocabulary. Build it with `from_settings` or `from_gguf`."""

    def __init__(self, settings: Json, controls: Iterable[Control]) -> None:
        """`settings`: a tokenizer.json without its added tokens."""
        _refuse_others(settings)
        listed = {control.text: control for control in controls}
        self._controls = {text: one for text, one in listed.items() if not one.is_white}
        self.controls: Mapping[int, str] = {o.token_id: text for text, o in self._controls.items()}
        """Each control id's spelling."""
        self.marks = Marks(self._controls)
        white = [one for one in listed.values() if one.is_white]
        model = settings["model"]
        vocabulary = {t: n for t, n in model["vocab"].items() if t not in self._controls}
        vocabulary |= {one.text: one.token_id for one in white}
        self.token_bytes: Sequence[bytes] = _token_bytes(vocabulary, listed.values())
        """Each id's bytes: a control id's spelling; empty for an id without text."""
        merges = [one for one in map(_merge, model["merges"]) if "".join(one) in vocabulary]
        bare = {
            **settings,
            "added_tokens": [_added(one) for one in white],
            "model": {**model, "vocab": vocabulary, "merges": merges},
        }
        try:
            self._tokenizer = Tokenizer.from_str(orjson.dumps(bare).decode())
        except Exception as error:  # `tokenizers` raises nothing narrower
            raise StartupError(f"The tokeniser's data cannot be used: {error}") from None

    @classmethod
    def from_settings(cls, settings: Json, where: str) -> Tokeniser:
        """The tokeniser of a tokenizer.json's content."""
        try:
            added = [
                Control(one["content"], one["id"], bool(one["lstrip"]), bool(one["rstrip"]))
                for one in settings.get("added_tokens") or ()
            ]
            bare: Json = {
                "added_tokens": [],
                "truncation": None,
                "padding": None,
                "post_processor": None,
            }
            return cls(settings | bare, added)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StartupError(f"{where} cannot be read: {type(error).__name__} {error}") from None

    @classmethod
    def from_gguf(
        cls,
        tokens: Sequence[str],
        types: Sequence[int],
        merges: Sequence[str],
        pre: str,
    ) -> Tokeniser:
        """The tokeniser of a GGUF file's `tokenizer.ggml.tokens`, `.token_type`, `.merges`,
        `.pre`."""
        if pre not in PRETOKENISERS:
            raise StartupError(
                f"The GGUF file's pre-tokeniser {pre!r} is not supported: use a file with one of "
                f"{', '.join(sorted(PRETOKENISERS))}."
            )
        controls, vocabulary = [], {}
        for number, (text, kind) in enumerate(zip(tokens, types, strict=True)):
            if kind in (CONTROL_TYPE, USER_TYPE):
                controls.append(Control(text, number))
            elif kind != UNUSED_TYPE:
                vocabulary[text] = number
        settings: Json = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": normaliser(pre),
            "pre_tokenizer": pretokeniser(pre),
            "decoder": BYTE_LEVEL,
            "model": {
                "type": "BPE",
                "vocab": vocabulary,
                "merges": list(merges),
                "ignore_merges": pre in WHOLE_WORDS,
            },
        }
        return cls(settings, controls)

    @property
    def digest(self) -> str:
        """A digest of the vocabulary: each id's bytes, and whether it is a control id."""
        digest = hashlib.blake2b(digest_size=8)
        for token_id, raw in enumerate(self.token_bytes):
            digest.update(b"%d %d " % (token_id in self.controls, len(raw)) + raw)
        return digest.hexdigest()

    def control_id(self, spelling: str) -> int:
        """The id of an existing control string."""
        return self._controls[spelling].token_id

    def id_of(self, spelling: str) -> int | None:
        """A control string's id, or None."""
        control = self._controls.get(spelling)
        return None if control is None else control.token_id

    def encode(self, rendered: str) -> list[int]:
        """A rendered prompt's ids: control ids for the template's control strings, else plain
        text."""
        ids: list[int] = []
        for text, is_control in self.pieces(rendered):
            if is_control:
                ids.append(self.control_id(text))
            else:
                ids += self.encode_plain(text)
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """A text's ids; never a control id."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def text(self, token_ids: Iterable[int]) -> str:
        """Readable text of ids."""
        return b"".join(map(self.bytes_of, token_ids)).decode("utf-8", "replace")

    def bytes_of(self, token_id: int) -> bytes:
        return self.token_bytes[token_id] if 0 <= token_id < len(self.token_bytes) else b""

    def pieces(self, rendered: str) -> Iterator[tuple[str, bool]]:
        """A rendered prompt's pieces, and whether each is a control string of the template. White
        space that a neighbouring control string absorbs is removed."""
        pieces = [*self.marks.pieces(rendered)]
        for place, (text, is_control) in enumerate(pieces):
            if not is_control:
                before = self._controls.get(pieces[place - 1][0]) if place else None
                behind = self._controls.get(pieces[place + 1][0]) if pieces[place + 1 :] else None
                text = text.lstrip() if before is not None and before.rstrip else text
                text = text.rstrip() if behind is not None and behind.lstrip else text
            if text:
                yield text, is_control


def _refuse_others(settings: Json) -> None:
    """Raise unless this is byte-level BPE, whose ids are bytes wherever a text is split."""
    kind = settings.get("model", {}).get("type")
    decoder = (settings.get("decoder") or {}).get("type")
    if kind != "BPE" or decoder != "ByteLevel":
        raise StartupError(
            f"The tokeniser is {kind} with the decoder {decoder}; only BPE with ByteLevel is "
            "supported. Use a checkpoint of Qwen, GLM, DeepSeek, Nemotron or Llama 3."
        )


def _merge(merge: str | Sequence[str]) -> tuple[str, str]:
    """The two sides of a merge; older files write them as one text."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right


def _added(control: Control) -> Json:
    flags = {"lstrip": control.lstrip, "rstrip": control.rstrip, "single_word": False}
    return {
        "id": control.token_id,
        "content": control.text,
        "normalized": False,
        "special": False,
        **flags,
    }


def _byte_of_sign() -> dict[str, int]:
    """The byte for each character of a byte-level vocabulary."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    signs = {chr(byte): byte for byte in shown}
    return signs | {chr(256 + place): byte for place, byte in enumerate(hidden)}


BYTE_OF_SIGN = _byte_of_sign()


def _token_bytes(vocabulary: Mapping[str, int], added: Collection[Control]) -> tuple[bytes, ...]:
    numbers = (*vocabulary.values(), *(control.token_id for control in added))
    table = [b""] * (1 + max(numbers, default=-1))
    for text, number in vocabulary.items():
        try:
            table[number] = bytes([BYTE_OF_SIGN[sign] for sign in text])
        except KeyError:
            table[number] = text.encode()
    for control in added:
        table[control.token_id] = control.text.encode()
    return tuple(table)
