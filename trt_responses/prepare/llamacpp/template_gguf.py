"""Prepares a model without Harmony for the embedded engine.
    copy    the unchanged weights, under a new head             leaves <version>/model.gguf
                                                                and <version>/dialect.json
llama.cpp streams no id that ends inside a character, so the served file has other names for such
ids; `dialect.json` holds their bytes and the chat template. Any architecture of llama.cpp will do.
Handles the files; the caller passes in the function that finds the dialect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import gguf

from trt_responses.engines.stand_ins import is_whole, spelled
from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.language import MOST_TOKENS
from trt_responses.prepare.checkpoint.open import WeightSource
from trt_responses.prepare.checkpoint.safetensors import Array
from trt_responses.prepare.digests import source_facts
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.files import (
    DIALECT,
    MODEL,
    EngineFile,
    engine_file,
    file_difference,
    read_finished,
    sha256_of,
    write_finished,
)
from trt_responses.prepare.llamacpp.gguf_file import ALIGNMENT, Value, read_gguf
from trt_responses.prepare.llamacpp.head import LETTERS, in_letters
from trt_responses.prepare.llamacpp.merges import both_spellings, stand_in_merges
from trt_responses.prepare.llamacpp.move import PLAIN_COPY, Copy, copy_of
from trt_responses.prepare.llamacpp.region import Region, region_of
from trt_responses.prepare.phases import Phases
from trt_responses.prepare.pipeline import BuildTools, Built, Product, Target, prepared
from trt_responses.prepare.shelf.card import Card, DialectFacts, Kind, Source, StoredWeights

CONVERTER = 3
"""A part of every engine's version. Raise it when the same file gives another one."""
HARMONY = "gpt-oss"
PREFIX = "tokenizer."
TOKENS, TYPES, MERGES, MODEL_KIND = (
    f"{PREFIX}ggml.{name}" for name in ("tokens", "token_type", "merges", "model")
)
END, TURN_END = f"{PREFIX}ggml.eos_token_id", f"{PREFIX}ggml.eot_token_id"
PARTS = "split.count"
BYTE_LEVEL = "gpt2"
"""GGUF's name for byte-level BPE."""
BYTES = {chr(LETTERS.get(byte, byte)): byte for byte in range(256)}


class TemplateSource(WeightSource, Protocol):
    """A model with a chat template: a GGUF file, or a source of one."""

    @property
    def path(self) -> Path: ...

    @property
    def model(self) -> str:
        """What llama.cpp calls the architecture."""

    @property
    def context(self) -> int: ...
    @property
    def vocabulary(self) -> Mapping[str, Any]:
        """All keys of its tokens and its chat template, by GGUF's names."""

    @property
    def region(self) -> Region | None:
        """The place of the weights, if they can be taken over as they are."""

    def add_head(self, writer: gguf.GGUFWriter, renamed: Mapping[str, object]) -> None: ...
    def values(self) -> Iterator[Array]: ...


@dataclass(frozen=True, slots=True)
class TemplateGguf:
    """One GGUF file with a chat template."""

    path: Path
    name: str
    model: str
    """What llama.cpp calls the architecture."""
    context: int
    size_bytes: int
    vocabulary: Mapping[str, Any]
    """All keys of its tokens, and its chat template."""
    region: Region | None
    layout: Literal["gguf"] = "gguf"
    architecture: None = None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def add_head(self, writer: gguf.GGUFWriter, renamed: Mapping[str, object]) -> None:
        """Write the keys, with the values in `renamed` instead of the file's, and the table of the
        tensors."""
        reader = gguf.GGUFReader(self.path)
        for name, field in reader.fields.items():
            if name.startswith("GGUF.") or name == "general.architecture":
                continue
            kind = field.types[0]
            of = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            if name == ALIGNMENT:
                writer.data_alignment = int(field.contents())
            writer.add_key_value(name, renamed.get(name, field.contents()), kind, sub_type=of)
        for tensor in _by_place(reader):
            data = tensor.data
            writer.add_tensor_info(
                tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type
            )

    def values(self) -> Iterator[Array]:
        """The values of each tensor, in the table's order."""
        for tensor in _by_place(gguf.GGUFReader(self.path)):
            yield tensor.data


def _by_place(reader: gguf.GGUFReader) -> list[gguf.ReaderTensor]:
    return sorted(reader.tensors, key=lambda tensor: int(tensor.data_offset))


def open_template_gguf(path: Path) -> TemplateGguf | None:
    """The file; None for gpt-oss, which needs no template."""
    head = read_gguf(path)
    model = _text(path, head.keys.get("general.architecture", b""))
    if model == HARMONY:
        return None
    keys: dict[str, Any] = {name: _text(path, value) for name, value in head.keys.items()}
    if (found := keys.get(MODEL_KIND)) != BYTE_LEVEL:
        raise refusal(f"{path.name}, {MODEL_KIND}", found, f"{BYTE_LEVEL}, byte-level BPE")
    vocabulary: dict[str, Any] = {
        key: value for key, value in keys.items() if key.startswith(PREFIX)
    }
    if isinstance(count := keys.get(PARTS), int) and count > 1:
        raise refusal(
            path.name, f"one of {count} parts", "one file; join them with llama-gguf-split --merge"
        )
    for key in (TOKENS, TYPES, MERGES):
        if not isinstance(vocabulary.get(key), list):
            raise refusal(f"{path.name}, {key}", "none", "a list")
    if len(tokens := vocabulary[TOKENS]) > MOST_TOKENS:
        raise refusal(f"{path.name}, {TOKENS}", f"{len(tokens)} tokens", f"at most {MOST_TOKENS}")
    context = keys.get(f"{model}.context_length")
    if not isinstance(context, int) or context < 1:
        raise refusal(f"{path.name}, {model}.context_length", context, "a number of tokens")
    size_bytes, region = path.stat().st_size, region_of(head, path)
    return TemplateGguf(path, path.stem, str(model), context, size_bytes, vocabulary, region)


