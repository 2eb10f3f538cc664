"""Regular expressions as ECMA means them, and those that no guide can follow."""

from __future__ import annotations

import re
from random import Random

import pytest

from trt_responses.schema.matching import Expression
from trt_responses.schema.patterns import PatternFault, translate

SPACES = "\t\n\v\f\r \u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\ufeff"


@pytest.mark.parametrize("space", SPACES)
def test_white_space_and_its_negation_are_ecmas(space: str) -> None:
    assert Expression(r"^\s$").matches(space)
    assert not Expression(r"^\S$").matches(space)
    assert not Expression(r"^[^\s]$").matches(space)
    assert not Expression(r"^[\S]$").matches(space)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a", ["a", "xax"], ["", "b"]),
        ("^a", ["a", "ab"], ["ba"]),
        ("a$", ["a", "ba"], ["ab", "a\n"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("(^a|b$)", ["ax", "xb"], ["xa"]),
        ("^(?:a|b)$", ["a", "b"], ["ab"]),
        ("^$|^(?:x{2})$", ["", "xx"], ["x"]),
        ("^[^a-c]{2,3}?$", ["xx", "é€ü"], ["x", "ax"]),
        (r"^\d+(?<part>\.\d+)?(?P<other>x)?$", ["1", "1.5x"], ["٣", "1."]),
        (r"^\w+$", ["a_1"], ["é", "-"]),
        ("^.$", ["a", "é", "\u0085"], ["\n", "\r", "\u2028"]),
        (r"^[\]\-^]+$", ["]-^"], ["a"]),
        (r"^[[a&&b~~c-]+$", ["[&~", "-"], ["d"]),
        (r"^{a}\/\cJ\x41\u00e9\u{1F600}$", ["{a}/\nAé\U0001f600"], ["a"]),
        (r"^\ud83d\uDE00+[\ud83d\ude01-\ud83d\ude03]$", ["\U0001f600" * 2 + "\U0001f602"], ["x"]),
        (r"^[éüß€]x?$", ["é", "€x"], ["e"]),
        (r"^\p{Lu}[^\P{L}\d]$", ["Éa"], ["éa", "A1"]),
        (r"^(?!\.)(?!.*\.\.)[a.]+$", ["a.a"], [".a", "a..a"]),
        (r"^(?=.*\d)(?=.*[a-z])\w{3,}$", ["ab1"], ["abc", "123"]),
        ("^[\\s\\S]$", ["\n", "\U0001f600"], ["", "ab"]),
    ],
)
def test_a_pattern_means_what_ecma_says(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    expression = Expression(pattern)
    assert [text for text in matching if not expression.matches(text)] == []
    assert [text for text in others if expression.matches(text)] == []


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(?<=a)b", "looks behind"),
        ("a(?=b)", "looks ahead"),
        ("(?=a)b|c", "lookahead in one of several"),
        (r"(a)\1", "refers to a group"),
        (r"\bword", "word boundary"),
        (r"\ud83d", "half a surrogate pair"),
        (r"[\0-\u{110000}]", "beyond Unicode"),
        ("a^b", "occurs in its middle"),
        ("[a", "is an unclosed class"),
        ("(a", "not closed"),
        ("a)", "not closed or opened"),
        ("*a", "repeats nothing"),
        ("a{2}{3}", "repeats a repeat"),
        ("a{3,2}", "is not a range"),
        ("a{1001}", "is not a range"),
        ("((a{1000}){1000}){9}", "expand to more"),
        ("(" * 40 + "a" + ")" * 40, "nested too deep"),
        ("[]", "classes is empty"),
        ("[z-a]", "ends no range"),
        ("(?i)a", "is not a supported group"),
        ("a" * 5_000, "characters"),
        ("(^a|b)c" * 8, "in its middle"),
    ],
)
def test_what_cannot_be_followed_says_why(pattern: str, says: str) -> None:
    with pytest.raises(PatternFault, match=says):
        translate(pattern)


def test_random_patterns_match_what_python_matches() -> None:
    random = Random(7)
    atoms = ["a", "b", "[ab]", "[^a]", ".", r"\d", "(a|b)", "(?:ab|c)", "x"]
    repeats = ["", "", "", "?", "*", "+", "{2}", "{1,2}"]
    for _ in range(150):
        inner = "".join(
            random.choice(atoms) + random.choice(repeats) for _ in range(random.randint(1, 4))
        )
        pattern = random.choice(["^", ""]) + inner + random.choice(["$", ""])
        expression = Expression(pattern)
        theirs = re.compile(pattern.replace("$", r"\Z"))
        for _ in range(12):
            text = "".join(random.choice("abcx1") for _ in range(random.randint(0, 5)))
            assert expression.matches(text) is bool(theirs.search(text)), (pattern, text)


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    """Python's own matcher would try 2^40 ways."""
    assert not Expression("^(a+)+$").matches("a" * 40 + "b")
