"""Schemas that are taken, what a text of theirs may be, and what is said of the others."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import jsonschema
import pytest

from tests.support import random_schemas
from tests.support.schemas import PLACE, compact, form, verdict, walk
from trt_responses.schema.compile import Allowance, Forms
from trt_responses.schema.refusals import InvalidSchema, SlowSchema

OPEN: dict[str, Any] = {"type": "object"}


def text(**keywords: Any) -> dict[str, Any]:
    return {"type": "string", **keywords}


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


# --- traps that cost an answer, or let a wrong one pass ----------------------------------------


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0, -0.0, 0.5, 123456.789, 1e14, 1e-7])
def test_fractions_among_constants_are_written_and_taken(value: float) -> None:
    for schema in ({"enum": [value, "x"]}, {"const": value}, {"type": "number", "enum": [value]}):
        found = form(schema)
        written = walk(found, Random(1), 40)
        while written == '"x"':
            written = walk(found, Random(hash(written) + time.perf_counter_ns()), 40)
        assert written is not None
        assert json.loads(written) == value
        assert verdict(found, written) == "followed"


@pytest.mark.parametrize("space", ["\u00a0", "\u000b", "\u000c", "\u2028", "\u3000", " "])
def test_no_white_space_passes_where_it_is_forbidden(space: str) -> None:
    found = form(text(pattern=r"^[^\s]+$"))
    for spelled in (compact(f"a{space}b"), json.dumps(f"a{space}b")):
        assert verdict(found, spelled) == "departed"
    assert verdict(found, '"ab"') == "followed"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("date", "2000-02-29", "1900-02-29"),
        ("date", "1999-11-30", "1999-11-31"),
        ("date-time", "2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:60Z"),
        ("date-time", "2024-12-31T00:00:00+01:00", "2024-12-31T00:00:00.1234567890Z"),
        ("time", "10:00:00Z", "24:00:00Z"),
        ("duration", "P1Y2M3DT4H5M6S", "P"),
        ("duration", "PT1H", "P1H"),
        ("email", "a.b+c@x.example", ".a@x.example"),
        ("email", "a@x.example", "a..b@x.example"),
        ("hostname", "a-b.example", "-a.example"),
        ("ipv4", "192.168.0.1", "192.168.0.256"),
        ("ipv6", "::1", "1::2::3"),
        ("ipv6", "2001:db8::8:800:200c:417a", "2001:db8"),
        ("uuid", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-42661417400"),
        ("uri", "https://x.example/a?b=c#d", "no uri"),
    ],
)
def test_a_format_is_what_it_says(name: str, good: str, bad: str) -> None:
    found = form(text(format=name))
    assert verdict(found, compact(good)) == "followed"
    assert verdict(found, compact(bad)) in ("departed", "cut")


@pytest.mark.parametrize("name", ["date", "date-time", "time", "email", "ipv6", "uuid", "uri"])
def test_walks_through_a_format_are_judged_to_have_it(name: str) -> None:
    found = form(text(format=name))
    texts = [walk(found, Random(seed)) for seed in range(25)]
    assert {verdict(found, made) for made in texts if made} == {"followed"}
    assert sum(made is not None for made in texts) > 10


@pytest.mark.parametrize("pattern", [r'^[^"]*$', r"^[^\\]+$", r'^[^"\\]*$', "^[^a]{2}$"])
def test_quotes_and_backslashes_do_not_slip_through_a_negated_class(pattern: str) -> None:
    found = form(text(pattern=pattern))
    for made in filter(None, (walk(found, Random(seed), 60) for seed in range(25))):
        assert verdict(found, made) == "followed"
    assert verdict(found, '"bc"') == "followed"
    if '"' in pattern:
        assert verdict(found, r'"b\"c"') == verdict(found, r'"b\u0022c"') == "departed"


def test_too_many_members_that_may_be_left_out() -> None:
    schema = {"type": "object", "properties": {f"p{n}": text() for n in range(600)}}
    with pytest.raises(InvalidSchema, match="has too many optional members: 600, limit 400"):
        form(schema)
    found = form({**schema, "additionalProperties": False}, strict=False)
    assert [left.place for left in found.left] == [f"{PLACE}.properties"]
    assert verdict(found, '{"p0":"a","p599":"b"}') == "followed"
    assert verdict(found, '{"p0":"a","p599":1}').startswith("judged at '$.p599'")
    assert verdict(form(closed(**{f"p{n}": text() for n in range(600)})), "{") == "cut"


@pytest.mark.parametrize("number", ["1e9828890", "-1e400", "1" * 400, "1e99999999999999999999"])
def test_a_number_that_no_reader_takes_is_no_answer(number: str) -> None:
    assert "is too large" in verdict(form({"type": "number"}), number)


def test_a_listed_name_does_not_come_again_in_escapes() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": text(),
    }
    assert verdict(form(schema), r'{"a":1,"\u0061":"x"}') == "departed"
    assert verdict(form(schema), r'{"\u0061":1,"\u0062":"x"}') == "followed"


def test_unions_of_recursive_models_are_followed_and_judged_at_any_depth() -> None:
    def node(kind: str) -> dict[str, Any]:
        both = [{"$ref": "#/$defs/folder"}, {"$ref": "#/$defs/shared"}]
        return closed(items={"type": "array", "items": {"anyOf": both}}, kind={"const": kind})

    schema = {
        "$defs": {"folder": node("folder"), "shared": node("shared")},
        "anyOf": [{"$ref": "#/$defs/folder"}, {"$ref": "#/$defs/shared"}],
    }
    value: Any = {"items": [], "kind": "shared"}
    for n in range(25):
        value = {"items": [value], "kind": ("folder", "shared")[n % 2]}
    assert verdict(form(schema), compact(value)) == "followed"
    wrong = compact(value).replace('"items":[],"kind":"shared"', '"items":[],"kind":"none"')
    assert verdict(form(schema), wrong) == "departed"


@pytest.mark.parametrize("name", ["https://x.example/s.json", "https://x.example/s.json#"])
def test_a_reference_by_the_schema_s_own_id_is_one_to_its_parts(name: str) -> None:
    document = name.removesuffix("#")
    end = {"anyOf": [{"$ref": f"{document}#"}, {"type": "null"}]}
    parts = {"$id": name, "$defs": {"b": text()}}
    found = form(closed(a={"$ref": f"{document}#/$defs/b"}, c=end) | parts)
    assert verdict(found, '{"a":"b","c":{"a":"d","c":null}}') == "followed"
    assert verdict(found, '{"a":1,"c":null}') == "departed"


# --- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [-(2**63) + 1, -(2**63), 2**63, 2**64 - 1, 10**30, 1e300, 5e-324, -1e19]
)
def test_numbers_that_crash_a_guide_never_reach_one(number: float) -> None:
    shown = str(number)
    schemas: list[dict[str, Any]] = [
        {"const": number},
        {"enum": [number, 1]},
        closed(a={"const": [{"b": number}]}),
        {"type": "number", "minimum": number},
        {"type": "integer", "maximum": number},
        {"type": "number", "exclusiveMinimum": number, "exclusiveMaximum": number * 4},
        {"type": "number", "multipleOf": abs(number)},
    ]
    for schema in schemas:
        try:
            made = form(schema, strict=False)
        except InvalidSchema:
            continue
        assert shown not in made.source
        assert all(abs(n) <= 2**62 for n in numbers(json.loads(made.source)))
    with pytest.raises(
        InvalidSchema,
        match=r"only (values|numbers) that no guide can write|64-bit",
    ):
        form({"const": number})


NO_DOUBLES = [2**53 + 1, -(2**53) - 1, 9_999_999_999_999_999, 123_456_789_012_345_678, 2**61 + 1]


@pytest.mark.parametrize("number", NO_DOUBLES)
def test_whole_numbers_that_no_double_holds_are_refused_by_name_or_left(number: int) -> None:
    for keyword, schema in (
        ("const", {"const": number}),
        ("enum", {"enum": [number]}),
        ("const", closed(a={"const": [{"b": number}]})),
        ("minimum", {"type": "integer", "minimum": number, "maximum": number}),
    ):
        with pytest.raises(
            InvalidSchema, match=f"{keyword}' .*only (values|numbers) that no guide can write"
        ):
            form(schema)
        (left,) = form(schema, strict=False).left
        assert left.place.endswith(keyword)
    assert walk(form({"enum": [number, 7]}), Random(1)) == "7"


@pytest.mark.parametrize("number", NO_DOUBLES)
def test_bounds_that_no_double_holds_are_drawn_inwards(number: int) -> None:
    """A guide reads a bound as a double, and would let through what is beside it."""
    far = 4_096
    for low, high in ((number, number + far), (number - far, number)):
        made = form({"type": "integer", "minimum": low, "maximum": high})
        for seed in range(20):
            written = walk(made, Random(seed), 60)
            assert written is not None
            assert low <= json.loads(written) <= high
            assert verdict(made, written) == "followed"


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**53 + 2, 10**17, 2**60 + 256, 2**62 - 512])
def test_whole_numbers_that_a_double_holds_are_written(number: int) -> None:
    made = form({"const": number})
    assert walk(made, Random(1)) == str(number)
    assert verdict(made, str(number)) == "followed"


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [number for part in inner for number in numbers(part)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_every_number_that_a_guide_writes_is_one_that_the_schema_allows() -> None:
    """300 random schemas, two walks each: not one that the guide lets through is refused, but for
    exponents that no reader takes."""
    random = Random(16)
    taken = wrong = 0
    for _ in range(300):
        schema = random_schemas.numbers(random)
        try:
            found = form(schema)
        except InvalidSchema:
            continue
        taken += 1
        theirs = jsonschema.Draft202012Validator(schema)
        for _ in range(2):
            made = walk(found, random, 25)
            if made is not None:
                if (said := verdict(found, made)) != "followed":
                    wrong += "is too large" not in said
                elif "multipleOf" not in schema:  # which jsonschema computes in floats
                    assert theirs.is_valid(json.loads(made))
    assert taken > 150
    assert wrong == 0


# --- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "param", "says"),
    [
        ({"type": "banana"}, "type", "must be one or more of object, array"),
        (closed(q={"not": OPEN}), "properties.q.not", "forbids, which no guide can: leave it out"),
        ({"if": {}, "then": OPEN}, "if", "depend on another"),
        (closed(a=text(pattern="^(?=x)y")), "properties.a.pattern", "looks ahead"),
        (closed(a=text(pattern="(?<=x)y")), "properties.a.pattern", r"'\(\?<=x\)y' looks behind"),
        ({"type": "array", "contains": {}}, "contains", "an element anywhere"),
        ({"$ref": "#/$defs/none"}, "$ref", "'#/\\$defs/none', which this schema does not define"),
        (
            {"$id": "x:a", "$ref": "x:b#/$defs/b"},
            "$ref",
            "'x:b#/\\$defs/b', which this schema does",
        ),
        (
            {"$id": "x:a", "$ref": "x:a#/$defs/b"},
            "$ref",
            "'x:a#/\\$defs/b', which this schema does",
        ),
        ({"$ref": "#"}, None, "allows no finite value"),
        (closed(a={"$ref": "#"}), None, "allows no finite value"),
        ({"anyOf": []}, "anyOf", "must be a list of schemas"),
        ({"enum": []}, "enum", "a list of 1 to"),
        ({"type": "string", "enum": [1]}, "enum", "has no value that the rest"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "minimum", "leaves no number"),
        (text(minLength=5, maxLength=4), "minLength", "is greater than 'maxLength'"),
        (
            {"type": "integer", "exclusiveMaximum": -3.25, "multipleOf": 2},
            "multipleOf",
            "only an upper bound, below zero",
        ),
        (text(maxLength="x"), "maxLength", "must be a whole number"),
        ({"const": "<|end|>"}, "const", "spells a control token"),
        (closed(**{"<|end|>": OPEN}), "properties.<|end|>", "spells a control token"),
        (closed(a=closed(b={"minimum": "x"})), "properties.a.properties.b.minimum", "a number"),
        ({"properties": []}, "properties", "an object of schemas"),
        ({"properties": {"a": 1}}, "properties.a", "must be a schema"),
        ({"required": [1]}, "required", "a list of names"),
        (text(pattern="^(a|b{999}){999}$"), "pattern", "expand to more"),
        (
            closed(a=closed(b={"allOf": [closed(x=OPEN), {"patternProperties": {"a+": False}}]})),
            None,
            "",
        ),
    ],
)
def test_a_refusal_names_the_place_and_what_to_do(
    schema: Any, param: str | None, says: str
) -> None:
    if not says:
        form(schema)
        return
    with pytest.raises(InvalidSchema, match=says) as refusal:
        form(schema)
    assert refusal.value.param == (f"{PLACE}.{param}" if param else PLACE)
    assert refusal.value.code == "invalid_json_schema"


def test_without_strict_a_part_that_cannot_be_held_leaves_the_others_held() -> None:
    schema = closed(a={"type": "integer"}, b={"not": text()}, c=text(pattern="^(?=x).{2}$"))
    found = form(schema, strict=False)
    places = [left.place for left in found.left]
    assert places == [f"{PLACE}.properties.b.not", f"{PLACE}.properties.c.pattern"]
    assert verdict(found, '{"a":1,"b":"any","c":"yz"}') == "followed"
    assert verdict(found, '{"a":"1"') == "departed"
    assert verdict(found, '{"zzz":[1,2]}') == "departed"
    assert verdict(found, '{"a":1,"b":"any","c":"yzz') == "departed"


def test_too_much_for_a_guide_is_followed_as_deep_as_can_be() -> None:
    node = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n", "minItems": 1}}}
    hard = {"$defs": {"n": node}, "type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}}
    with pytest.raises(InvalidSchema, match=r"cannot be guided: .*circular"):
        form(hard)
    found = form(hard, strict=False)
    assert [left.place for left in found.left] == [PLACE]
    assert verdict(found, '{"x":1}') == "followed"
    assert verdict(found, "[1]") == "departed"


def test_the_part_at_fault_is_named() -> None:
    part = {"patternProperties": {"^a": text(), "a$": text()}, "type": "object"}
    schema = closed(list={"type": "array", "items": part}, other=text())
    with pytest.raises(InvalidSchema) as refusal:
        form(schema)
    assert refusal.value.param == f"{PLACE}.properties.list.items"


# --- what is judged at the end -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "written", "says"),
    [
        ({"type": "array", "uniqueItems": True}, "[1,1.0]", r"'\$': it contains an element twice"),
        ({"oneOf": [text(), text(maxLength=2)]}, '"a"', r"follows several alternatives of 'oneOf'"),
        (
            closed(a={"type": "array", "uniqueItems": True}),
            '{"a":[[],[]]}',
            r"'\$\.a': it contains",
        ),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1},
            "{}",
            "fewer than 1 members",
        ),
    ],
)
def test_a_judged_departure_has_its_place(schema: Any, written: str, says: str) -> None:
    import re

    assert re.search(says, verdict(form(schema), written))


# --- bounds -----------------------------------------------------------------------------------


def test_schemas_of_one_request_have_their_time() -> None:
    ticks = iter(range(1_000_000))
    with pytest.raises(SlowSchema, match=r"takes too long to compile: limit 5 s"):
        Forms().form(
            closed(**{f"p{n}": text() for n in range(20)}), PLACE, Allowance(5, lambda: next(ticks))
        )


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"enum": ["x" * 200_000]}, "more than 125,000 characters"),
        (closed(a={"const": "x" * 70_000}, b={"enum": ["y" * 70_000]}), "more than 125,000"),
        ({"const": [[n] for n in range(15_000)]}, "more than 125,000 characters"),
    ],
    ids=["long", "together", "parted"],
)
def test_values_are_bounded_together(schema: Any, says: str) -> None:
    """One of a million characters took 350 MB."""
    for strict in (True, False):
        with pytest.raises(InvalidSchema, match=says):
            form(schema, strict=strict)


def test_a_schema_is_compiled_once() -> None:
    forms = Forms(cached=1)
    first = forms.form(closed(a=text()), PLACE)
    assert forms.form(closed(a=text()), PLACE) is first
    assert forms.form(closed(a=text()), PLACE, strict=False) is not first
    assert forms.form(closed(a=text()), PLACE) is not first
    grammar = forms.lark('start: "a"', PLACE)
    assert forms.lark('start: "a"', PLACE) is grammar


def test_what_is_left_out_of_a_known_schema_is_named_where_it_stands_now() -> None:
    """The header would name a field of another request, even of another API."""
    forms, looks_behind = Forms(), text(pattern="(?<=x)y")
    schema = {"$defs": {"d": looks_behind}, **closed(a=looks_behind, b={"$ref": "#/$defs/d"})}
    for place in ("tools[0].parameters", "tools[3].function.parameters", "tools[0].parameters"):
        found = forms.form(schema, place, strict=False)
        assert sorted(left.place for left in found.left) == [
            f"{place}.$defs.d.pattern",
            f"{place}.properties.a.pattern",
        ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "array", "maxItems": 10**9}, "maxItems": 10**9},
        text(pattern="^((a|b){1,50}c?){1,50}$"),
        text(pattern="(a|b)*a(a|b){12}", minLength=3, maxLength=10**9),
        {"enum": [f"value {n}" for n in range(2_000)]},
        {"type": "integer", "multipleOf": 12_345_678},
        {
            "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
            | {"d30": text()},
            "$ref": "#/$defs/d0",
        },
        {"allOf": [text(pattern=f"^.*[a-z]{{{n},{n + 40}}}.*x.{{{n}}}$") for n in range(1, 21)]},
        {"anyOf": [closed(k={"const": n}, v=text()) for n in range(500)]},
    ],
)
def test_hostile_schemas_are_taken_or_refused_in_a_second(schema: Any) -> None:
    """Of a processor's time, with a factor of five for a slow one."""
    begun = time.thread_time()
    found = form(schema, strict=False)
    assert time.thread_time() - begun < 5
    follower = found.follow()
    begun = time.thread_time()
    for piece in (b'["', b"abab", b'"', b"]"):
        follower.feed(piece)
    assert time.thread_time() - begun < 1
    if found.judge:
        assert found.judge.departure([["x"] * 50] * 50) is not None or found.judge


