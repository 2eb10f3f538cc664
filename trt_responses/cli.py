"""The command line: `trt-responses serve | engine`. Parses, calls, prints; decides nothing."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from trt_responses import __version__
from trt_responses.errors import StartupError
from trt_responses.prepare import card as cards
from trt_responses.prepare import demo, shelf
from trt_responses.prepare.gguf import WEIGHT_TYPES
from trt_responses.prepare.progress import megabytes, shown_on
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.prepare.gguf import WeightType

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status. What goes wrong is told in one sentence."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except StartupError as error:
        print(f"trt-responses: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trt-responses",
        description="An OpenAI Responses API server for gpt-oss style models.",
        epilog="Every setting can also be given as TRT_RESPONSES_<NAME> in the environment.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    engine = commands.add_parser("engine", help="prepare, list, show, verify and remove engines")
    _add_engine(engine.add_subparsers(required=True, metavar="COMMAND"))
    return parser


# --- serve ------------------------------------------------------------------------------------


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="serve a prepared engine",
        description="Serve a prepared engine over HTTP. Without --engine: the only one there is, "
        "or the demo, which is prepared first if no engine is there.",
    )
    for name in ("engine", "host", "port", "model", "engines-dir"):
        field = Settings.model_fields[name.replace("-", "_")]
        serve.add_argument(f"--{name}", metavar=name.upper(), help=field.description)
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    from trt_responses.serve import serve  # only this command pays for loading the server

    settings = Settings.from_environment(
        engine=options.engine,
        host=options.host,
        port=options.port,
        model=options.model,
        engines_dir=options.engines_dir,
    )
    settings.check_exposure()
    if settings.engine in (None, demo.DEMO) and not _prepared(settings):
        _build(settings, name=demo.DEMO, source=None, weight_type="q8_0")
    return serve(settings)


def _prepared(settings: Settings) -> bool:
    found = shelf.entries(settings.engines_dir)
    wanted = settings.engine
    return any(e.status != "unfinished" and wanted in (None, e.name) for e in found)


# --- engine -----------------------------------------------------------------------------------


def _add_engine(commands: Commands) -> None:
    build = _command(commands, "build", "prepare an engine from a checkpoint", _engine_build)
    build.add_argument("--checkpoint", type=Path, help="checkpoint directory; without: the demo's")
    build.add_argument("--name", help="name of the engine; without: that of the directory")
    build.add_argument("--type", choices=WEIGHT_TYPES, help="type of the weights that stay floats")
    build.add_argument("--wait", action="store_true", help="wait for another build of this engine")
    _json(_command(commands, "list", "list the prepared engines", _engine_list))
    show = _json(_command(commands, "show", "show an engine's card", _engine_show))
    show.add_argument("name")
    verify = _json(_command(commands, "verify", "compare cards with files", _engine_verify))
    verify.add_argument("name", nargs="?")
    verify.add_argument("--deep", action="store_true", help="digest every file anew")
    remove = _command(commands, "remove", "remove an engine, or one version of it", _engine_remove)
    remove.add_argument("name", help="NAME or NAME/VERSION")


def _command(
    commands: Commands, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--engines-dir", help=Settings.model_fields["engines_dir"].description)
    parser.set_defaults(run=run)
    return parser


def _json(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    return Settings.from_environment(engines_dir=options.engines_dir)


def _engine_build(options: argparse.Namespace) -> int:
    source = options.checkpoint
    name = options.name or (source.resolve().name.lower() if source else demo.DEMO)
    weight_type: WeightType = options.type or ("bf16" if source else "q8_0")
    _build(_settings(options), name=name, source=source, weight_type=weight_type, wait=options.wait)
    return 0


def _build(
    settings: Settings, *, name: str, source: Path | None, weight_type: WeightType, wait: bool = True
) -> None:
    from trt_responses.app import engine_over
    from trt_responses.harmony.vocabulary import load
    from trt_responses.prepare.build import Means, build

    with shown_on(sys.stderr) as progress:
        checkpoint = source or demo.demo_checkpoint(settings.engines_dir)
        means = Means(load(), progress, lambda path: engine_over(path, settings))
        built = build(
            checkpoint, settings.engines_dir, name, means, weight_type=weight_type, wait=wait
        )
    done = f"prepared in {sum(built.card.seconds.values()):.1f} s" if built.phases else "was there"
    print(f"engine {name}/{built.card.version}: {built.card.status}, {done}", file=sys.stderr)


def _engine_list(options: argparse.Namespace) -> int:
    found = shelf.entries(_settings(options).engines_dir)
    if options.json:
        print(json.dumps([e._asdict() for e in found], indent=2))
        return 0
    table = Table("name", "version", "kind", "weights", "status", "size", "built")
    for e in found:
        size = megabytes(e.size_bytes)
        table.add_row(e.name, e.version, e.kind, e.weight_type, e.status, size, e.built_at)
    Console().print(table if found else "No engine is prepared: run `make engine`.")
    return 0


def _engine_show(options: argparse.Namespace) -> int:
    card = cards.read_card(shelf.find(_settings(options).engines_dir, options.name))
    if options.json:
        print(json.dumps(asdict(card), indent=2))
        return 0
    table = Table("field", "value", title=f"{card.name}/{card.version}")
    for key, value in asdict(card).items():
        shown = value if isinstance(value, str) else json.dumps(value, indent=1)
        table.add_row(key, shown)
    Console().print(table)
    return 0


def _engine_verify(options: argparse.Namespace) -> int:
    verdicts = shelf.verify(
        _settings(options).engines_dir, options.name, cards.this_machine(), deep=options.deep
    )
    if options.json:
        rows = [{**v.entry._asdict(), "difference": v.difference} for v in verdicts]
        print(json.dumps(rows, indent=2))
    else:
        for v in verdicts:
            print(f"{v.entry.name}/{v.entry.version}: {v.difference or 'as its card says'}")
    return 1 if any(v.difference for v in verdicts) else 0


def _engine_remove(options: argparse.Namespace) -> int:
    for entry in shelf.remove(_settings(options).engines_dir, options.name):
        print(f"removed {entry.name}/{entry.version}, {megabytes(entry.size_bytes)}")
    return 0
