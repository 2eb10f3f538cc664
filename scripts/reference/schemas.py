"""What JSON schemas may hold, and the bounds of one, as the code has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.accept import sampling
from trt_responses.dialects.guided import RESERVE
from trt_responses.schema import compile, keywords, matching, normalise, numbers, patterns, values
from trt_responses.schema.formats import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BOUNDS: Mapping[str, int] = {
    "bytes of one schema": compile.MAX_BYTES,
    "depth of nested schemas": keywords.MAX_DEPTH,
    "schemas in total": keywords.MAX_SCHEMAS,
    "values of one `enum`": values.MAX_VALUES,
    "characters of all `enum` and `const` values": values.MAX_SPELLED,
    "optional members of one object": normalise.MAX_OPTIONAL,
    "`minLength`, `minItems`": numbers.MAX_REPEAT,
    "`multipleOf`, without its decimal point": numbers.LARGEST_STEP,
    "patterns that one text must match": normalise.MAX_CONJOINED,
    "characters of a pattern": patterns.MAX_CHARACTERS,
    "one repeat in a pattern": patterns.MAX_REPEAT,
    "characters of a pattern with its repeats written out": patterns.MAX_SIZE,
    "the same for a repeat within a repeat": patterns.MAX_NESTED_SIZE,
    "different patterns of a schema": matching.MAX_PATTERNS,
    "characters of a grammar": compile.MAX_GRAMMAR,
    "consecutive white space between tokens of JSON": matching.BLANKS,
    "tokens reserved for a guided answer": RESERVE,
    "reasoning tokens at effort `minimal`": sampling.EFFORT_BUDGETS["minimal"],
}


def bounds() -> str:
    """The bounds of one request's schemas."""
    return "| what | limit |\n|---|---|\n" + "".join(
        f"| {name} | {value:,} |\n" for name, value in BOUNDS.items()
    )


def lists() -> str:
    """The formats that are enforced, and the keywords that cannot be."""
    return f"- Formats: {_listed(EXPRESSIONS)}.\n- Unsupported: {_listed(normalise.UNGUIDED)}.\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
