"""The command line, `trt-responses COMMAND`. Parses, calls, prints.

Decides nothing; the engine commands are in `cli/engine.py`, those of keys in `cli/keys.py`.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

from trt_responses import __version__, doctor
from trt_responses.cli.chat import add_chat
from trt_responses.cli.commands import add_command, add_settings, settings_of
from trt_responses.cli.drain import add_drain
from trt_responses.cli.engine import add_engine, prepare_demo
from trt_responses.cli.explain import add_explain
from trt_responses.cli.export import add_export
from trt_responses.cli.graph import DEMO_ONNX, prepare_demo_onnx
from trt_responses.cli.keys import add_keys
from trt_responses.cli.setting_list import settings_help, settings_in_force
from trt_responses.doctor.check import Check
from trt_responses.doctor.numeric import NAME, deep_check
from trt_responses.errors import StartupError
from trt_responses.prepare import demo
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.shelf import shelf
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.cli.commands import Commands


SERVE_OPTIONS = ("engine", "host", "port", "model", "engines_dir", "frontends")
"""Settings that are options of `serve` too."""
DOCTOR_OPTIONS = ("engine", "host", "port", "engines_dir")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status. A fault is printed in one sentence."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except StartupError as error:
        print(f"trt-responses: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        sys.stdout = None
        return 141
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
    engine = commands.add_parser(
        "engine", help="prepare engines, and look after their versions and adapters"
    )
    add_engine(engine.add_subparsers(required=True, metavar="COMMAND"))
    keys = commands.add_parser("keys", help="make, list and revoke API keys")
    add_keys(keys.add_subparsers(required=True, metavar="COMMAND"))
    add_chat(commands)
    export = commands.add_parser("export", help="write a prepared engine for another server")
    add_export(export.add_subparsers(required=True, metavar="COMMAND"))
    add_explain(commands)
    add_drain(commands)
    _add_doctor(commands)
    return parser


# --- serve ------------------------------------------------------------------------------------


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="serve a prepared engine",
        description="Serve a prepared engine over HTTP. Without --engine: the only one there is, "
        "or the demo, which is prepared first if no engine is there.",
        epilog=settings_help().replace("%", "%%"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(serve, *SERVE_OPTIONS)
    text = "print every setting with where it came from, and end"
    serve.add_argument("--print-settings", action="store_true", help=text)
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    from trt_responses.app import create_app  # only this command pays for loading it
    from trt_responses.fleet.engine_process import engine_of
    from trt_responses.fleet.fleet import serve_fleet
    from trt_responses.serve.server import serve

    given = {name: getattr(options, name) for name in SERVE_OPTIONS}
    settings = Settings.from_environment(**given)
    if options.print_settings:
        print(settings_in_force(settings, given))
        return 0
    settings.check_exposure()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is half made is taken back
    _stop_with_the_terminal()
    if settings.engine_elsewhere() is None:
        _prepare_what_is_served(settings)
    if settings.frontends > 1:
        return serve_fleet(settings)
    return serve(settings, partial(create_app, engine_of=engine_of))


def _stop_with_the_terminal() -> None:
    """A terminal that closes stops the server as Ctrl-C does; under `nohup` it serves on."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGINT))


def _prepare_what_is_served(settings: Settings) -> None:
    """Prepare a demo that is to be served and is not there yet."""
    if settings.engine == DEMO_ONNX:
        prepare_demo_onnx(settings)
    elif _serves_demo(settings):
        prepare_demo(settings)


def _serves_demo(settings: Settings) -> bool:
    """Whether the demo is asked for, or is the only engine there is."""
    if settings.engine is not None:
        return settings.engine == shelf.DEMO
    return {entry.name for entry in shelf.entries(settings.engines_dir)} <= {shelf.DEMO}


# --- doctor -----------------------------------------------------------------------------------


def _add_doctor(commands: Commands) -> None:
    text = "say what this machine can run, and why not"
    doctor = add_command(commands, "doctor", text, _doctor)
    add_settings(doctor, *DOCTOR_OPTIONS)
    doctor.add_argument("--json", action="store_true", help="print JSON instead of lines")
    deep = "also compare the embedded engine with a forward in NumPy, on the demo; some seconds"
    doctor.add_argument("--deep", action="store_true", help=deep)


def _doctor(options: argparse.Namespace) -> int:
    settings = settings_of(options, *DOCTOR_OPTIONS)
    found = doctor.checks(settings) + ([_deep(settings)] if options.deep else [])
    print(doctor.as_json(found) if options.json else "\n".join(doctor.lines(found)))
    return doctor.exit_status(found)


def _deep(settings: Settings) -> Check:
    """Run the numeric check over the demo, which is prepared first where it is not there."""
    from trt_responses.backends.dialects import vocabulary  # loads every engine
    from trt_responses.backends.engines import llamacpp_over

    try:
        directory = prepare_demo(settings)
        checkpoint = open_checkpoint(demo.demo_checkpoint(settings.engines_dir))
        return deep_check(llamacpp_over(directory / MODEL, settings), checkpoint, vocabulary())
    except StartupError as error:
        return Check(NAME, "fault", "the demo cannot be prepared", str(error))
