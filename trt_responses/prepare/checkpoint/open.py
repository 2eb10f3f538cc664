"""A checkpoint directory as one lazy view: tensors by Hugging Face name, all of them checked.
Follows links and indexes; reads headers only, and executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint import original
from trt_responses.prepare.checkpoint.architecture import (
    Architecture,
    Config,
    from_hf,
    from_original,
)
from trt_responses.prepare.checkpoint.expected import expected_tensors
from trt_responses.prepare.checkpoint.safetensors import Tensor, read_tensors
from trt_responses.prepare.faults import PrepareError, WrongInput, cut, refusal, shown

Layout = Literal["hf", "original"]

INDEX = "model.safetensors.index.json"
PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
HUB_MODEL = "models--"
"""The prefix of a model's folder in the hub's cache: `models--owner--name/snapshots/<revision>`."""
MAX_CONFIG_BYTES = 1_000_000
MAX_INDEX_BYTES = 100_000_000
MOST = 1 << 24
"""The bound of every number in a config."""


class WeightSource(Protocol):
    """A source of weights: a checkpoint directory, or a file of another format."""

    @property
    def name(self) -> str:
        """The source's name for people."""

    @property
    def layout(self) -> Literal["hf", "original", "gguf"]: ...
    @property
    def architecture(self) -> Architecture | None: ...
    @property
    def files(self) -> tuple[Path, ...]:
        """All files that were read; the card names them."""

    @property
    def size_bytes(self) -> int:
        """The size of the weights."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory that has passed every check; `tensors` in the order they are expected."""

    directory: Path
    layout: Layout
    architecture: Architecture
    tensors: Mapping[str, Tensor]
    files: tuple[Path, ...]
    """The config, the index if any, and the shards: all files that were read; the card names
    them."""

    @property
    def name(self) -> str:
        return checkpoint_name(self.directory)

    @property
    def size_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.tensors.values())


def open_checkpoint(directory: Path) -> Checkpoint:
    """Open and check a directory of either layout. Raises a `PrepareError` for the first fault."""
    try:
        return _open(directory)
    except OSError as error:
        raise PrepareError(f"{cut(directory)} cannot be read ({error.strerror}).") from None


def _open(directory: Path) -> Checkpoint:
    if not directory.is_dir():
        raise WrongInput(f"{directory}: found no directory, expected a checkpoint directory.")
    refuse_pickles(directory)
    config = json_object(directory, "config.json", MAX_CONFIG_BYTES)
    if "model_type" not in config and "num_experts" in config:
        return _open_original(directory, config)
    architecture = from_hf(config)
    tensors, files = indexed(directory)
    return _checked(directory, "hf", architecture, tensors, files)


def _open_original(directory: Path, config: Config) -> Checkpoint:
    architecture = from_original(config)
    index = directory / INDEX
    tensors, files = indexed(directory) if index.exists() else _globbed(directory)
    packed = any(name.endswith(".blocks") for name in tensors)
    architecture = replace(architecture, packed=packed)
    renamed = original.as_hf(tensors, architecture)
    return _checked(directory, "original", architecture, renamed, files)


def refuse_pickles(directory: Path) -> None:
    """Refuse a directory with pickled weights, which can hold code."""
    for path in sorted(directory.iterdir()):
        if path.suffix.lower() in PICKLES:
            raise PrepareError(
                f"{path.name}: found a pickle file, which can run code, expected safetensors only; "
                "convert it, or move it out of the directory."
            )


def inside(directory: Path, name: str) -> Path:
    """The file of that name in the directory. Refuses a link that leads out of the directory and
    out of the model's folder in the hub's cache."""
    path = directory / name
    if not _is_file(path):
        raise WrongInput(f"{cut(name)}: found no such file in {directory}, expected one.")
    homes = (directory.resolve(), *_blobs(directory))
    if not any(path.resolve().is_relative_to(home) for home in homes):
        raise PrepareError(
            f"{cut(name)}: found a link that leads out of {directory}, expected a file in it; copy "
            "the checkpoint with its links resolved (`cp -rL`, or `hf download --local-dir`)."
        )
    return path


def _blobs(directory: Path) -> Iterator[Path]:
    """The directory that holds the files of a snapshot in the hub's cache: the targets of its
    links."""
    snapshots = directory.resolve().parent
    if snapshots.name == "snapshots" and snapshots.parent.name.startswith(HUB_MODEL):
        yield snapshots.parent / "blobs"


