"""The report: JSON, and one HTML page of it. Leaves out keys, prompts and home directories."""

from __future__ import annotations

import html
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any

import orjson

from trt_responses import __version__
from trt_responses.backends.settings import EngineSettings
from trt_responses.files import write_whole
from trt_responses.prepare.machine import this_machine
from trt_responses.prove import agents, canaries, endings, load, serving
from trt_responses.prove.bench import Bench
from trt_responses.prove.run import Outcome
from trt_responses.prove.steps import GPUS

SCHEMA = 1
NO_GPU = "not run on a GPU"
JSON_NAME, PAGE_NAME = "proof.json", "proof.html"
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|STORE$", re.IGNORECASE)
LEAST = 6
"""Shorter values of variables are words, such as `yes`, and no secrets."""
PROMPTS = (
    *(*agents.PROMPTS, *canaries.PROMPTS.values()),
    *(serving.AGREE, endings.STREAM, load.QUESTION),
)
FACTS = ("server", "written", "form", "target", "machine")
COLUMNS = ("name", "what", "state", "seconds", "why", "figures", "proves")


def document(bench: Bench, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The report as one JSON document."""
    machine, card = this_machine(EngineSettings.of(bench.settings).trtllm_python), bench.card
    rows: dict[str, str] = {}
    for outcome in outcomes:
        row = outcome.step.proves
        rows[row] = worst([outcome.state, rows.get(row, "skipped")])
    if not machine.hardware and GPUS in rows:
        rows[GPUS] = NO_GPU
    whole = {
        "schema": SCHEMA,
        "server": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": worst([outcome.state for outcome in outcomes]),
        "form": "quick" if bench.wish.quick else "whole",
        "target": {
            "engine": bench.wish.engine if card is None else card.label,
            "kind": bench.kind,
            "weights": None if card is None else card.weight_type,
        },
        "machine": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "processors": os.cpu_count(),
            "memory bytes": machine.memory_bytes,
            "hardware": dict(machine.hardware) or "no GPU",
            "libraries": dict(machine.libraries),
        },
        "steps": [_row(outcome) for outcome in outcomes],
        "rows of README": rows,
    }
    found: dict[str, Any] = clean(whole, secrets_of(os.environ) | bench.secrets)
    return found


def _row(outcome: Outcome) -> dict[str, Any]:
    step = outcome.step
    facts = {"name": step.name, "what": step.what, "proves": step.proves}
    return facts | {name: getattr(outcome, name) for name in ("state", "seconds", "why", "figures")}


def worst(states: Sequence[str]) -> str:
    """The state of several steps together."""
    return next((state for state in ("failed", "held") if state in states), "skipped")


def write(folder: Path, report: Mapping[str, Any]) -> Path:
    """Write both files, and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"
    write_whole(folder / JSON_NAME, text)
    write_whole(folder / PAGE_NAME, page(report))
    return folder / PAGE_NAME


def page(report: Mapping[str, Any]) -> str:
    """The report as one HTML page, without scripts."""
    template = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    return template.substitute(
        status=html.escape(report["status"]),
        facts=_lines([name, report[name]] for name in FACTS),
        head="".join(f"<th>{name}</th>" for name in COLUMNS),
        steps=_lines([step[name] for name in COLUMNS] for step in report["steps"]),
        rows=_lines(report["rows of README"].items()),
    )


def _lines(rows: Iterable[Iterable[object]]) -> str:
    """The rows of a table; a cell with a state has its class."""
    return "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else _json(value)
    is_state = text in ("held", "failed", "skipped")
    return f'<td class="{text}">{text}</td>' if is_state else f"<td>{html.escape(text)}</td>"


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() if value else ""


def clean(value: Any, secrets: Iterable[str]) -> Any:
    """The value without these texts, prompts and home directories, however deep they are."""
    hidden = dict.fromkeys(secrets, "[secret]") | dict.fromkeys(PROMPTS, "[prompt]")
    hidden |= {str(Path.home()): "~"} if len(Path.home().parts) > 1 else {}
    pattern = re.compile("|".join(map(re.escape, sorted(hidden, key=len, reverse=True))))

    def cleaned(part: Any) -> Any:
        if isinstance(part, str):
            return pattern.sub(lambda found: hidden[found[0]], part)
        if isinstance(part, Mapping):
            return {cleaned(name): cleaned(each) for name, each in part.items()}
        return [cleaned(each) for each in part] if isinstance(part, (list, tuple)) else part

    return cleaned(value)


def secrets_of(environment: Mapping[str, str]) -> set[str]:
    """The values of variables that are named like secrets, and their parts."""
    named = [value for name, value in environment.items() if SECRET.search(name)]
    parts = [part for value in named for part in re.split(r"[,:@\s]", value)]
    return {word for word in (*named, *parts) if len(word) >= LEAST}
