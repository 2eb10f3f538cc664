"""The report: JSON, and one HTML page of it. Leaves out keys, prompts and home directories."""

from __future__ import annotations

import html
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from trt_responses import __version__
from trt_responses.files import write_whole
from trt_responses.prepare.machine import this_machine
from trt_responses.prove import agents, canaries, endings, load, numerics, serving
from trt_responses.prove.steps import GPUS

if TYPE_CHECKING:
    from trt_responses.prove.bench import Bench
    from trt_responses.prove.step import Outcome

SCHEMA = 1
NO_GPU = "not run on a GPU"
JSON_NAME, PAGE_NAME = "proof.json", "proof.html"
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|STORE$", re.IGNORECASE)
LEAST = 6
"""Shorter values of variables are words, such as `yes`, and no secrets."""
PROMPTS = (
    *(*agents.PROMPTS, canaries.PROMPT, *numerics.PROMPTS.values(), load.QUESTION[:-2]),
    *(serving.AGREE, endings.STREAM, load.QUESTION),
)
STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:#1a1a1a;background:#fff}table{border-collapse:collapse;width:100%}td,th{text-align:left;
vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid #ccc}.held{color:#14602b}
.failed{color:#a11212;font-weight:600}.skipped{color:#555}code{font-size:.9em;white-space:pre-wrap}"""


def document(bench: Bench, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The report as one JSON document."""
    machine = this_machine(bench.settings.trtllm_python)
    card, wish = bench.card, bench.wish
    rows: dict[str, set[str]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.step.proves, set()).add(outcome.state)
    proven = {row: _worst(states) for row, states in rows.items()}
    if not machine.hardware and GPUS in proven:
        proven[GPUS] = NO_GPU
    whole = {
        "schema": SCHEMA,
        "server": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": _worst(outcome.state for outcome in outcomes),
        "form": "quick" if wish.quick else "whole",
        "target": {
            "engine": wish.engine if card is None else card.label,
            "kind": bench.kind,
            "weights": None if card is None else card.weight_type,
            "built with": None if card is None else dict(card.libraries),
        },
        "machine": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "processors": os.cpu_count(),
            "memory bytes": machine.memory_bytes,
            "hardware": dict(machine.hardware) or "no GPU",
            "libraries": dict(machine.libraries),
        },
        "steps": [
            {
                "name": outcome.step.name,
                "what": outcome.step.what,
                "state": outcome.state,
                "seconds": outcome.seconds,
                "why": outcome.why,
                "figures": outcome.figures,
                "proves": outcome.step.proves,
            }
            for outcome in outcomes
        ],
        "rows of README": proven,
    }
    cleaned = clean(whole, secrets_of(os.environ) | bench.secrets)
    assert isinstance(cleaned, dict)
    return cleaned


def write(folder: Path, report: Mapping[str, object]) -> Path:
    """Write both files, and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"
    write_whole(folder / JSON_NAME, text)
    write_whole(folder / PAGE_NAME, page(report))
    return folder / PAGE_NAME


def page(report: Mapping[str, object]) -> str:
    """The report as one HTML page, without scripts."""
    facts = "".join(
        f"<tr><th>{_text(name)}</th><td><code>{_text(report[name])}</code></td></tr>"
        for name in ("server", "written", "form", "target", "machine")
    )
    steps, rows = report["steps"], report["rows of README"]
    assert isinstance(steps, list)
    assert isinstance(rows, dict)
    lines = "".join(
        f'<tr><td>{_text(s["name"])}<br>{_text(s["what"])}</td><td class="{s["state"]}">'
        f"{s['state']}</td><td>{s['seconds']}</td><td>{_text(s['why'])} "
        f"<code>{_text(s['figures'] or '')}</code></td><td>{_text(s['proves'])}</td></tr>"
        for s in steps
    )
    proven = "".join(
        f'<tr><td>{_text(row)}</td><td class="{state}">{state}</td></tr>'
        for row, state in rows.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Proof</title>'
        f"<style>{STYLE}</style><h1>Proof: {_text(report['status'])}</h1><table>{facts}</table>"
        "<h2>Steps</h2><table><tr><th>step<th>state<th>seconds<th>figures<th>row of README</tr>"
        f"{lines}</table><h2>Rows of README</h2><table>{proven}</table></html>\n"
    )


def clean(value: object, secrets: Iterable[str]) -> object:
    """The value without these texts, prompts and home directories, however deep they are."""
    hidden = dict.fromkeys(secrets, "[secret]") | dict.fromkeys(PROMPTS, "[prompt]")
    hidden[str(Path.home())] = "~"
    words = sorted((word for word in hidden if len(word) > 1), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, words)))

    def cleaned(part: object) -> object:
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


def _worst(states: Iterable[str]) -> str:
    found = {*states}
    return next((state for state in ("failed", "held") if state in found), "skipped")


def _text(value: object) -> str:
    if isinstance(value, (dict, list)):
        value = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return html.escape(str(value))
