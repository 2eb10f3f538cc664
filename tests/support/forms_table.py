"""The table of `docs/models.md`, made of what `forms.json` records of published templates.

To write both anew, with the folder of the other templates: `CHAT_TEMPLATES=… python -m
tests.support.forms_table`, after `tests.support.golden_renders`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.support import template_forms
from tests.support.template_served import dialect_of
from trt_responses.language.messages import FunctionTool
from trt_responses.language.steering import Unguided
from trt_responses.schema.compile import Forms

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "| templates | calls | thoughts | guided |\n", "\n\n"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORM = Forms(cached=1).form(SCHEMA, "tools[0].parameters")
BODIES = {
    "json": "JSON",
    "named": "name and JSON",
    "tags": "tags",
    "literal": "function call",
}
ORGANISATIONS = (
    *("CohereForAI-c4ai-", "deepseek-ai-", "google-", "ibm-granite-", "inclusionai-"),
    *("HuggingFaceTB-", "ByteDance-", "meetkai-", "meta-llama-", "microsoft-", "mistralai-"),
    *("moonshotai-", "NousResearch-", "NVIDIA-", "openbmb-", "poolside-", "Qwen-", "tencent-"),
    *("unsloth-", "upstage-", "openai-", "fireworks-ai-", "llama-cpp-"),
)
ENDINGS = ("-Instruct", "-it", "-tool_use", "-12-2024", "-2507", "-2506", "-2407", "-2512")


def short(name: str) -> str:
    """A model's name as people say it."""
    for organisation in ORGANISATIONS:
        name = name.removeprefix(organisation)
    for ending in (*ENDINGS, *ENDINGS):
        name = name.removesuffix(ending)
    return name


def guided(name: str) -> bool:
    """Whether a tool's schema can guide its arguments."""
    try:
        dialect_of(name).arguments(FORM, FunctionTool("get_weather", "", SCHEMA))
    except Unguided:
        return False
    return True


def table() -> str:
    """The rows, each with the templates that are alike."""
    rows: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, known in recorded_templates().items():
        if known["calls"]:
            calls = BODIES[known["calls"]]
            rows[calls, _yes(known["thoughts"]), _yes(known["guided"])].append(short(name))
    lines = [f"| {', '.join(names)} | {' | '.join(row)} |" for row, names in sorted(rows.items())]
    return "\n".join((f"{BEGIN}|---|---|---|---|", *lines))


def without_calls() -> dict[str, str]:
    """Why the others get text alone."""
    known = recorded_templates()
    return {short(name): one["why"] for name, one in known.items() if not one["calls"]}


def recorded_templates() -> dict[str, Any]:
    templates: dict[str, Any] = template_forms.recorded()["templates"]
    return templates


def shown() -> str:
    """The table as the page has it."""
    text = PAGE.read_text("utf-8")
    return text[text.index(BEGIN) :].partition(END)[0]


def _yes(value: bool) -> str:
    return "yes" if value else "–"


def main() -> None:
    known = template_forms.recorded()
    for name in template_forms.names():
        known["templates"][name]["guided"] = bool(known["templates"][name]["calls"]) and guided(
            name
        )
    found = json.dumps(known, ensure_ascii=False, indent=1)
    template_forms.FILE.write_text(found + "\n", "utf-8")
    PAGE.write_text(PAGE.read_text("utf-8").replace(shown(), table()), "utf-8")


if __name__ == "__main__":
    main()
