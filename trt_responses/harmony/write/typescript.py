"""Renders JSON schemas as the TypeScript types in which Harmony shows tools to the model.

The result equals openai-harmony's, character for character; a test compares them. openai-harmony
itself would render and tokenise in one call and block the event loop. Any JSON is accepted: an
unknown schema becomes `any`. Returns pieces of text; no ids here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson

from trt_responses.errors import InvalidRequest

MAX_DEPTH = 60
"""The maximum nesting of a schema: each level takes several stack frames. openai-harmony's limit is
similar."""

_NAMED = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
}


def type_of(schema: object, indent: str = "", depth: int = 0) -> Iterator[str]:
    """The type of one schema. `indent` precedes each new line."""
    if depth > MAX_DEPTH:
        raise InvalidRequest(
            f"A tool's schema is nested too deep: more than {MAX_DEPTH} levels. Flatten it.",
            param="tools",
        )
    if not isinstance(schema, dict):
        yield "any"
    elif isinstance(variants := schema.get("oneOf"), list):
        for variant in variants:
            yield f"\n{indent} | "
            yield from _nullable(variant, f"{indent}   ", depth)
            yield from _trailing(_new_description(variant, None), _default(variant, '"'))
    elif isinstance(named := schema.get("type"), list):
        names = [_integer(name) for name in named if isinstance(name, str)]
        yield " | ".join(names) or "any"
    elif named == "object":
        yield from _object(schema, indent, depth)
    elif named == "array":
        yield from _array(schema, indent, depth)
    elif named == "string" and (words := _words(schema)):
        yield " | ".join(f'"{word}"' for word in words)
    else:
        yield _NAMED.get(named, "any") if isinstance(named, str) else "any"


def _integer(name: str) -> str:
    return "number" if name == "integer" else name


def _words(schema: Mapping[str, object]) -> list[str]:
    words = schema.get("enum")
    return [w for w in words if isinstance(w, str)] if isinstance(words, list) else []


def _array(schema: Mapping[str, object], indent: str, depth: int) -> Iterator[str]:
    if "items" in schema:
        yield from type_of(schema["items"], indent, depth + 1)
        yield "[]"
    else:
        yield "Array<any>"


def _object(schema: Mapping[str, object], indent: str, depth: int) -> Iterator[str]:
    if (description := _text(schema, "description")) is not None:
        yield f"{indent}// {description}\n"
    yield "{\n"
    listed = schema.get("required")
    required = {r for r in listed if isinstance(r, str)} if isinstance(listed, list) else set()
    properties = schema.get("properties")
    for key, value in properties.items() if isinstance(properties, dict) else ():
        yield from _property(f"{key}{'' if key in required else '?'}", value, indent, depth)
    yield f"{indent}}}"


def _property(key: str, schema: object, indent: str, depth: int) -> Iterator[str]:
    if (title := _text(schema, "title")) is not None:
        yield f"{indent}// {title}\n{indent}//\n"
    chosen = _member(schema, "oneOf")
    description = _text(schema, "description")
    if description is not None and not _has(schema, "oneOf"):
        yield f"{indent}// {description}\n"
    yield from _examples(schema, indent)
    if isinstance(chosen, list):
        yield from _choice(key, schema, chosen, indent, depth)
        return
    yield f"{indent}{key}: "
    yield from _nullable(schema, f"{indent}    ", depth)
    yield ","
    if not _has(schema, "oneOf"):
        yield from _trailing(None, _default(schema, ""))
    yield "\n"


def _examples(schema: object, indent: str) -> Iterator[str]:
    examples = _member(schema, "examples")
    if isinstance(examples, list) and examples:
        yield f"{indent}// Examples:\n"
        for example in examples:
            if isinstance(example, str):
                yield f'{indent}// - "{example}"\n'


def _choice(
    key: str, schema: object, variants: list[object], indent: str, depth: int
) -> Iterator[str]:
    """A property that is one of several types, one line each."""
    description = _text(schema, "description")
    repeated = bool(variants) and description == _text(variants[0], "description")
    above = description is not None and not repeated
    if above:
        yield f"{indent}// {description}\n"
    if (default := _default(schema, "")) is not None:
        yield from (f"{indent}// ", *default, "\n")
    yield f"{indent}{key}:\n"
    for place, variant in enumerate(variants):
        yield f"{indent} | "
        yield from _nullable(variant, f"{indent}   ", depth)
        trailing = None if place == 0 and above else _new_description(variant, description)
        yield from _trailing(trailing, _default(variant, ""))
        yield "\n"
    yield f"{indent},\n"


def _nullable(schema: object, indent: str, depth: int) -> Iterator[str]:
    pieces = type_of(schema, indent, depth + 1)
    if _member(schema, "nullable") is not True:
        yield from pieces
        return
    text = "".join(pieces)
    yield text if "null" in text else f"{text} | null"


def _new_description(schema: object, already: str | None) -> str | None:
    """A variant's description, or None if it was written before."""
    description = _text(schema, "description")
    return None if description == already else description


def _trailing(description: str | None, default: Iterator[str] | None) -> Iterator[str]:
    if description is not None:
        yield f" // {description}"
    if default is not None:
        yield " // " if description is None else " "
        yield from default


def _default(schema: object, enum_quote: str) -> Iterator[str] | None:
    """A comment with the default value, or None. Enum words are quoted in some places only."""
    if not _has(schema, "default"):
        return None
    default = _member(schema, "default")
    if not isinstance(default, str):
        return _after("default: ", json_of(default))
    if not _member(schema, "enum") or not isinstance(_member(schema, "enum"), list):
        return iter((f'default: "{default}"',))
    return _after("default: ", json_of(default) if enum_quote else iter((default,)))


def _after(label: str, pieces: Iterator[str]) -> Iterator[str]:
    yield label
    yield from pieces


def _has(schema: object, key: str) -> bool:
    return isinstance(schema, dict) and key in schema


def _member(schema: object, key: str) -> object:
    return schema.get(key) if isinstance(schema, dict) else None


def _text(schema: object, key: str) -> str | None:
    value = _member(schema, key)
    return value if isinstance(value, str) else None


def json_of(value: object, depth: int = 0) -> Iterator[str]:
    """Compact JSON with numbers as openai-harmony writes them (`1e16`, never `1e+16`)."""
    if depth > MAX_DEPTH:
        raise InvalidRequest(
            f"A schema's JSON is nested too deep: more than {MAX_DEPTH} levels. Flatten it."
        )
    if isinstance(value, dict):
        yield "{"
        for place, (key, member) in enumerate(value.items()):
            yield f"{',' if place else ''}{_quoted(key)}:"
            yield from json_of(member, depth + 1)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for place, member in enumerate(value):
            if place:
                yield ","
            yield from json_of(member, depth + 1)
        yield "]"
    elif isinstance(value, str):
        yield _quoted(value)
    else:
        yield _literal(value)


def _quoted(text: str) -> str:
    try:
        return orjson.dumps(text).decode()
    except TypeError:  # lone surrogates, which the tokeniser replaces by the same character
        return orjson.dumps(
            text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ).decode()


def _literal(value: object) -> str:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        value = float(value) if abs(value) < 10**300 else None
    return orjson.dumps(value).decode().replace("e+", "e")
