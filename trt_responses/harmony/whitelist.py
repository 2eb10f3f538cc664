"""Which keywords of JSON Schema are honoured, and how much of them: tables, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.harmony.formats import FORMATS
from trt_responses.harmony.pattern import MOST_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 65_536
MAX_DEPTH = 32
MAX_SUBSCHEMAS = 2_000
MAX_REFERENCES = 256
MAX_ALTERNATIVES = 64
"""Beyond a hundred the engines' own guides break off, and each is followed on its own here."""
MAX_ELEMENTS = 16_000
"""Written out, twice as many break llama.cpp's guide off."""
MAX_ENUM_VALUES = 1_000
MAX_ENUM_BYTES = 16_384
MAX_REPEATS = 1_000
MAX_STATES = 8_192
COUNTED_ALONE = 64
"""Characters of a pattern that make it one alternative more."""
MAX_PATTERN_LENGTH = MOST_CHARACTERS
CACHED = 64
"""Compiled schemas that are kept; none is larger than the bounds allow."""

BOUNDS: Mapping[str, int] = {
    "bytes of the schema": MAX_BYTES,
    "depth of schemas in schemas": MAX_DEPTH,
    "schemas in all": MAX_SUBSCHEMAS,
    "references (`$ref`)": MAX_REFERENCES,
    "alternatives of one `anyOf`, with those of its alternatives; a pattern that stands for more "
    f"than {COUNTED_ALONE} characters is one more for each as many": MAX_ALTERNATIVES,
    "values of one `enum`": MAX_ENUM_VALUES,
    "bytes of one `enum` or `const`": MAX_ENUM_BYTES,
    "`minLength`, `maxLength`, `minItems`, `maxItems`": MAX_REPEATS,
    "`minItems` and `maxItems`, all added up": MAX_ELEMENTS,
    "characters of a `pattern`": MAX_PATTERN_LENGTH,
    "characters that all patterns stand for": MAX_STATES,
}

KEYWORDS: Mapping[str, str] = {
    "type": "one of JSON's types, or a list of them",
    "properties": "members by name; the answer has them in this order",
    "required": "names that stand in `properties`",
    "additionalProperties": "`false`, `true` (the default) or a schema",
    "items": "the schema of an array's elements",
    "prefixItems": "the schemas of an array's first elements",
    "minItems": "least number of elements",
    "maxItems": "greatest number of elements",
    "minLength": "least number of characters",
    "maxLength": "greatest number of characters",
    "pattern": "a pattern in bounds, from `^` to `$` (below)",
    "format": ", ".join(f"`{name}`" for name in FORMATS),
    "minimum": "inclusive",
    "maximum": "inclusive",
    "exclusiveMinimum": "a number",
    "exclusiveMaximum": "a number",
    "enum": "any values; with `type`, those of that type",
    "const": "any value",
    "anyOf": "at least one schema; beside annotations only",
    "$ref": "`#`, `#/$defs/NAME` or `#/definitions/NAME`; beside annotations only",
    "$defs": "schemas by name, at the root",
    "definitions": "likewise",
}
"""Each keyword that is honoured, and how."""

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$schema", "$comment"}
)
"""Keywords that allow and forbid nothing."""

APPLIES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), frozenset({"object"})),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), frozenset({"array"})),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), frozenset({"string"})),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        frozenset({"number", "integer"}),
    ),
}
"""Keywords that mean something for some types only."""

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
DEFINITIONS = ("$defs", "definitions")
