"""Write a random gpt-oss checkpoint: `python scripts/random_checkpoint.py DIRECTORY`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from scripts.checkpoints import GPT_OSS_20B, TINY, Recipe, write_checkpoint

SHAPES = {"tiny": TINY, "20b": GPT_OSS_20B}
SIZES = ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "experts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--form", choices=("bf16", "f32", "mxfp4"), default="bf16")
    parser.add_argument("--layout", choices=("hf", "original"), default="hf")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="tiny")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sparse", action="store_true", help="headers and sizes, only zeros")
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    options = parser.parse_args()
    sizes = {name: value for name in SIZES if (value := getattr(options, name)) is not None}
    architecture = replace(SHAPES[options.shape], **sizes)
    recipe = Recipe(
        architecture,
        options.form,
        options.layout,
        options.shards,
        options.seed,
        sparse=options.sparse,
    )
    print(write_checkpoint(options.directory, recipe))


if __name__ == "__main__":
    main()