def test_forms_may_be_compiled_and_followed_by_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    forms = Forms()

    def one(number: int) -> str:
        found = forms.form(closed(a={"const": number % 3}), PLACE)
        return verdict(found, compact({"a": number % 3}))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(64))) == {"followed"}


def test_a_thousand_names_are_followed_to_the_last() -> None:
    names = {f"property_{n}": "some value" for n in range(1_000)}
    found = form(closed(**dict.fromkeys(names, text())))
    for _ in range(2):
        assert verdict(found, compact(names)) == "followed"
    assert verdict(found, compact(names | {"property_999": 1})) == "departed"


# --- grammars of a client ----------------------------------------------------------------------

APPLY_PATCH = """
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
%import common.LF
"""


def test_a_lark_grammar_is_followed_as_raw_text() -> None:
    found = Forms().lark(APPLY_PATCH, PLACE)
    patch = '*** Begin Patch\n*** Add File: a.py\n+x = "\\\\"\n*** End Patch'
    assert verdict(found, patch) == "followed"
    assert verdict(found, patch.replace("+x", "-x")) == "departed"
    assert verdict(found, patch[:-4]) == "cut"


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ('start: %json {"type": "object"}', "contains '%json'"),
        ("start: <[123]>", "contains '<', which would name a token"),
        ("start: @other", "contains '@'"),
        ("start: nothing", "is not a supported grammar"),
        ("start: " + "x" * 70_000, r"is too long: 70007 characters, limit 65536"),
        ("start: " + "|".join(f'"{n}"' for n in range(4_000)), "has too many beginnings"),
    ],
    ids=["json", "token", "other grammar", "no rule", "long", "beginnings"],
)
def test_a_grammar_that_reaches_beyond_text_is_refused(grammar: str, says: str) -> None:
    with pytest.raises(InvalidSchema, match=says):
        Forms().lark(grammar, PLACE)


