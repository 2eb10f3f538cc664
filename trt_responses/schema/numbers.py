"""Bounds and steps of numbers, rounded inwards to values that every guide can write."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, inf, nextafter
from typing import Any

from trt_responses.schema.judge import fraction
from trt_responses.schema.refusals import refused

Schema = dict[str, Any]
Bound = tuple[Fraction, bool]
"""A lower bound, and whether it is exclusive. An upper bound is negated."""

LARGEST = 2**62
"""Integers from here on crash llguidance as `const`, and are ignored as bounds."""
WIDEST = 10**15
"""Maximum bound of fractions: larger doubles have none."""
DIGITS = 15
"""Maximum digits of a fraction: llguidance reads longer ones differently from Python."""
LARGEST_STEP = 4_096
"""Maximum `multipleOf`: each unit is a state of an automaton."""
MAX_REPEAT = 65_536
"""Maximum count of characters or elements; a larger upper bound is ignored."""


def number(schema: Schema, guide: Schema, place: str, leave: Callable[[str, str], None]) -> None:
    """Write the number keywords into the guide. `leave` is called for unsupported ones."""
    low = _bound(schema, 1, "minimum", "exclusiveMinimum")
    high = _bound(schema, -1, "maximum", "exclusiveMaximum")
    sides = (low, high)
    step = None if schema.get("multipleOf") is None else fraction(schema["multipleOf"])
    whole = "integer" in (guide.get("type") or ())
    if low and high and _is_empty(low, high, whole or (step is not None and step == int(step))):
        keyword = "minimum" if "minimum" in schema else "exclusiveMinimum"
        raise refused(place, "leaves no number below the greatest", keyword)
    steps_whole = step is not None and step.denominator == 1 and guide.get("type") == "number"
    if not whole and (steps_whole or any(bound and bound[0] > WIDEST for bound in sides)):
        guide["type"], whole = "integer", True
    largest = max(abs(int(bound[0])) if bound else 0 for bound in sides)
    unit = Fraction(1) if whole else Fraction(1, 10 ** max(0, DIGITS - len(str(largest)) + 1))
    widest = Fraction(LARGEST if whole else WIDEST)
    least = [max(-widest, _double(_inside(bound, unit))) if bound else -widest for bound in sides]
    if sum(least) > 0:
        leave("minimum" if low else "maximum", "leaves only numbers that no guide can write")
    else:
        for sign, name, bound, inside in zip(
            (1, -1), ("Minimum", "Maximum"), sides, least, strict=True
        ):
            if bound:
                _write(guide, name, sign, bound, inside)
    if step is not None and low is None and high is not None and high[0] > 0:
        # The embedded engine's llguidance writes the sign of such a number, then anything.
        leave("multipleOf", "with only an upper bound, below zero, is not supported by guides")
    elif step is not None and _is_small(step):
        guide["multipleOf"] = _plain(step)
    elif step is not None:
        leave("multipleOf", "has too many digits for a guide")


def counts(schema: Schema, guide: Schema, place: str, least: str, most: str) -> None:
    """Write a pair such as `minItems` and `maxItems` into the guide."""
    for keyword in (least, most):
        value = schema.get(keyword)
        if keyword == least and value is not None and value > MAX_REPEAT:
            raise refused(place, f"must be from 0 to {MAX_REPEAT}", keyword)
        if value is not None and value <= MAX_REPEAT and (value or keyword == most):
            guide[keyword] = int(value)
    if guide.get(least, 0) > guide.get(most, MAX_REPEAT):
        raise refused(place, f"is greater than '{most}'", least)


def _bound(schema: Schema, sign: int, plain: str, exclusive: str) -> Bound | None:
    """The tightest bound; in older drafts `exclusive` is a boolean that modifies `plain`."""
    bounds = []
    excluded = schema.get(exclusive)
    if schema.get(plain) is not None:
        bounds.append((sign * fraction(schema[plain]), excluded is True))
    if excluded is not None and not isinstance(excluded, bool):
        bounds.append((sign * fraction(excluded), True))
    return max(bounds, default=None)


def _inside(bound: Bound, unit: Fraction) -> Fraction:
    """The least multiple of `unit` that a bound allows."""
    value, exclusive = bound
    nearest = ceil(value / unit) * unit
    return nearest + unit if exclusive and nearest == value else nearest


def _double(value: Fraction) -> Fraction:
    """The least integer from this on that a double represents exactly, since guides read doubles.
    Fractions have few digits and are returned unchanged."""
    if value.denominator > 1:
        return value
    double = float(value)
    return Fraction(double if double >= value else nextafter(double, inf))


def _is_empty(low: Bound, high: Bound, whole: bool) -> bool:
    if whole:
        return _inside(low, Fraction(1)) + _inside(high, Fraction(1)) > 0
    between = low[0] + high[0]
    return between > 0 or (between == 0 and (low[1] or high[1]))


def _write(guide: Schema, name: str, sign: int, bound: Bound, inside: Fraction) -> None:
    """Write one bound. It stays exclusive if numbers near zero are allowed: llguidance would not
    accept 0.9 under a maximum of 0.99. Otherwise it is rounded inwards: the embedded engine's
    llguidance would write an excluded integer."""
    value, exclusive = bound
    if exclusive and value < 0 and inside.denominator > 1 and float(value) == value:
        guide[f"exclusive{name}"] = _plain(sign * value)
    else:
        guide[name.lower()] = _plain(sign * inside)


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _is_small(step: Fraction) -> bool:
    digits = next((n for n in range(DIGITS) if (step * 10**n).denominator == 1), None)
    return digits is not None and step * 10**digits <= LARGEST_STEP
