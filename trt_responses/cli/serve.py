"""`trt-responses serve`. Parses, prepares a demo that is not there yet, and serves."""

from __future__ import annotations

import argparse
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.backends.installed import needed
from trt_responses.cli.commands import add_settings
from trt_responses.cli.setting_list import settings_help, settings_in_force
from trt_responses.prepare.shelf import shelf
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.cli.commands import Commands
    from trt_responses.engine import Engine

    EngineOf = Callable[[shelf.Selection, Settings], Engine]

OPTIONS = ("engine", "host", "port", "model", "engines_dir", "frontends")
"""Settings that are options of `serve` too."""


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `serve` and its options."""
    serve = commands.add_parser(
        name,
        help=text,
        description="Serve a prepared engine over HTTP. Without --engine: the only one there is, "
        "or the demo, which is prepared first if no engine is there.",
        epilog=settings_help().replace("%", "%%"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(serve, *OPTIONS)
    shown = "print every setting with where it came from, and end"
    serve.add_argument("--print-settings", action="store_true", help=shown)
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in OPTIONS}
    settings = Settings.from_environment(**given)
    if options.print_settings:
        print(settings_in_force(settings, given))
        return 0
    settings.check_exposure()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is half made is taken back
    _stop_with_the_terminal()
    server = server_for(settings)
    if settings.engine_elsewhere() is None:
        _prepare_what_is_served(settings)
    return server(settings)


def server_for(settings: Settings) -> Callable[[Settings], int]:
    """What serves: this process, or several front ends."""
    if settings.frontends > 1:
        with needed("What runs several front ends"):
            from trt_responses.fleet.fleet import serve_fleet
        return serve_fleet
    from trt_responses.app import create_app
    from trt_responses.serve.server import serve

    return partial(serve, app_of=partial(create_app, engine_of=_engine_of(settings)))


def _engine_of(settings: Settings) -> EngineOf:
    """Makes the engine, in a process of its own where the settings say so and that is installed."""
    must = settings.engine_process == "always"
    apart = "What runs an engine in a process of its own"
    with needed(apart) if must else suppress(ModuleNotFoundError):
        from trt_responses.fleet.engine_process import engine_of

        return engine_of
    from trt_responses.backends.engines import engine_of as here

    return here


def _stop_with_the_terminal() -> None:
    """A terminal that closes stops the server as Ctrl-C does; under `nohup` it serves on."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGINT))


def _prepare_what_is_served(settings: Settings) -> None:
    """Prepare a demo that is to be served and is not there yet."""
    if settings.engine == shelf.DEMO_ONNX:
        from trt_responses.cli.engines.graph import prepare_demo_onnx

        prepare_demo_onnx(settings)
    elif _serves_demo(settings):
        from trt_responses.cli.demo import prepare_demo

        prepare_demo(settings)


def _serves_demo(settings: Settings) -> bool:
    """Whether the demo is asked for, or is the only engine there is."""
    if settings.engine is not None:
        return settings.engine == shelf.DEMO
    return {entry.name for entry in shelf.entries(settings.engines_dir)} <= {shelf.DEMO}
