"""For each keyword of JSON Schema: schemas that use it, what follows them and what departs."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


Case = tuple[Json, list[Any], list[Any]]
"""A schema, values that follow it, and values that do not."""


INT, TEXT, NULL, FLAG = ({"type": t} for t in ("integer", "string", "null", "boolean"))


def obj(required: str = "", /, rest: Any = False, **members: Json) -> Json:
    return {
        "type": "object",
        "properties": members,
        "required": required.split(),
        "additionalProperties": rest,
    }


def arr(**more: Any) -> Json:
    return {"type": "array", **more}


def num(kind: str = "number", **more: Any) -> Json:
    return {"type": kind, **more}


def text(**more: Any) -> Json:
    return {"type": "string", **more}


NODE = obj("next", next={"anyOf": [{"$ref": "#/$defs/node"}, NULL]})


TREE = obj("kids", kids=arr(items={"$ref": "#"}))


CASES: dict[str, list[Case]] = {
    "type": [
        (INT, [0, -12, 10**20], [1.5, "1", True, None]),
        (num(), [0, 1.5, -2e-7], ["1", None, []]),
        (FLAG, [True, False], [0, None, "true"]),
        ({"type": ["string", "null"]}, ["", "null", None], [0, [], {}]),
        ({"type": ["array", "object"]}, [[], {}, [1], {"a": 1}], ["", 0, None]),
        ({"type": ["integer", "number"]}, [1, 1.5], ["1"]),
    ],
    "properties": [
        (obj(a=INT), [{}, {"a": 1}], [{"a": "1"}, {"b": 1}, []]),
        (obj(a=INT, b=TEXT), [{"a": 1, "b": "x"}], [{"b": 1}]),
        (obj(a=obj(b=obj(c=NULL))), [{"a": {"b": {"c": None}}}], [{"a": {"b": {"c": 0}}}]),
        (obj(**{"é\"\\": FLAG}), [{"é\"\\": True}], [{"é": True}]),
        (obj(rest=True, a=NULL), [{"a": None, "b": [1]}], [{"a": 1}]),
        (obj(), [{}], [{"a": 1}]),
    ],
    "required": [
        (obj("a", a=INT), [{"a": 1}], [{}]),
        (obj("a b", a=INT, b=INT), [{"a": 2, "b": 1}], [{"a": 1}, {"b": 1}]),
        (obj("b", a=INT, b=INT), [{"b": 1}], [{"a": 1}]),
        (obj("a", rest=True, a=INT), [{"a": 1, "x": 1}], [{"x": 1}]),
        (arr(items=obj("a", a=NULL)), [[], [{"a": None}]], [[{}]]),
    ],
    "additionalProperties": [
        ({"type": "object"}, [{}, {"a": [1, {"b": None}]}], [[], None]),
        ({"type": "object", "additionalProperties": True}, [{"a": "x"}], [0]),
        ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
        ({"type": "object", "additionalProperties": INT}, [{"a": 1, "b": 2}], [{"a": "1"}]),
        (arr(items=obj(rest=NULL)), [[{"a": None}]], [[{"a": 1}]]),
        (obj("a", rest=FLAG, a=INT), [{"a": 1, "b": True}], [{"a": True}, {"a": 1, "b": 1}]),
    ],
    "items": [
        (arr(), [[], [1, "a", [None]]], [{}, 0]),
        (arr(items=INT), [[], [1, 2]], [["1"], [1, None]]),
        (arr(items=arr(items=FLAG)), [[[], [True]]], [[True], [[1]]]),
        (arr(items=obj("a", a=INT)), [[{"a": 1}]], [[{}]]),
        (arr(items=True, maxItems=1), [["x"], []], [[1, 2]]),
        (arr(prefixItems=[INT], items=False), [[1], []], [[1, 2], ["x"]]),
    ],
    "prefixItems": [
        (arr(prefixItems=[INT, FLAG], items=False, minItems=2), [[1, True]], [[1], [True, 1]]),
        (arr(prefixItems=[INT], items=FLAG), [[1], [1, True]], [[1, 1]]),
        (arr(prefixItems=[NULL]), [[None, 5], []], [[5]]),
        (arr(prefixItems=[TEXT, TEXT], minItems=2, maxItems=2), [["a", "b"]], [["a"]]),
        (arr(prefixItems=[arr(prefixItems=[INT])]), [[[1]]], [[["x"]]]),
    ],
    "minItems": [
        (arr(minItems=1), [[0], [1, 2]], [[]]),
        (arr(minItems=0), [[]], [0]),
        (arr(items=INT, minItems=2), [[1, 2]], [[1]]),
        (arr(items=INT, minItems=2, maxItems=2), [[1, 2]], [[1], [1, 2, 3]]),
        (obj("a", a=arr(minItems=1)), [{"a": [0]}], [{"a": []}]),
    ],
    "maxItems": [
        (arr(maxItems=0), [[]], [[1]]),
        (arr(maxItems=2), [[], [1, 2]], [[1, 2, 3]]),
        (arr(items=FLAG, maxItems=1), [[True]], [[True, True]]),
        (arr(items=arr(maxItems=1)), [[[1], [2]]], [[[1, 2]]]),
        (arr(maxItems=1000), [[0] * 1000], [[0] * 1001]),
    ],
    "minLength": [
        (text(minLength=1), ["a", "\n"], [""]),
        (text(minLength=2), ["éé", "\U0001f642\U0001f642"], ["\U0001f642"]),
        (text(minLength=0), [""], [0]),
        (text(minLength=3, maxLength=3), ["abc"], ["ab", "abcd"]),
        (arr(items=text(minLength=1)), [["a"]], [[""]]),
    ],
    "maxLength": [
        (text(maxLength=0), [""], ["a"]),
        (text(maxLength=2), ["", "é\n", "\U0001f642\U0001f642"], ["abc"]),
        (text(maxLength=5), ["\\\\\\\\\\"], ["\\\\\\\\\\\\"]),
        ({"type": ["string", "null"], "maxLength": 1}, ["a", None], ["ab"]),
        (text(maxLength=1000), ["x" * 1000], ["x" * 1001]),
    ],
    "pattern": [
        (text(pattern="^[A-Z]{3}-[0-9]+$"), ["ABC-1"], ["AB-1", "ABC-", "xABC-1", "ABC-1\n"]),
        (text(pattern=r"^(\+\d{1,2} )?(cat|dog)s?$"), ["cat", "+41 dogs"], ["+4cat", "dogcat", ""]),
        (text(pattern="^a?b*c+$"), ["c", "abbcc"], ["ab", "aac", ""]),
        (text(pattern=r"^\d{4}\.\w$"), ["2026.x"], ["2026x", "202.xx"]),
        (text(pattern="^#[0-9a-fA-F]{6}$"), ["#00ffAA"], ["#00ffA", "00ffAA1"]),
        (text(pattern="^[^a-z]{2,3}$"), ["AB", "1é2"], ["ab", "A"]),
    ],
    "format": [
        (text(format="date"), ["2024-02-29"], ["2023-02-29", "2024-2-9", "today"]),
        (text(format="date-time"), ["2024-02-29T23:59:59Z", "2024-01-01t00:00:00.5+02:00"],
         ["now", "2024-02-30T00:00:00Z", "2024-01-01T25:00:00Z"]),
        (text(format="uuid"), ["12345678-1234-1234-1234-123456789ABC"], ["1234", ""]),
        (obj("d", d=text(format="date")), [{"d": "1999-12-31"}], [{"d": "x"}]),
        ({"type": ["string", "null"], "format": "uuid"}, [None], ["x"]),
    ],
    "minimum": [
        (num("integer", minimum=3), [3, 400], [2, -1]),
        (num(minimum=-0.5), [-0.5, 0], [-0.6]),
        (num("integer", minimum=1, maximum=1), [1], [0, 2]),
        (num("integer", minimum=-3), [-3], [-4]),
        ({"type": ["integer", "null"], "minimum": 0}, [0, None], [-1]),
    ],
    "maximum": [
        (num("integer", maximum=3), [3, -400], [4]),
        (num(maximum=0.25), [0.25], [0.26, 1e9]),
        (num("integer", minimum=10, maximum=99), [10, 99], [9, 100]),
        (num(maximum=-1), [-1, -1.5], [0]),
        (arr(items=num("integer", maximum=0)), [[0]], [[1]]),
    ],
    "exclusiveMinimum": [
        (num("integer", exclusiveMinimum=3), [4], [3]),
        (num(exclusiveMinimum=0), [0.001], [0, -1]),
        (num(exclusiveMinimum=0, maximum=1), [1, 0.5], [0]),
        (num("integer", exclusiveMinimum=-1), [0], [-1]),
        (num("integer", exclusiveMinimum=1, exclusiveMaximum=3), [2], [1, 3]),
    ],
    "exclusiveMaximum": [
        (num("integer", exclusiveMaximum=3), [2], [3]),
        (num(exclusiveMaximum=1), [0.999], [1]),
        (num("integer", minimum=2, exclusiveMaximum=3), [2], [3, 1]),
        (num(exclusiveMaximum=-0.5), [-0.6], [-0.5, 0]),
        (num("integer", exclusiveMaximum=0), [-1], [0]),
    ],
    "enum": [
        ({"enum": ["a", "b"]}, ["a", "b"], ["c", "", None]),
        ({"enum": [1, 12, 123]}, [1, 12, 123], [2, 1234]),
        ({"enum": [None, True, "x", 1.5]}, [None, True, "x", 1.5], [False, 1]),
        ({"enum": ["é", "\U0001f642", 'q"']}, ["é", "\U0001f642", 'q"'], ["e"]),
        ({"type": "string", "enum": ["a", 1, None]}, ["a"], [1, None]),
        ({"enum": [{"a": [1, "x"]}, []]}, [{"a": [1, "x"]}, []], [{"a": [1]}, {}]),
    ],
    "const": [
        ({"const": "yes"}, ["yes"], ["no", "yess"]),
        ({"const": 0}, [0], [1, False]),
        ({"const": None}, [None], [0]),
        ({"const": {"b": 1, "a": [True]}}, [{"b": 1, "a": [True]}], [{"b": 1}]),
        (obj("kind", kind={"const": "a", "type": "string"}), [{"kind": "a"}], [{"kind": "b"}]),
    ],
    "anyOf": [
        ({"anyOf": [INT, NULL]}, [1, None], ["1", 1.5]),
        ({"anyOf": [obj("a", a=INT), obj("b", b=INT)]}, [{"a": 1}, {"b": 1}], [{}, {"c": 1}]),
        (
            {"anyOf": [obj("k v", k={"const": "i"}, v=INT), obj("k v", k={"const": "t"}, v=TEXT)]},
            [{"k": "i", "v": 1}, {"k": "t", "v": "x"}],
            [{"k": "i", "v": "x"}, {"v": 1, "k": "t"}],
        ),
        (arr(items={"anyOf": [INT, arr(items=INT)]}), [[1, [2]]], [["x"], [[[1]]]]),
        ({"anyOf": [{"anyOf": [INT]}]}, [1], ["1"]),
    ],
    "$ref": [
        (TREE, [{"kids": []}, {"kids": [{"kids": []}]}], [{}, {"kids": [{}]}]),
        ({"$ref": "#/$defs/i", "$defs": {"i": INT}}, [1], ["1"]),
        (obj(a={"$ref": "#/$defs/n.1"}) | {"$defs": {"n.1": NULL}}, [{"a": None}], [{"a": 1}]),
        (obj("n", n={"$ref": "#/$defs/node"}) | {"$defs": {"node": NODE}},
         [{"n": {"next": {"next": None}}}], [{"n": None}, {"n": {"next": {}}}]),
        ({"$ref": "#/definitions/x", "definitions": {"x": FLAG}}, [True], [1]),
    ],
    "$defs": [
        (obj() | {"$defs": {"unused": INT}}, [{}], [{"a": 1}]),
        (arr(items={"$ref": "#/$defs/a"}) | {"$defs": {"a": INT}}, [[1]], [["x"]]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": INT}}, [1], ["x"]),
        (
            {"$ref": "#/$defs/even",
             "$defs": {"even": arr(items={"$ref": "#/$defs/odd"}, maxItems=1),
                       "odd": arr(items={"$ref": "#/$defs/even"}, minItems=1, maxItems=1)}},
            [[], [[[]]]],
            [[[]]],
        ),
        ({"anyOf": [{"$ref": "#/$defs/a"}, NULL], "$defs": {"a": TEXT}}, ["x", None], [1]),
    ],
    "definitions": [
        (arr(items={"$ref": "#/definitions/a"}) | {"definitions": {"a": INT}}, [[1]], [["x"]]),
        (obj() | {"definitions": {}}, [{}], [{"a": 1}]),
        ({"$ref": "#/definitions/a", "definitions": {"a": TEXT}}, ["x"], [1]),
        (INT | {"definitions": {"a": TEXT}, "$defs": {"a": INT}}, [1], ["x"]),
        (obj(a={"$ref": "#/definitions/A_1"}) | {"definitions": {"A_1": FLAG}}, [{}], [{"a": 1}]),
    ],
}  # fmt: skip
