"""Makes up a small value that a JSON schema allows, with words of the question where they fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from trt_responses.features.script.patterns import NoText, text_for
from trt_responses.schema.judge import Judge, read
from trt_responses.schema.matching import Expressions

Schema = Mapping[str, Any]

TRIES = 20
MOST_DEPTH = 12
FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ann@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|'([^']+)'(?!\w)")
_NAME = re.compile(r"(?<=\s)[A-Z][\w-]*(?:\s+[A-Z][\w-]*)*")
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?!\w)")


class NoValue(ValueError):
    """No value was found; the message is the reason, as the end of a sentence."""


def value_for(schema: Schema, text: str, seed: int = 0) -> Any:
    """A value that the schema allows. Raises `NoValue`."""
    judge = Judge(dict(schema), Expressions())
    departure = None
    for attempt in range(TRIES):
        value = _Maker(schema, text, Random(seed * TRIES + attempt), plain=attempt == 0).make()
        try:
            departure = judge.departure(value)
        except ValueError as fault:
            raise NoValue(str(fault)) from None
        if departure is None:
            return value
    raise NoValue(str(departure))


def departs(schema: Schema, text: str) -> str | None:
    """Why a JSON text does not follow the schema; None if it does."""
    try:
        departure = Judge(dict(schema), Expressions()).departure(read(text))
    except ValueError as fault:
        return str(fault)
    return None if departure is None else str(departure)


MOST = 10_000
"""Of what a made-up value may have at least: letters, entries, members."""


class _Maker:
    def __init__(self, schema: Schema, text: str, random: Random, *, plain: bool) -> None:
        self._root = schema
        self._random = random
        self._plain = plain  # the first choice everywhere, and nothing that may be left out
        quoted = [next(filter(None, found)) for found in _QUOTED.findall(text)]
        self._words: Iterator[str] = iter([*quoted, *_NAME.findall(_QUOTED.sub("", text))])
        self._numbers: Iterator[float] = iter(map(float, _NUMBER.findall(text)))

    def make(self) -> Any:
        return self._value(self._root, "", 0)

    def _value(self, schema: Any, name: str, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return {}
        if depth > MOST_DEPTH:
            raise NoValue("it is nested too deep")
        schema = self._resolved(schema, depth)
        for least in ("minLength", "minItems", "minProperties"):
            if schema.get(least, 0) > MOST:
                raise NoValue(f"{least} of {schema[least]} is too large")
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._one(schema["enum"])
        for several in ("anyOf", "oneOf"):
            if schema.get(several):
                rest = {key: each for key, each in schema.items() if key != several}
                return self._one_of([_joined(rest, each) for each in schema[several]], name, depth)
        kind = schema.get("type")
        if isinstance(kind, Sequence) and not isinstance(kind, str):
            kind = self._one([each for each in kind if each != "null"] or ["null"])
        kind = kind or ("object" if "properties" in schema else "string")
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return True if self._plain else self._random.random() < 0.5
            case "null":
                return None
        return self._string(schema, name)

    def _one_of(self, schemas: Sequence[Schema], name: str, depth: int) -> Any:
        """A value of one that has any: deep down, of one that refers to no other."""
        order = list(schemas) if self._plain else self._random.sample(schemas, len(schemas))
        order.sort(key=lambda each: depth > 2 and "$ref" in each)
        for each in order[:-1]:
            with suppress(NoValue):
                return self._value(each, name, depth + 1)
        return self._value(order[-1], name, depth + 1)

    def _resolved(self, schema: Schema, depth: int) -> Schema:
        """The schema with what it refers to, and all of what it must be at once."""
        if isinstance(reference := schema.get("$ref"), str):
            target: Any = self._root
            for step in reference.removeprefix("#").strip("/").split("/"):
                if step:
                    step = step.replace("~1", "/").replace("~0", "~")
                    target = target.get(step) if isinstance(target, Mapping) else None
            rest = {key: each for key, each in schema.items() if key != "$ref"}
            if depth > MOST_DEPTH or not isinstance(target, Mapping):
                raise NoValue(f"'{reference}' cannot be followed")
            return self._resolved(_joined(rest, target), depth + 1)
        if parts := schema.get("allOf"):
            whole: Schema = {key: each for key, each in schema.items() if key != "allOf"}
            for part in parts:
                whole = _joined(whole, self._resolved(part, depth + 1))
            return whole
        return schema

    def _one(self, values: Sequence[Any]) -> Any:
        return values[0] if self._plain else self._random.choice(values)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        wanted = [name for name in properties if name in required or depth <= 1]
        wanted += [name for name in required if name not in properties]
        made = {each: self._value(properties.get(each, {}), each, depth + 1) for each in wanted}
        for number in range(schema.get("minProperties", 0) - len(made)):
            extra = schema.get("additionalProperties", {})
            made[f"key{number + 1}"] = self._value(extra, "value", depth + 1)
        return made

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        fixed = schema.get("prefixItems", ())
        made = [self._value(each, name, depth + 1) for each in fixed]
        most = schema.get("maxItems", max(schema.get("minItems", 1), 1))
        del made[most:]
        while len(made) < min(most, max(schema.get("minItems", 1), len(fixed) or 1)):
            made.append(self._value(schema.get("items", {}), name, depth + 1))
        return made

    def _number(self, schema: Schema, *, whole: bool) -> float | int:
        found = next(self._numbers, None)
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        step = schema.get("multipleOf", 1 if whole else None)
        if found is None:
            found = low if low is not None else high if high is not None else 1
            found += self._random.randint(0, 10) * (not self._plain)
        found = max(found, low) if low is not None else found
        found = min(found, high) if high is not None else found
        if found == schema.get("exclusiveMinimum"):
            found += step or 1
        if found == schema.get("exclusiveMaximum"):
            found -= step or 1
        if step:
            found = -(-found // step) * step
        return int(found) if whole or found == int(found) else found

    def _string(self, schema: Schema, name: str) -> str:
        if "pattern" in schema:
            try:
                least = schema.get("minLength", 0)
                return text_for(schema["pattern"], self._random, least).ljust(least, "x")
            except NoText as why:
                raise NoValue(str(why)) from None
        form = schema.get("format")
        made = FORMATS.get(form, "") if form else next(self._words, "")
        made = made or name.replace("_", " ") or "text"
        if "maxLength" in schema:
            made = made[: schema["maxLength"]]
        return made.ljust(schema.get("minLength", 0), "x")


def _joined(one: Schema, other: Any) -> Schema:
    """Both schemas as one, as far as a small value needs it."""
    if not isinstance(other, Mapping):
        return one
    whole = {**one, **other}
    if "properties" in one and "properties" in other:
        whole["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        whole["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return whole