def _text(path: Path, value: Value) -> object:
    """A value of a head: bytes as text, also in a list."""
    try:
        if isinstance(value, list):
            return [each.decode() if isinstance(each, bytes) else each for each in value]
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise PrepareError(f"{path.name}: found a text that is no UTF-8, expected UTF-8.") from None


def prepare(
    source: TemplateSource,
    engines_dir: Path,
    name: str,
    tools: BuildTools,
    *,
    family: str | None = None,
    wait: bool = False,
) -> Built:
    """Prepare an engine, or return the prepared one. `family`: the operator's `--dialect`."""
    copy = copy_of(source.region, engines_dir, move=tools.move)
    return prepared(_Copy(source, family, tools, copy), engines_dir, name, wait=wait)


@dataclass(frozen=True, slots=True)
class Copied:
    """A finished copy, recorded for a later run."""

    files: tuple[EngineFile, ...]
    dialect: DialectFacts
    seconds: float


class _Copy(Target):
    """The target of `prepare.pipeline` for one file."""

    kind: Kind = "llamacpp"
    weight_type: StoredWeights = "gguf"
    checkpoint: TemplateSource

    def __init__(
        self, checkpoint: TemplateSource, family: str | None, tools: BuildTools, copy: Copy
    ) -> None:
        self.checkpoint = checkpoint
        self.tools = tools
        self._family = family
        self._copy = copy

    def identity(self, source: Source) -> str:
        facts = {"source": source_facts(source), "family": self._family, "converter": CONVERTER}
        return json.dumps(facts)

    def disk_bytes(self) -> float:
        return self._copy.disk_bytes(self.checkpoint.size_bytes)

    def notes(self, card: Card) -> tuple[str, ...]:
        return () if card.dialect is None else (card.dialect.sentence(),)

    def make(self, directory: Path, phases: Phases) -> Product:
        found = read_finished(directory, Copied)
        if found is None or any(file_difference(file, directory) for file in found.files):
            found = self._copied(directory, phases)
            write_finished(directory, found)
        return Product(
            files=found.files,
            context_tokens=self.checkpoint.context,
            memory_bytes=self.checkpoint.size_bytes,
            seconds={"copy": found.seconds},
            dialect=found.dialect,
        )

    def _copied(self, directory: Path, phases: Phases) -> Copied:
        self.tools.check_room(directory, self.disk_bytes())
        began = self.tools.clock()
        dialect_file = directory / DIALECT
        write_whole(dialect_file, json.dumps(self.checkpoint.vocabulary))
        dialect = self.tools.dialect_for(dialect_file, self._family)
        phases.begin("copy", self.checkpoint.size_bytes)
        part = directory / f"{MODEL}.part"
        try:
            write_served(self.checkpoint, part, phases.advance, self._copy)
            part.replace(directory / MODEL)
        finally:
            part.unlink(missing_ok=True)
        files = (dialect_file, directory / MODEL)
        seconds = round(self.tools.clock() - began, 3)
        return Copied(tuple(engine_file(p, sha256_of(p)) for p in files), dialect, seconds)


def write_served(
    source: TemplateSource,
    target: Path,
    advance: Callable[[int], object],
    copy: Copy = PLAIN_COPY,
) -> None:
    """Write the file with names that llama.cpp streams; everything else is unchanged."""
    writer = gguf.GGUFWriter(target, source.model)
    source.add_head(writer, _renamed(source.vocabulary))
    end = source.vocabulary.get(END)
    if TURN_END not in source.vocabulary and isinstance(end, int):
        # A guide ends with it; llama.cpp would look for a likely name in no certain order.
        writer.add_eot_token_id(end)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    if source.region is not None:
        writer.close()
        copy.write(target.read_bytes(), source.region, target, advance)
        return
    for values in source.values():
        writer.write_tensor_data(values)
        advance(int(values.nbytes))
    writer.close()


def _renamed(vocabulary: Mapping[str, Any]) -> dict[str, object]:
    """The tokens and merges, with stand-ins for ids that are not whole characters."""
    tokens, types, merges = vocabulary[TOKENS], vocabulary[TYPES], vocabulary[MERGES]
    whole = [
        text if is_whole(raw) else in_letters(spelled(raw).encode())
        for text, raw in zip(tokens, raw_tokens(tokens, types), strict=True)
    ]
    ours = [" ".join(map(in_letters, pair)) for pair in stand_in_merges()]
    return {TOKENS: whole, MERGES: [*ours, *chain.from_iterable(map(_both_spellings, merges))]}


def _both_spellings(merge: str) -> Iterator[str]:
    """A merge of the file, and its form in stand-ins if it ends inside a character."""
    parts = tuple(map(_of_letters, merge.split(" ")))
    yield merge
    match parts:
        case (bytes() as first, bytes() as second):
            _, *other = both_spellings((first, second))
            yield from (" ".join(map(in_letters, pair)) for pair in other)


def _of_letters(text: str) -> bytes | None:
    """The bytes of a text in GPT-2's alphabet; None for another text."""
    try:
        return bytes(map(BYTES.__getitem__, text))
    except KeyError:
        return None


def raw_tokens(tokens: Sequence[str], types: Sequence[int]) -> list[bytes]:
    """The bytes of each id; for a control id its spelling."""
    raw = []
    for text, kind in zip(tokens, types, strict=True):
        found = _of_letters(text) if kind == gguf.TokenType.NORMAL else None
        raw.append(text.encode() if found is None else found)
    return raw
