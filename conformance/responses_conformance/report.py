"""One report of a judgement: as JSON, as a Markdown table, and as a badge."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from responses_conformance import __version__
from responses_conformance.client import Exchange, Json, Server
from responses_conformance.repeat import script
from responses_conformance.runner import Outcome

MOST_SHOWN = 1500
SIGNS = {"passed": "✓", "failed": "✗", "not offered": "–", "not judged": "?"}
BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" \
aria-label="{label}: {text}"><title>{label}: {text}</title>
<rect width="{width}" height="20" rx="3" fill="#555"/>
<path d="M{left} 0h{right}v20h-{right}z" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{label_x}" y="14">{label}</text><text x="{text_x}" y="14">{text}</text></g></svg>
"""


def document(
    server: Server, about: Json, outcomes: Sequence[Outcome], profile: str, repeats: int
) -> Json:
    """The whole report."""
    return {
        "kit": f"responses-conformance {__version__}",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "server": {"url": server.url, "model": server.model, **about},
        "profile": profile,
        "repeats": repeats,
        "summary": dict(Counter(outcome.verdict for outcome in outcomes)),
        "checks": [_entry(server, outcome) for outcome in outcomes],
    }


def _entry(server: Server, outcome: Outcome) -> Json:
    low, high = outcome.interval
    entry = {
        "name": outcome.check.name,
        "judges": outcome.check.judges,
        "clause": outcome.check.clause,
        "verdict": outcome.verdict,
        "why": outcome.why,
        "held": outcome.held,
        "attempts": outcome.attempts,
        "interval": [round(low, 3), round(high, 3)],
        "seconds": round(outcome.seconds, 3),
    }
    if outcome.verdict == "failed":
        entry["bytes"] = cut(server, outcome.shown)
        entry["exchanges"] = [_exchange(server, each) for each in outcome.exchanges]
        entry["repeat"] = script(server, outcome.exchanges)
    return entry


def _exchange(server: Server, exchange: Exchange) -> Json:
    return {
        "request": f"{exchange.method} {server.base}{exchange.path}",
        "body": cut(server, exchange.body or b""),
        "status": exchange.status,
        "reply": cut(server, exchange.reply),
    }


def cut(server: Server, shown: bytes) -> str:
    """The bytes as text, their middle left out if they are many, and without the key."""
    text = shown.decode("utf-8", "replace")
    if len(text) > MOST_SHOWN:
        half = MOST_SHOWN // 2
        text = f"{text[:half]}\n… {len(text) - MOST_SHOWN} characters …\n{text[-half:]}"
    return text.replace(server.key, "$KEY") if server.key else text


def markdown(report: Json) -> str:
    """The table, and behind it each failure."""
    server, counts = report["server"], report["summary"]
    lines = [f"# Conformance of {server['url']}", ""]
    lines += [f"- {name}: {_cell(value)}" for name, value in server.items() if name != "url"]
    lines += [f"- {report['kit']}, {report['date']}, profile {report['profile']}, "]
    lines[-1] += f"{report['repeats']} attempts"
    lines += [f"- {', '.join(f'{counts[name]} {name}' for name in SIGNS if name in counts)}", ""]
    lines += ["| | check | judges | found |", "|---|---|---|---|"]
    for entry in report["checks"]:
        found = entry["why"] or "–"
        if entry["attempts"] > 1:
            low, high = entry["interval"]
            found = f"{entry['held']}/{entry['attempts']} [{low:.2f}, {high:.2f}] {entry['why']}"
        cells = (SIGNS[entry["verdict"]], f"`{entry['name']}`", entry["judges"], found)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    for entry in report["checks"]:
        if entry["verdict"] == "failed":
            lines += ["", f"## {entry['name']}", "", f"{entry['judges']} ({entry['clause']})", ""]
            lines += [f"{entry['why']}.", "", *_block("text", entry["bytes"])]
            kind = (
                "sh"
                if entry["repeat"].lstrip("# ").startswith(("curl", "of", "python -m"))
                else "python"
            )
            lines += ["", "To repeat it:", "", *_block(kind, entry["repeat"])]
    return "\n".join(lines) + "\n"


def _block(kind: str, text: str) -> list[str]:
    return [f"~~~{kind}", text.strip(), "~~~"]


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("\n", " ").replace("|", "\\|")[:300]


def badge(report: Json) -> str:
    """An SVG: how many of the judged checks passed."""
    counts = report["summary"]
    passed, failed = counts.get("passed", 0), counts.get("failed", 0)
    share = passed / (passed + failed) if passed + failed else 0.0
    colour = "#4c1" if share == 1 else "#dfb317" if share >= 0.9 else "#e05d44"
    label, text = "Responses API", f"{passed}/{passed + failed}"
    left, right = 7 * len(label) + 10, 7 * len(text) + 14
    return BADGE.format(
        label=label,
        text=text,
        colour=colour,
        left=left,
        right=right,
        width=left + right,
        label_x=left // 2,
        text_x=left + right // 2,
    )


def write(report: Json, folder: Path) -> list[Path]:
    """Write the three files and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "conformance.json": json.dumps(report, ensure_ascii=False, indent=1) + "\n",
        "conformance.md": markdown(report),
        "conformance.svg": badge(report),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in texts]
