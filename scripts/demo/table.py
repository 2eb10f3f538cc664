"""The report as Markdown tables. Knows the report's shape only."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

Score = "Mapping[str, float | None]"
LABELS = {
    "effort_low": "effort low",
    "effort_medium": "effort medium",
    "effort_high": "effort high",
    "temperature_1": "temperature 1",
    "unknown_instructions": "unknown developer message",
    "behind_2000_tokens": "behind 2,000 unrelated tokens",
}


def markdown(report: Mapping[str, object]) -> str:
    families = cast("Mapping[str, Mapping[str, Mapping[str, float | None]]]", report["families"])
    totals = cast("Mapping[str, Mapping[str, float | None]]", report["total"])
    conditions = cast("Mapping[str, Mapping[str, float | None]]", report["conditions"])
    unused = cast("Mapping[str, float]", report["unused_mass"])
    rows = [_family(name.replace("_", " "), scores) for name, scores in families.items()]
    lines = [
        "| family | prompts | exact, seen | exact, held back | copied, held back | well-formed |",
        "|---|---|---|---|---|---|",
        *rows,
        _family("**all**", totals),
        "",
        "| condition | prompts | well-formed | exact | tokens before the answer |",
        "|---|---|---|---|---|",
        *(_condition(LABELS[name], score) for name, score in conditions.items()),
        "",
        f"Probability of all unused ids together: mean {unused['mean']:.1e}, at most "
        f"{unused['max']:.1e} per token.",
    ]
    return "\n".join(lines)


def _family(name: str, scores: Mapping[str, Mapping[str, float | None]]) -> str:
    seen, held = scores["seen"], scores["held_back"]
    formed = min(seen["well_formed"] or 0, held["well_formed"] or 0)
    cells = (
        f"{seen['prompts']} + {held['prompts']}",
        _percent(seen["exact"]),
        _percent(held["exact"]),
        _percent(held["copied"]),
        _percent(formed),
    )
    return f"| {name} | {' | '.join(cells)} |"


def _condition(name: str, score: Mapping[str, float | None]) -> str:
    cells = (
        str(score["prompts"]),
        _percent(score["well_formed"]),
        _percent(score["exact"]),
        f"{score['analysis_tokens']:.0f}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
