"""The reader against openai-harmony on as many random ids as one likes.

Run from the root as a module: `python -m scripts.fuzz_reader`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter

from tests.support.oracle import Generations, Judge, merge, read_in_chunks, split
from trt_responses.harmony.read.reader import Tables
from trt_responses.tokens.vocabulary import load


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return fuzz(arguments.tokens, arguments.seed)


def fuzz(tokens: int, seed: int) -> int:
    """0 when no law was broken; else 1, with the generation that broke it."""
    vocabulary = load()
    tables = Tables.of(vocabulary)
    generations, judge = Generations(vocabulary, seed), Judge(vocabulary, tables)
    rng = random.Random(seed)
    kinds: Counter[str] = Counter()
    agreed = refused = shown = 0
    began = time.monotonic()
    while agreed < tokens:
        token_ids = generations.next()
        stopped = rng.random() < 0.5
        try:
            verdict = judge.judge(token_ids, stopped=stopped)
            whole, _ = read_in_chunks(tables, [token_ids], stopped=stopped)
            parts, _ = read_in_chunks(tables, split(token_ids, rng), stopped=stopped)
            assert merge(parts) == merge(whole), "chunk sizes matter"
        except AssertionError as broken:
            traceback.print_exception(broken)
            print(f"{stopped=} {token_ids=}")
            return 1
        agreed += verdict.ids
        refused += verdict.refused
        kinds.update(verdict.repaired)
        if agreed - shown >= 20_000 or agreed >= tokens:
            shown = agreed
            _progress(f"{agreed:,} ids read alike, {refused:,} generations refused and mended")
    print(f"\n{time.monotonic() - began:.0f} s, seed {seed}, repairs: {dict(kinds.most_common())}")
    return 0


def _progress(line: str) -> None:
    sys.stdout.write(f"\r{line}" if sys.stdout.isatty() else f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