@pytest.mark.parametrize(
    ("grammar", "written"),
    [
        ('start: a\na: a a | "a" | ""', "a" * 400),
        ('start: s\ns: s s s | s s | "a" | "b"', "ab" * 200),
        ('start: e\ne: e "+" e | e "*" e | N\nN: /[0-9]+/', "1+2*3+" * 400),
        ("start: T\nT: ~/.*a[ab]{40}a.*/ & /[ab]*/", "ab" * 20 + "b" * 400),
    ],
    ids=["two", "three", "sums", "negated"],
)
def test_a_grammar_that_can_be_read_in_many_ways_is_given_up(grammar: str, written: str) -> None:
    """Of a processor's time; the third took a second and a half."""
    follower = Forms().lark(grammar, PLACE).follow()
    begun = time.thread_time()
    assert all(follower.feed(written[n : n + 4].encode()) for n in range(0, len(written), 4))
    assert time.thread_time() - begun < 1


def test_a_text_that_uses_up_its_matcher_harms_no_other_text() -> None:
    """The copies of a matcher share one lexer, and share its end."""
    nested = "((((((a|b)?b?){1,9}a?){1,9}b?){1,40}a?){1,40}b?){1,9}"
    grammar = f'start: T "x" | "c" N\nT: /{nested}/\nN: /[0-9]+/'
    forms = Forms(cached=1)
    first = forms.lark(grammar, PLACE)
    beside = first.follow()
    assert beside.feed(b"c1")
    greedy = first.matcher.copy()
    assert not greedy.take(b"abbababbbaabab" * 9)
    assert greedy.broken
    assert beside.feed(b"2")
    assert beside.whole
    again = forms.lark(grammar, PLACE)
    assert again is not first
    assert verdict(again, "c12") == "followed"
    assert verdict(again, "c1x") == "departed"
