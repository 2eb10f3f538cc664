"""The demo model's compact source, grown to an ordinary Hugging Face directory.

Knows the compact format: every tensor as usual, but the two vocabulary matrices have rows for the
used ids only, and one last row that all others share. Knows no engine.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.prepare.card import sha256_of, write_whole
from trt_responses.prepare.checkpoint.architecture import from_hf
from trt_responses.prepare.checkpoint.open import MAX_CONFIG_BYTES, inside, json_object
from trt_responses.prepare.checkpoint.safetensors import read_tensors, write_tensors
from trt_responses.prepare.checkpoint.synthetic import Recipe, write_checkpoint, write_json
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.shelf import DEMO, SOURCE, locked

if TYPE_CHECKING:
    from trt_responses.prepare.checkpoint.safetensors import Array, Tensor

COMPACT = "compact.safetensors"
PACKAGED = Path(__file__).parent / SOURCE
"""Where the wheel keeps what a checkout has beside its engines."""
USED_IDS = "used_ids"
GROWN = ("model.embed_tokens.weight", "lm_head.weight")
MARK = "expanded.json"
RANDOM_SEED = 20


def demo_checkpoint(engines_dir: Path) -> Path:
    """The demo's checkpoint directory, made if need be; its weights are trained if we have them."""
    source, target = source_of(engines_dir), engines_dir / DEMO / "demo-checkpoint"
    mark = _mark(source)
    if _is_marked(target, mark):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent, wait=True):  # of two servers that start at once, one writes
            if not _is_marked(target, mark):
                _write(source, target, mark)
    except OSError as error:
        raise PrepareError(f"{target}: the demo cannot be written ({error.strerror}).") from None
    return target


def _write(source: Path, target: Path, mark: dict[str, object]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if (source / COMPACT).is_file():
        expand(source, target)
    else:
        write_checkpoint(target, Recipe(seed=RANDOM_SEED))
    write_whole(target / MARK, json.dumps(mark) + "\n")


def source_of(engines_dir: Path) -> Path:
    """Where the compact source is: beside the engines in a checkout, or inside the package."""
    beside = engines_dir / SOURCE
    return beside if (beside / COMPACT).is_file() else PACKAGED


def is_trained(engines_dir: Path) -> bool:
    """Without trained weights the demo is random: it serves, and says nothing."""
    return (source_of(engines_dir) / COMPACT).is_file()


def _mark(source: Path) -> dict[str, object]:
    names = ("config.json", COMPACT)
    if not (source / COMPACT).is_file():
        return {"random_seed": RANDOM_SEED}
    return {name: sha256_of(inside(source, name)) for name in names}


def _is_marked(target: Path, mark: dict[str, object]) -> bool:
    try:
        return bool(json.loads((target / MARK).read_text("utf-8")) == mark)
    except (OSError, ValueError):
        return False


def expand(source: Path, directory: Path) -> None:
    """Write `config.json` and `model.safetensors`, to be checked like any checkpoint's."""
    config = json_object(source, "config.json", MAX_CONFIG_BYTES)
    rows = from_hf(config).vocabulary
    compact = read_tensors(source / COMPACT)
    if USED_IDS not in compact:
        raise refusal(f"{COMPACT}, tensor {USED_IDS!r}", "none", "the ids that the rows belong to")
    row_of = _row_of(compact.pop(USED_IDS), rows)
    tensors = [_grown(t, row_of) if t.name in GROWN else t for t in compact.values()]
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", config)
    write_tensors(directory / "model.safetensors", tensors)


def _row_of(used: Tensor, rows: int) -> Array:
    """For every id of the vocabulary, its row in the compact matrices."""
    ids = used.read()
    if used.dtype != "I32" or ids.ndim != 1 or not ids.size:
        raise refusal(f"{COMPACT}, {USED_IDS}", f"{used.dtype} {used.shape}", "one row of I32 ids")
    if not (np.diff(ids) > 0).all() or ids[0] < 0 or ids[-1] >= rows:
        raise refusal(f"{COMPACT}, {USED_IDS}", "other ids", f"rising ids from 0 below {rows}")
    row_of = np.full(rows, ids.size, np.int64)
    row_of[ids] = np.arange(ids.size)
    return row_of


def _grown(tensor: Tensor, row_of: Array) -> Tensor:
    expected = int(row_of.max()) + 1
    if len(tensor.shape) != 2 or tensor.shape[0] != expected:
        found = tensor.shape[0] if tensor.shape else 0
        raise refusal(f"{COMPACT}, tensor {tensor.name!r}, rows", found, expected)
    shape = (len(row_of), tensor.shape[1])
    return replace(tensor, shape=shape, read=lambda: tensor.read()[row_of])