def checkpoint_name(directory: Path) -> str:
    """The checkpoint's name for people: that of the directory, or of the model for a snapshot in
    the hub's cache."""
    if directory.is_file():
        return directory.stem
    for blobs in _blobs(directory):
        return blobs.parent.name.rpartition("--")[2]
    return directory.resolve().name


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long for any file
        return False


def json_object(directory: Path, name: str, max_bytes: int) -> dict[str, object]:
    """A JSON object of bounded size from the directory."""
    path = inside(directory, name)
    if (size_bytes := path.stat().st_size) > max_bytes:
        raise refusal(name, f"{size_bytes} bytes", f"at most {max_bytes}")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise refusal(name, f"no JSON ({error})", "a JSON object") from None
    if not isinstance(found, dict):
        raise refusal(name, type(found).__name__, "a JSON object")
    return found


def config_number(config: Config, key: str, otherwise: int | None = None) -> int:
    """A whole number above 0 of a model's config. `otherwise`: its value if the config has none."""
    found = config.get(key, otherwise)
    if type(found) is not int or not 0 < found < MOST:
        raise refusal(f"config.json, {key}", shown(found), f"a number below {MOST}")
    return found


def indexed(directory: Path) -> tuple[dict[str, Tensor], tuple[Path, ...]]:
    """The tensors of the index's shards, or of the one safetensors file, and the files."""
    if not (directory / INDEX).exists():
        shards = sorted(directory.glob("*.safetensors"))
        if len(shards) != 1:
            raise refusal(
                str(directory),
                f"{len(shards)} safetensors files and no {INDEX}",
                "one, or an index",
            )
        return _globbed(directory)
    weight_map = json_object(directory, INDEX, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict):
        raise refusal(f"{INDEX}, weight_map", type(weight_map).__name__, "a JSON object")
    paths: dict[str, Path] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or shard not in paths:  # a million names may have one shard
            path = _shard(directory, name, shard)
            paths[path.name] = path
    tensors = _joined(paths[shard] for shard in sorted(paths))
    for name in weight_map:
        if name not in tensors:
            raise refusal(f"tensor {name!r}", f"nothing in {weight_map[name]}", "the tensor")
    for name in tensors:
        if name not in weight_map:
            raise refusal(f"tensor {name!r}", "a tensor that the index does not name", "none")
    files = (inside(directory, INDEX), *(paths[shard] for shard in sorted(paths)))
    return tensors, files


def _shard(directory: Path, name: str, shard: object) -> Path:
    where = f"{INDEX}, {shown(name)}"
    plain = isinstance(shard, str) and not any(c in shard for c in "/\\\0") and shard != ".."
    if not isinstance(shard, str) or not plain:
        raise refusal(where, shown(shard), "a file name in the directory")
    if not shard.endswith(".safetensors"):
        raise refusal(where, shown(shard), "a safetensors file")
    return inside(directory, shard)


def _globbed(directory: Path) -> tuple[dict[str, Tensor], tuple[Path, ...]]:
    files = tuple(inside(directory, p.name) for p in sorted(directory.glob("*.safetensors")))
    if not files:
        raise PrepareError(f"{directory}: found no safetensors file, expected at least one.")
    return _joined(files), files


def _joined(files: Iterable[Path]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in files:
        for name, tensor in read_tensors(path).items():
            if name in tensors:
                raise refusal(f"tensor {name!r}", f"a second one in {path.name}", "one")
            tensors[name] = tensor
    return tensors


def _checked(
    directory: Path,
    layout: Layout,
    architecture: Architecture,
    tensors: Mapping[str, Tensor],
    files: tuple[Path, ...],
) -> Checkpoint:
    """The checkpoint. Refuses a missing or an extra tensor, and one of another shape or dtype."""
    expected = expected_tensors(architecture)
    for name, (shape, dtypes) in expected.items():
        if (tensor := tensors.get(name)) is None:
            raise refusal(f"tensor {name!r}", "none", f"{' or '.join(dtypes)} {shape}")
        if tensor.shape != shape:
            raise refusal(f"tensor {name!r}, shape", tensor.shape, shape)
        if tensor.dtype not in dtypes:
            raise refusal(f"tensor {name!r}, dtype", tensor.dtype, " or ".join(dtypes))
    for name in tensors:
        if name not in expected:
            raise refusal(f"tensor {name!r}", "an extra tensor", "none of that name")
    ordered = {name: tensors[name] for name in expected}
    return Checkpoint(directory, layout, architecture, ordered, (directory / "config.json", *files))
