"""The share of accepted schemas of a collection: `python -m scripts.schema_acceptance FOLDER`.

The collection is not part of this repository. MaskBench is `maskbench/data` of guidance-ai's
repository jsonschemabench on GitHub: a file for each schema, with the schema as its `schema`.
`--every 4` takes each fourth file. Prints what refuses schemas; ends with 1 if fewer than 85 %
are accepted.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from trt_responses.schema.compile import Allowance, Forms
from trt_responses.schema.refusals import InvalidSchema

LEAST = 0.85
SCHEMA_S = 1.0
"""The server's own default, of a processor's time."""
WORST = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1)
    chosen = parser.parse_args()
    schemas = [_schema(path) for path in sorted(chosen.folder.glob("*.json"))[:: chosen.every]]
    if not schemas:
        raise SystemExit(f"There is no schema in {chosen.folder}.")
    shares = {strict: _share_accepted(schemas, strict=strict) for strict in (True, False)}
    if min(shares.values()) < LEAST:
        raise SystemExit(1)


def _schema(path: Path) -> Any:
    read = json.loads(path.read_text())
    return read.get("schema", read)


def _share_accepted(schemas: list[Any], *, strict: bool) -> float:
    why: Counter[str] = Counter()
    for schema in schemas:
        try:
            Forms(cached=1).form(schema, "schema", Allowance(SCHEMA_S), strict=strict)
        except InvalidSchema as fault:
            why[fault.message.partition("' ")[2][:70]] += 1
    share = 1 - why.total() / len(schemas)
    print(f"{share:.1%} of {len(schemas)} schemas are accepted with strict: {str(strict).lower()}")
    for reason, count in why.most_common(WORST):
        print(f"{count:6}  {reason}")
    return share


if __name__ == "__main__":
    main()
