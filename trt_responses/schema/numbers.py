"""Bounds and steps of numbers, drawn inwards to what every guide can write."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf, nextafter
from typing import TYPE_CHECKING, Any

from trt_responses.schema.judge import fraction
from trt_responses.schema.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

Schema = dict[str, Any]
Bound = tuple[Fraction, bool]
"""The least number, and whether it is excluded. An upper bound is one of the negated numbers."""

LARGEST = 2**62
"""Whole numbers from here on crash llguidance (`const`), or are no bounds to it."""
WIDEST = 10**15
"""Bounds of numbers with a fraction: beyond, a double has none."""
DIGITS = 15
"""Of a number with a fraction: llguidance reads more of them otherwise than Python."""
LARGEST_STEP = 4_096
"""Of `multipleOf`: each unit is a state of an automaton."""
MAX_REPEAT = 65_536
"""Of characters and elements; more than a text may have is no bound."""


def number(schema: Schema, guide: Schema, place: str, leave: Callable[[str, str], None]) -> None:
    """Writes the keywords of numbers into the guide. `leave` is told what it cannot say."""
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
        leave("minimum" if low else "maximum", "leaves numbers only that no guide can write")
    else:
        for sign, name, bound, inside in zip(
            (1, -1), ("Minimum", "Maximum"), sides, least, strict=True
        ):
            if bound:
                _write(guide, name, sign, bound, inside)
    if step is not None and low is None and high is not None and high[0] > 0:
        # The embedded engine's llguidance writes such a number's sign, and then anything at all.
        leave("multipleOf", "beside an upper bound below zero alone is not what a guide can say")
    elif step is not None and _is_small(step):
        guide["multipleOf"] = _plain(step)
    elif step is not None:
        leave("multipleOf", "has too many digits for a guide")


def counts(schema: Schema, guide: Schema, place: str, least: str, most: str) -> None:
    """Writes a pair such as `minItems` and `maxItems` into the guide."""
    for keyword in (least, most):
        value = schema.get(keyword)
        if keyword == least and value is not None and value > MAX_REPEAT:
            raise refused(place, f"must be from 0 to {MAX_REPEAT}", keyword)
        if value is not None and value <= MAX_REPEAT and (value or keyword == most):
            guide[keyword] = int(value)
    if guide.get(least, 0) > guide.get(most, MAX_REPEAT):
        raise refused(place, f"is greater than '{most}'", least)


def _bound(schema: Schema, sign: int, plain: str, exclusive: str) -> Bound | None:
    """The tightest; in older drafts `exclusive` is a boolean beside `plain`."""
    found = []
    beside = schema.get(exclusive)
    if schema.get(plain) is not None:
        found.append((sign * fraction(schema[plain]), beside is True))
    if beside is not None and not isinstance(beside, bool):
        found.append((sign * fraction(beside), True))
    return max(found, default=None)


def _inside(bound: Bound, unit: Fraction) -> Fraction:
    """The least number in so many units that a bound allows."""
    value, exclusive = bound
    nearest = ceil(value / unit) * unit
    return nearest + unit if exclusive and nearest == value else nearest


def _double(value: Fraction) -> Fraction:
    """The least whole number from this on that is a double, as which guides read it; other numbers
    have few digits, and stay."""
    if value.denominator > 1:
        return value
    double = float(value)
    return Fraction(double if double >= value else nextafter(double, inf))


def _is_empty(low: Bound, high: Bound, whole: bool) -> bool:
    if whole:
        return _inside(low, Fraction(1)) + _inside(high, Fraction(1)) > 0
    between = low[0] + high[0]
    return between > 0 or (between == 0 and (low[1] or high[1]))


def _write(guide: Schema, name: str, sign: int, asked: Bound, inside: Fraction) -> None:
    """An excluded bound stays one where the numbers nearest to zero are allowed: there llguidance
    would take 0.9 for no number up to 0.99. On the other side the embedded engine's llguidance
    would write an excluded whole number; there the bound is drawn inside."""
    value, exclusive = asked
    if exclusive and value < 0 and inside.denominator > 1 and float(value) == value:
        guide[f"exclusive{name}"] = _plain(sign * value)
    else:
        guide[name.lower()] = _plain(sign * inside)


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _is_small(step: Fraction) -> bool:
    digits = next((n for n in range(DIGITS) if (step * 10**n).denominator == 1), None)
    return digits is not None and step * 10**digits <= LARGEST_STEP
