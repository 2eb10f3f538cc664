"""The page of the demo model shows the figures of its report."""

from __future__ import annotations

import json

from scripts.demo.wordings import SOURCE
from tests.support.imports import ROOT

SHOWN = {
    "tool_missing": "worst family",
    "schema": "objects under a schema",
    "agent": "tools of agents",
}


def figures(scores: dict[str, dict[str, float]]) -> str:
    seen, new = scores["seen"], scores["held_back"]
    formed = min(seen["well_formed"], new["well_formed"])
    return " | ".join(f"{100 * share:.1f} %" for share in (seen["exact"], new["exact"], formed))


def test_the_page_shows_the_figures_of_the_report() -> None:
    report = json.loads((SOURCE / "report.json").read_text("utf-8"))
    page = (ROOT / "docs" / "demo.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    families = report["families"]
    total = report["total"]
    prompts = total["seen"]["prompts"] + total["held_back"]["prompts"]
    assert any(
        f"all {len(families)} families, {prompts:,} prompts | {figures(total)} |" in row
        for row in rows
    )
    for name, label in SHOWN.items():
        row = next(row for row in rows if label in row)
        assert figures(families[name]) in row, name

    def exact(name: str) -> tuple[float, float]:
        return families[name]["held_back"]["exact"], families[name]["seen"]["exact"]

    assert SHOWN[min(families, key=exact)] == "worst family"
