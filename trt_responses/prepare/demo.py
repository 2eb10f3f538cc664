"""The demo model: expands its compact source to an ordinary Hugging Face directory.
In the compact format the two vocabulary matrices have rows for the used ids only, and one last row
that all other ids share, or, with the tensors of `demo_rows`, the control ids among them. All other
tensors are as usual. Independent of every engine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trt_responses.files import reason, write_whole
from trt_responses.prepare.checkpoint.architecture import from_hf
from trt_responses.prepare.checkpoint.open import MAX_CONFIG_BYTES, inside, json_object
from trt_responses.prepare.checkpoint.safetensors import (
    Array,
    Tensor,
    narrow,
    read_tensors,
    widen,
    write_tensors,
)
from trt_responses.prepare.demo_rows import MADE, pictures, properties
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.files import json_or_nothing, sha256_of
from trt_responses.prepare.shelf.locks import locked
from trt_responses.prepare.shelf.shelf import DEMO, SOURCE
from trt_responses.tokens.vocabulary import load

COMPACT = "compact.safetensors"
AT_ONCE = 8192
"""Tokens whose rows are made at once: the pictures of all of them would take 400 MB."""
PLACES = (Path(__file__).parent / SOURCE, Path(__file__).parents[2] / "engines" / SOURCE)
"""The places of the compact source, in a wheel and in a checkout."""
USED_IDS = "used_ids"
GROWN = ("model.embed_tokens.weight", "lm_head.weight")
MARK = "expanded.json"


def demo_checkpoint(engines_dir: Path) -> Path:
    """The demo's checkpoint directory. Writes it if it is missing or comes from another source."""
    source, target = source_of(engines_dir), engines_dir / DEMO / "demo-checkpoint"
    mark = {name: sha256_of(inside(source, name)) for name in ("config.json", COMPACT)}
    if json_or_nothing(target / MARK) == mark:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent, wait=True):  # of two servers that start at once, one writes
            if json_or_nothing(target / MARK) != mark:
                shutil.rmtree(target, ignore_errors=True)
                expand(source, target)
                write_whole(target / MARK, json.dumps(mark) + "\n")
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise PrepareError(f"{target}: the demo cannot be written ({reason(error)}).") from None
    return target


def source_of(engines_dir: Path) -> Path:
    """The directory of the compact source: in the engines' directory, or in this installation."""
    places = (engines_dir / SOURCE, *PLACES)
    for place in places:
        if (place / COMPACT).is_file():
            return place
    looked = ", ".join(map(str, places))
    raise PrepareError(f"demo: found no {COMPACT} in {looked}, expected it; install again.")


def expand(source: Path, directory: Path) -> None:
    """Write `config.json` and `model.safetensors`, an ordinary checkpoint."""
    config = json_object(source, "config.json", MAX_CONFIG_BYTES)
    rows = from_hf(config).vocabulary
    compact = read_tensors(source / COMPACT)
    if USED_IDS not in compact:
        raise refusal(f"{COMPACT}, tensor {USED_IDS!r}", "none", "the ids that the rows belong to")
    row_of = _row_of(compact.pop(USED_IDS), rows)
    made = _made([compact.pop(name) for name in MADE], row_of) if MADE[0] in compact else {}
    tensors = [
        _expand_rows(t, row_of, made.get(t.name)) if t.name in GROWN else t
        for t in compact.values()
    ]
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / "config.json", json.dumps(config, indent=2) + "\n")
    write_tensors(directory / "model.safetensors", tensors)


def _row_of(used: Tensor, rows: int) -> Array:
    """The row of each id of the vocabulary in the compact matrices."""
    ids = used.read()
    if used.dtype != "I32" or ids.ndim != 1 or not ids.size:
        raise refusal(f"{COMPACT}, {USED_IDS}", f"{used.dtype} {used.shape}", "one row of I32 ids")
    if not (np.diff(ids) > 0).all() or ids[0] < 0 or ids[-1] >= rows:
        raise refusal(f"{COMPACT}, {USED_IDS}", "other ids", f"rising ids from 0 below {rows}")
    row_of = np.full(rows, ids.size, np.int64)
    row_of[ids] = np.arange(ids.size)
    return row_of


class _Made(NamedTuple):
    """Rows that are made: their places in the vocabulary, and their bits."""

    ids: Array
    rows: Array


def _made(tensors: Sequence[Tensor], row_of: Array) -> dict[str, _Made]:
    """The rows of the ids without one of their own, for both vocabulary matrices."""
    tokens = load().token_bytes
    last = row_of.max()
    ids = np.array([i for i in range(min(len(tokens), len(row_of))) if row_of[i] == last])
    weights = [widen(tensor.read()) for tensor in tensors]
    parts: list[list[Array]] = [[], []]
    for first in range(0, len(ids), AT_ONCE):
        spelled = [tokens[i] for i in ids[first : first + AT_ONCE]]
        drawn, seen = pictures(spelled), properties(spelled)
        for at, part in enumerate(parts):
            part.append(narrow(drawn @ weights[at].T + seen @ weights[at + 2]))
    return {name: _Made(ids, np.concatenate(part)) for name, part in zip(GROWN, parts, strict=True)}


def _expand_rows(tensor: Tensor, row_of: Array, made: _Made | None) -> Tensor:
    expected = int(row_of.max()) + 1
    if len(tensor.shape) != 2 or tensor.shape[0] != expected:
        found = tensor.shape[0] if tensor.shape else 0
        raise refusal(f"{COMPACT}, tensor {tensor.name!r}, rows", found, expected)
    shape = (len(row_of), tensor.shape[1])

    def read() -> Array:
        grown: Array = tensor.read()[row_of]
        if made is not None:
            grown[made.ids] = made.rows
        return grown

    return replace(tensor, shape=shape, read=read)
