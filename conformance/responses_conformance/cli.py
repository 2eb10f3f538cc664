"""The command: judges one server and writes the report."""

from __future__ import annotations

import argparse
import http.client
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from responses_conformance import __version__
from responses_conformance.client import Json, Server

if TYPE_CHECKING:
    from responses_conformance.checks.base import Check

ABOUT = "Judge a server of the Responses API, chat completions and Messages by its replies"
MORE = """\
A check is a rule of the published APIs. It passes, fails, or is "not offered": the
server refuses the feature by its name. In the profile `hosted` the weights are
unknown: each check is made K times, and where the model decides, four attempts of
five must hold. In the profile `scripted` the model plays the kit's script, which
`--script` prints: all must hold. In the profile `transcripts` the engine is a mock of the
kit (`responses-conformance mock --help`), which plays ids as gpt-oss writes them, well and
badly: nothing may leak or be lost.

The exit status is 0 if nothing failed, 1 if something did, 2 for wrong use."""
REPEATS = {"hosted": 3, "scripted": 1, "transcripts": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    add = parser.add_argument
    add("url", nargs="?", metavar="URL", help="Address of the API, such as http://host:8000/v1")
    add("--key", metavar="KEY", help="API key (default: the variable OPENAI_API_KEY)")
    add("--model", metavar="NAME", help="Model name (default: the first one of the server)")
    profile = add("--profile", choices=tuple(REPEATS), default="hosted", metavar="NAME")
    profile.help = "Profile, hosted, scripted or transcripts (default: hosted)"
    repeats = add("--repeat", type=int, metavar="K")
    repeats.help = (
        "Attempts of each check (default: 3 of hosted, else 1), or rounds of each writer (10)"
    )
    only = add("--only", action="append", default=[], metavar="NAME")
    only.help = "Check, or beginning of names such as chat, repeatable (default: all)"
    record = add("--record", type=Path, metavar="FILE")
    record.help = "File of prompts that the mock writes, to judge prompts too"
    add(
        "--patience",
        type=float,
        metavar="S",
        help="Seconds to wait for a reply or a stream (default: 120)",
    )
    report = add("--report", type=Path, default=Path("conformance"), metavar="DIR")
    report.help = "Directory for the JSON, the table and the badge (default: conformance)"
    writes = add("--read-your-writes", metavar="URL[,URL]")
    writes.help = "Judge only this, over servers of one store: each knows what another has streamed"
    add("--writers", type=int, default=4, metavar="N", help="Writers of that at once (default: 4)")
    add("--list", action="store_true", help="The checks, what they judge and by which clause")
    add("--script", action="store_true", help="The script that the profile scripted expects")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of this package and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["mock"]:
        from responses_conformance.mocks import command

        return command.main(given[1:])
    example = "\n\nExample:\n  responses-conformance http://127.0.0.1:8000/v1 --only responses"
    parser = argparse.ArgumentParser(
        prog="responses-conformance",
        description=f"{ABOUT}.",
        epilog=MORE + example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__, help="Version")
    add_arguments(parser)
    try:
        return run(parser.parse_args(given))
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace) -> int:
    """Judge the server and write the report. Returns the exit status."""
    from responses_conformance import checks as known
    from responses_conformance import report
    from responses_conformance.runner import judge

    if options.script:
        print(Path(__file__).with_name("script.yaml").read_text("utf-8"), end="")
        return 0
    if options.read_your_writes:
        return _read_your_writes(options)
    every = known.CHECKS
    if options.profile == "transcripts":
        from responses_conformance.playing import all_checks

        every = all_checks(record=options.record)
    checks = [c for c in every if not options.only or c.name.startswith(tuple(options.only))]
    if options.list:
        print("\n".join(f"{c.name}\n    {c.judges}\n    {c.clause}" for c in checks))
        return 0
    if not options.url or not checks:
        return _wrong(
            f"no check is named {' or '.join(options.only)}: --list prints them."
            if options.url
            else "no address: give the URL of a server, such as http://127.0.0.1:8000/v1."
        )
    try:
        server, about = _described(options, options.url)
    except (OSError, http.client.HTTPException, ValueError) as fault:
        return _wrong(f"{options.url} does not answer: {fault}.")
    repeats = options.repeat or REPEATS[options.profile]
    bar = Bar(len(checks))
    outcomes = judge(server, checks, options.profile, repeats, bar.show)
    bar.end()
    made = report.document(server, about, outcomes, options.profile, repeats)
    for outcome in outcomes:
        if outcome.verdict == "failed":
            print(f"{report.SIGNS['failed']} {outcome.check.name}: {outcome.why}")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in made["summary"].items())
    print(f"{counts}: {', '.join(map(str, report.write(made, options.report)))}")
    return 1 if made["summary"].get("failed") else 0


def _described(options: argparse.Namespace, url: str) -> tuple[Server, Json]:
    """The server of an address, and what it says of itself."""
    key = options.key or os.environ.get("OPENAI_API_KEY", "")
    server = Server(url, key, options.model or "", options.patience or 120)
    return server, description_of(server)


def _read_your_writes(options: argparse.Namespace) -> int:
    """Judge what servers of one store know of each other, and print it."""
    from responses_conformance.writes import Writers

    servers = []
    for url in options.read_your_writes.split(","):
        try:
            servers.append(_described(options, url)[0])
        except (OSError, http.client.HTTPException, ValueError) as fault:
            return _wrong(f"{url} does not answer: {fault}.")
    found = Writers(servers, options.writers)
    found.run(options.repeat or 10)
    for violation in found.violations:
        print(f"✗ {violation}")
    counts = ", ".join(f"{count} {what}" for what, count in sorted(found.counts.items()))
    print(f"{len(found.violations)} violations: {counts}")
    return 1 if found.violations or not found.counts["uses"] else 0


def description_of(server: Server) -> Json:
    """What the server says of itself: its name, version and models. Chooses the model too."""
    listed = server.call("GET", "/models")
    body = listed.json
    models = body.get("data") if isinstance(body, dict) else None
    first = models[0] if isinstance(models, list) and models else {}
    server.model = server.model or str(first.get("id") or "gpt-oss")
    about: Json = {"header": listed.headers.get("server", ""), "models": models}
    about |= {name: text for name, text in listed.headers.items() if "version" in name}
    root = server.copy()
    root.base = server.base.removesuffix("/v1")
    for path in ("/version", "/openapi.json", "/health", "/props", "/get_server_info"):
        reply = root.call("GET", path)
        found = reply.json
        if reply.status == 200 and isinstance(found, dict):
            info = found.get("info", {}) if "openapi" in found else found
            about[path[1:]] = {name: info[name] for name in sorted(info)[:40]}
    return {name: value for name, value in about.items() if value}


class Bar:
    """A line of progress on a terminal's standard error."""

    WIDTH = 24

    def __init__(self, count: int) -> None:
        self._count = count
        self._shown = sys.stderr.isatty()

    def show(self, number: int, check: Check) -> None:
        done = "#" * (self.WIDTH * number // self._count)
        self._write(f"[{done:<{self.WIDTH}}] {number + 1}/{self._count} {check.name}")

    def end(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()


def _wrong(why: str) -> int:
    print(f"conformance: {why}", file=sys.stderr)
    return 2
