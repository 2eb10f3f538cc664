"""The mean of several sets of weights: `python -m scripts.demo.mean OUT SOURCE SOURCE…`.

Tunings of one source by other seeds err in other places: their mean errs in fewer. Works on the
files alone, without PyTorch.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.prepare.checkpoint.safetensors import (
    Tensor,
    narrow,
    read_tensors,
    widen,
    write_tensors,
)
from trt_responses.prepare.demo import COMPACT, USED_IDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.prepare.checkpoint.safetensors import Array


def mean(sources: Sequence[Path], out: Path) -> None:
    """Write the mean of the sources' weights to `out`, with the config of the first. Raises a
    `ValueError` for sources of other tensors or of another vocabulary."""
    first, *others = files = [read_tensors(source / COMPACT) for source in sources]
    for source, file in zip(sources[1:], others, strict=True):
        alike = {name: (t.dtype, t.shape) for name, t in file.items()} == {
            name: (t.dtype, t.shape) for name, t in first.items()
        }
        if not alike or not np.array_equal(file[USED_IDS].read(), first[USED_IDS].read()):
            raise ValueError(f"{source} has other tensors or another vocabulary than {sources[0]}")

    tensors = [_mean([file[name] for file in files]) for name in first]
    config = (sources[0] / "config.json").read_text("utf-8")
    out.mkdir(parents=True, exist_ok=True)
    write_tensors(out / COMPACT, tensors)
    (out / "config.json").write_text(config, "utf-8")


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0]
    if first.name == USED_IDS:
        values: Array = np.array(first.read())
    else:
        values = narrow(np.mean([widen(each.read()) for each in tensors], 0, np.float32))
    return replace(first, read=lambda: values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="where the mean goes")
    parser.add_argument("sources", type=Path, nargs="+", help="directories of compact sources")
    given = parser.parse_args()
    try:
        mean(given.sources, given.out)
    except ValueError as fault:
        parser.error(str(fault))


if __name__ == "__main__":
    main()
