"""Writes `docs/structured-output.md` from what the server itself goes by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.accept import sampling
from trt_responses.language.steering import RESERVE
from trt_responses.schema import compile, keywords, matching, normalise, numbers, patterns, values
from trt_responses.schema.formats import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAGE = Path(__file__).parent.parent / "docs" / "structured-output.md"

TEXT = f"""\
# Structured output

For whoever sends JSON schemas. Written by `python -m scripts.structured_output_page`; a test
compares it with the code.

An answer (`text.format`), the arguments of a forced call (`tool_choice`) and those of a strict tool
(`strict: true`) are held to their schema in three ways: the engine's guide lets nothing else be
written, the text is followed byte by byte while it streams, and a judge that shares nothing with
the guide reads the whole text and your own schema before the response is `completed`.

```sh
curl -s http://127.0.0.1:8000/v1/responses -H 'content-type: application/json' -d '{{
  "model": "demo", "input": "name: Anna, age: 30", "temperature": 0,
  "text": {{"format": {{"type": "json_schema", "name": "person", "strict": true, "schema": {{
    "type": "object",
    "properties": {{"name": {{"type": "string"}}, "age": {{"type": "integer"}}}},
    "required": ["name", "age"], "additionalProperties": false}}}}}}}}'
```

## What you may send

The schemas that Zod, pydantic and other tools write, as they are:

- Zod: `z.object({{id: z.number().int(), mail: z.email(), tags: z.record(z.string(), z.string())}})`
  through `zodTextFormat`: bounds of 2^53, `format` beside `pattern`, `propertyNames`, `oneOf`.
- pydantic: `class Item(BaseModel): price: Decimal; kind: Literal["a", "b"]; parts: list["Item"]`
  through `responses.parse`: `$defs`, recursive models, unions with `discriminator`, `default`.
- Plain JSON Schema of any draft: `nullable`, tuples as `items: [...]`, `exclusiveMinimum: true`,
  references to anchors and ids of the schema itself. Unknown keywords are annotations.

Of the schemas that ten such tools printed a test takes all but those that look ahead, that say
`not`, or whose type is none. Of MaskBench's 11,306 files each eighth was tried, in the order of
names (`python -m scripts.schema_acceptance`): of 1,414, 91.7 % are taken with `strict: true` and
99.2 % without.

## `strict`

| | `strict: true` | `strict` false or left out |
|---|---|---|
| an answer | all of it holds, or a 400 names keyword and place | as much as can be said holds |
| a function, called freely | likewise | its arguments are free |
| a function, its call forced | likewise | as much as can be said holds |

What does not hold is named in the reply's header `x-trt-schema-left` and, with its reason, in a
debug line of the log. A schema that is no schema (`"type": "banana"`) is a 400 either way.

## Guided, judged, refused

- **Guided**: types, `properties` in the order of the schema, `required`, `additionalProperties`,
  `patternProperties`, `propertyNames` (names, patterns, lengths), `items`, `prefixItems`, counts,
  lengths, bounds, `multipleOf`, `pattern`, `enum`, `const`, `anyOf`, `allOf`, `$ref`, and the
  formats {", ".join(f"`{name}`" for name in EXPRESSIONS)}. Other formats are annotations.
- **Judged when the text is whole**: `uniqueItems`, that one alternative of `oneOf` alone fits, and
  `minProperties` and `maxProperties` beside members that may be left out.
- **Refused under `strict`, else left out**: {", ".join(f"`{k}`" for k in normalise.UNGUIDED)};
  patterns that look ahead or behind, refer to a group or to a word's edge; values and steps with
  more digits than a guide can write, such as `const: 9007199254740993`. Such values among others in
  an `enum` are not written.

Every guide can write whole numbers within 2^62, and others within 10^15. Guides read numbers as
doubles: a whole number that no double holds cannot be a constant, and bounds are narrowed to the
next double. The judge compares an answer's numbers digit by digit.
Patterns are those of ECMA-262 (`\\s`, `.` and their negations too), anywhere in the
text unless anchored. Names and constants may not spell a control token such as `<|end|>`.
White space between marks is bounded to {matching.BLANKS} in a row; our own guides write none.

## When a model departs

