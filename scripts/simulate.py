"""Lives of two servers over one store on virtual time: `python -m scripts.simulate [--seconds 60]`.

`--seed N` lives one of them, and prints its trace. A life that breaks a promise is printed with its
seed, which repeats it.
"""

from __future__ import annotations

import argparse
import logging
import time

from tests.support.simulation import Wrong, simulate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, help="one life, with its trace")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    wish = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if wish.seed is not None:
        print("\n".join(simulate(wish.seed)))
        return
    began, seed, wrong = time.monotonic(), wish.first, 0
    while time.monotonic() - began < wish.seconds:
        try:
            simulate(seed)
        except Wrong as error:
            wrong += 1
            print(error, flush=True)
        seed += 1
    spent_s = time.monotonic() - began
    print(f"{seed - wish.first} lives in {spent_s:.0f} s, {wrong} broke a promise")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
