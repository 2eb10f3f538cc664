"""Writes `docs/structured-output.md` from the tables that the server itself goes by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.harmony import jsontext, pattern, whitelist
from trt_responses.harmony.steer import plans
from trt_responses.response import accept

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAGE = Path(__file__).parent.parent / "docs" / "structured-output.md"

TEXT = f"""\
# Structured output

Written by `python -m scripts.structured_output_page`; a test compares it with the code.

An answer (`text.format`), the arguments of a forced call (`tool_choice`) and those of a strict tool
(`strict: true`) are guided: the engine can write nothing else, the text is checked byte by byte
while it is streamed, and a departure ends the response `failed`. `completed` always means that the
text follows the schema; a text that was cut is `incomplete`.

- A schema is checked before any token. A keyword that is not in the table below is an error that
  names it and its place, such as `text.format.schema.properties.a.not`.
- The model is shown the schema of the answer in its prompt, and writes compact JSON: the embedded
  engine's guide has no white space between marks at all, another engine's at most
  {jsontext.BLANKS} blanks in a row.
- Arguments of a tool that is not strict are guided when its call is forced; a schema that is not
  supported then becomes "any object". Under `auto` they are free.
- Members come in the order of `properties`. Names that a schema does not list (where
  `additionalProperties` allows them) may come twice, as JSON allows it.
- A whole number is written without a fraction or an exponent.
- Names and constants may not spell a control token such as `<|end|>`. Each of their characters may
  be written as itself or escaped.
- The schemas of one request are compiled within `TRT_RESPONSES_SCHEMA_S` seconds of a processor's
  time, or it is a 400 that names the one that was not; large ones in a thread: nobody else waits.
- A custom tool's grammar of `syntax: regex` is such a pattern (below), with or without its `^` and
  `$`, and holds as a strict tool's schema does. One that is no such pattern is a 400; one of
  `syntax: lark` is shown to the model and not enforced.
- A thought comes before a guided answer and leaves it a reserve: {plans.RESERVE} tokens, or half of
  `max_output_tokens` if that is less. `reasoning.max_tokens` bounds it further; effort `none`
  leaves it out, and `minimal` bounds it to {accept.MINIMAL_THOUGHT} tokens.

## What a run explains

With `TRT_RESPONSES_LOG_LEVEL=debug` a run ends with one line that says its plan and each engine
request it was made of: the ids that were forced, the tokens it might have, the ids that it kept
(forced ones too) and discarded, its guide, and how it ended. Here a call was required:

    resp_… steered to commentary to=functions.get | commentary to=functions.get_it:
    thought forced=3 budget=1484 kept=9 discarded=0 guide=none completed;
    header forced=3 budget=1988 kept=11 discarded=0 guide=regex completed;
    body forced=3 budget=1976 kept=11 discarded=0 guide=json_schema completed

## Keywords

"""

PATTERNS = f"""
## Patterns

A pattern goes from `^` to `$`: characters, escapes (`\\d`, `\\w`, `\\s`, `\\.` and the like), `.`,
classes (`[A-Z_]`), groups (`(…)`, `(?:…)`, `(?<name>…)`), alternatives in a group (`(a|b)`), each
with `?`, `*`, `+`, `{{n}}`, `{{n,}}`, `{{n,m}}` or nothing behind it. Nothing looks back or ahead,
and nothing is empty. With its repeats written out it stands for {pattern.MOST_STATES} characters
at most. `\\d` and `\\w` are of ASCII, `\\s` is a blank, a tab or an end of a line, and `.` is
anything but an end of a line. A string has one of `pattern`, `format`, and lengths.

## Bounds

"""

OTHERS = """
`title`, `description` and the like (`{}`) allow and forbid nothing.
"""


def page() -> str:
    others = "`, `".join(sorted(whitelist.ANNOTATIONS))
    return "".join(
        (
            TEXT,
            table(("keyword", "what is honoured"), ticked(whitelist.KEYWORDS)),
            OTHERS.format(others),
            PATTERNS,
            table(("what", "at most"), whitelist.BOUNDS),
        )
    )


def ticked(rows: Mapping[str, str]) -> dict[str, str]:
    return {f"`{name}`": note for name, note in rows.items()}


def table(head: tuple[str, str], rows: Mapping[str, object]) -> str:
    return "".join(lines(head, rows))


def lines(head: tuple[str, str], rows: Mapping[str, object]) -> Iterable[str]:
    yield f"| {head[0]} | {head[1]} |\n|---|---|\n"
    for name, value in rows.items():
        yield f"| {name} | {value} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