Guides of engines differ in corners, and a model may write what only the judge can see. Then the
response is `failed`, never `completed`; the error says what and where (`departed from the format of
the answer at '$.items[2].price': 0 is not more than 0`), its `code` is
`output_departs_from_format` and its `param` the place. A number that readers of JSON cannot hold,
such as `1e9999`, is such a departure. A text that was cut is `incomplete`, with its reason.

A stream ends with `error` and `response.failed`; a background response reads as failed. A plain
request gets the same error with status 500, as for any run that fails once it has begun: the SDKs
raise it with its `code` and `param` after their `max_retries`, each of which is a new sample. A
response of status 200 would be parsed by `responses.parse`, which would raise for the text instead.

On the embedded engine a guide that kills its process is refused the second time. Requests beside it
go on in the next process, except guided ones that have already written: they end `failed`, since no
guide can begin in the middle of its text.

## Tools that take text

A custom tool's grammar of `syntax: regex` holds as a strict tool's schema does. One of
`syntax: lark` is followed as it is: the body of such a call is raw text. `%json`, `%regex`, names
of tokens (`<|…|>`, `<[…]>`) and other grammars (`@name`) are refused in it. An engine whose guides
read no Lark shows the grammar to the model and says so in `x-trt-schema-left`.
A text that can be read in so many ways that following it takes a processor two milliseconds at a
time is left to the engine's guide from there.

## Thought

A thought comes before a guided answer and leaves it a reserve: {RESERVE} tokens, or half of
`max_output_tokens` if that is less. `reasoning.max_tokens` bounds it further; effort `none` leaves
it out, and `minimal` bounds it to {sampling.EFFORT_BUDGETS["minimal"]} tokens.

## What a run explains

With `TRT_RESPONSES_LOG_LEVEL=debug` a run ends with one line that says its plan and each engine
request it was made of: the ids that were forced, the tokens it might have, the ids that it kept
(forced ones too) and discarded, its guide, and how it ended. Here a call was required:

    resp_… steered to commentary to=functions.get | commentary to=functions.get_it:
    thought forced=3 budget=1484 kept=9 discarded=0 guide=none completed;
    header forced=3 budget=1988 kept=11 discarded=0 guide=regex completed;
    body forced=3 budget=1976 kept=11 discarded=0 guide=json_schema completed

`trt-responses explain ID` shows the same with texts and ids ([operations.md](operations.md)).

## Bounds

The schemas of one request are compiled within one second of a processor's
time, in a thread, and owners take turns: nobody waits for another owner's line. A step of a text
takes some milliseconds at most, whatever the schema; what is too much for the follower's own limits
is left to the engine's guide and to the judge. A compiled form takes some 40 MB at most, and the
100,000 tokens that are followed in one step take 20 MB for all.

"""

BOUNDS: Mapping[str, int] = {
    "bytes of one schema": compile.MAX_BYTES,
    "schemas in schemas": keywords.MAX_DEPTH,
    "schemas in all": keywords.MAX_SCHEMAS,
    "values of one `enum`": values.MAX_VALUES,
    "characters of all values of `enum` and `const`": values.MAX_SPELLED,
    "members of one object that may be left out": normalise.MAX_OPTIONAL,
    "`minLength`, `minItems`": numbers.MAX_REPEAT,
    "`multipleOf`, without its point": numbers.LARGEST_STEP,
    "patterns that one text must match": normalise.MAX_CONJOINED,
    "characters of a pattern": patterns.MAX_CHARACTERS,
    "repeats in a pattern": patterns.MAX_REPEAT,
    "characters that a pattern stands for": patterns.MAX_SIZE,
    "of which a repeat of repeats": patterns.MAX_NESTED_SIZE,
    "patterns of a schema, each counted once": matching.MAX_PATTERNS,
    "characters of a grammar": compile.MAX_GRAMMAR,
}


def page() -> str:
    return "".join((TEXT, *rows(("what", "at most"), BOUNDS)))


def rows(head: tuple[str, str], table: Mapping[str, object]) -> Iterable[str]:
    yield f"| {head[0]} | {head[1]} |\n|---|---|\n"
    for name, value in table.items():
        yield f"| {name} | {value} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
