"""`trt-responses explain ID`: prints how a response was made. Parses, calls, prints."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from trt_responses.cli.client import ServerFault, add_server, printable, server_of
from trt_responses.cli.commands import add_command
from trt_responses.errors import StartupError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from trt_responses.cli.commands import Commands

    Json = dict[str, Any]

CONTROL_STYLE = "bold cyan"
STYLES = {"forced": "green", "kept": "", "discarded": "red strike"}


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `explain` and its options."""
    parser = add_command(commands, name, text, _explain, example="explain resp_1a2b3c4d --json")
    parser.add_argument("id", metavar="ID", help="Id of the response, resp_…")
    parser.add_argument("--json", action="store_true", help="JSON with all token ids")
    parser.add_argument(
        "--transcript",
        type=Path,
        metavar="FILE",
        help="File to write a transcript for tests/transcripts/ to, such as bug.json",
    )
    add_server(parser)


def _explain(options: argparse.Namespace) -> int:
    server, path = server_of(options), f"/responses/{quote(options.id, safe='')}/explain"
    try:
        if options.transcript is not None:
            name = _name(options.transcript)
            options.transcript.write_bytes(server.get(f"{path}?transcript={name}"))
            print(f"wrote {options.transcript}", file=sys.stderr)
            return 0
        explanation = server.get_json(path)
    except ServerFault as fault:
        raise StartupError(str(fault)) from None
    except OSError as error:
        raise UsageError(f"--transcript {options.transcript}: {error.strerror}.") from None
    if options.json:
        print(json.dumps(explanation, indent=2, ensure_ascii=False))
    else:
        show(explanation, Console(soft_wrap=True))
    return 0


def _name(path: Path) -> str:
    if path.suffix != ".json" or not re.fullmatch("[a-z0-9_]{1,64}", path.stem):
        raise UsageError(
            f"--transcript {path}: use a file name of small letters, digits and _ that ends in "
            ".json."
        )
    return path.stem


def show(made: Json, console: Console) -> None:
    """Print an explanation; control ids, forced and discarded ids are coloured."""
    console.print(Text(f"{made['id']}  {made['status']}  {made['model']}  ({made['plan']})"))
    if made["error"]:
        console.print(Text(printable(made["error"]), "red"))
    prompt = made["prompt"]
    _title(console, f"prompt: {prompt['tokens']} tokens, {prompt['cached_tokens'] or 0} cached")
    console.print(_text(prompt["pieces"]))
    for number, segment in enumerate(made["segments"], 1):
        _show_segment(segment, number, console)
    _title(console, "repairs")
    repairs = [f"{kind} {count}" for kind, count in made["repairs"].items()]
    console.print(Text(", ".join(repairs) or "none"))
    _title(console, "timeline")
    for mark in made["timeline"]:
        console.print(Text(f"{mark['at_ms']:10.1f} ms  {mark['mark']}"))
    _title(console, "engine")
    console.print(Text(json.dumps(made["engine"], ensure_ascii=False)))


def _show_segment(segment: Json, number: int, console: Console) -> None:
    guide = f", guide {segment['guide']['kind']}" if segment["guide"] else ""
    spent = segment["ended_ms"] - segment["began_ms"]
    _title(
        console,
        f"segment {number}: {segment['name']}, {segment['outcome']} in {spent:.1f} ms, "
        f"at most {segment['max_tokens']} tokens{guide}",
    )
    for part, style in STYLES.items():
        if segment[part]:
            console.print(Text(f"{part:9} ", "dim") + _text(segment[part], style))


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, "bold underline"))


def _text(pieces: Iterable[Json], style: str = "") -> Text:
    """Pieces joined to one text; where texts are redacted, the number of tokens of each."""
    text = Text()
    for piece in pieces:
        if "control" in piece:
            text.append(piece["control"], CONTROL_STYLE)
        elif "text" in piece:
            text.append(printable(piece["text"]), style)
        else:
            text.append(f"[{piece['tokens']} tokens]", "dim")
    return text
