"""`trt-responses serve`. Parses, prepares the demo if it is needed, and serves."""

from __future__ import annotations

import gc
import os
import re
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.backends.installed import needed
from trt_responses.backends.keys import check_exposure
from trt_responses.backends.settings import EngineSettings
from trt_responses.cli.commands import add_settings, help_texts, settings_of
from trt_responses.cli.setting_list import settings_help, settings_in_force
from trt_responses.errors import UsageError
from trt_responses.prepare.memory import memory
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import CARD

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from fastapi import FastAPI

    from trt_responses.cli.commands import Commands
    from trt_responses.engine import Engine
    from trt_responses.settings import Settings

    EngineOf = Callable[[shelf.Selection, Settings], Engine]

YOUNG_OBJECTS = 50_000
OPTIONS = ("engine", "host", "port", "model", "engines_dir", "frontends")
"""Settings that are options of `serve` too."""
NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*=")
"""The beginning of an engine that has a name."""
SEVERAL = "Serving several engines"


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `serve` and its options."""
    serve = commands.add_parser(
        name,
        help=text,
        **help_texts(
            "serve a model over HTTP, prepared first if it is not yet; without MODEL the only "
            "prepared engine, or the demo",
            "serve Qwen/Qwen3-0.6B-GGUF --port 8080",
            settings_help(),
        ),
    )
    text = (
        "Prepared engine (NAME, NAME@N), directory, GGUF file, or model of the Hugging Face hub "
        "(OWNER/MODEL, OWNER/MODEL:FILE)"
    )
    serve.add_argument("source", nargs="?", metavar="MODEL", help=text)
    text = "Turn a GGUF file into the engine's file instead of keeping both"
    serve.add_argument("--move", action="store_true", help=text)
    text = (
        "Engine to serve, as MODEL; repeated as NAME=MODEL: several models by name, or several "
        "engines of one"
    )
    serve.add_argument("--engine", metavar="MODEL", action="append", help=text)
    add_settings(serve, *OPTIONS[1:])
    script = (
        "Script to play in place of a model: a YAML or JSONL file, or `auto` (testing-agents.md)"
    )
    serve.add_argument("--script", metavar="FILE", help=script)
    record = "Server to pass requests to and keep the replies of"
    serve.add_argument("--record", metavar="URL", help=record)
    replay = "Cassette to answer from"
    serve.add_argument("--replay", metavar="FILE", help=replay)
    cassette = "File that --record adds to (default: cassette.jsonl)"
    serve.add_argument("--cassette", metavar="FILE", default="cassette.jsonl", help=cassette)
    pace = "Replay at the recorded pace (default: at once)"
    serve.add_argument("--recorded-pace", action="store_true", help=pace)
    faults = "Faults on demand by the header X-Fault, with --script"
    serve.add_argument("--fault-header", action="store_true", help=faults)
    shown = "List of all settings with the source of each, without serving"
    serve.add_argument("--print-settings", action="store_true", help=shown)
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    _open_streams()
    gc.set_threshold(YOUNG_OBJECTS)  # what a start loads stays, and collecting it costs 0.15 s
    _name_one_engine(options)
    given = {name: getattr(options, name) for name in OPTIONS}
    settings = settings_of(options, *OPTIONS)
    if any((options.script, options.record, options.replay)):
        settings = _for_script(settings)
    if options.print_settings:
        print(settings_in_force(settings, given))
        return 0
    check_exposure(settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes a half prepared engine
    _stop_with_the_terminal()
    server = server_for(settings)
    settings = _prepared(settings, "MODEL" if options.source else "", move=options.move)
    return server(settings)


def _name_one_engine(options: argparse.Namespace) -> None:
    """Have `--engine` name what is served, whichever way it was given."""
    ways = {"MODEL": options.source, "--engine": options.engine, "--script": options.script}
    ways |= {"--record": options.record, "--replay": options.replay}
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both name what to serve; give one of them.")
    if options.fault_header and options.script is None:
        raise UsageError("--fault-header is for servers that play a --script.")
    if options.script is not None:
        options.engine = f"script://{options.script}{'#faults' * options.fault_header}"
    elif options.record is not None:
        options.engine = f"record://{options.cassette}#{options.record}"
    elif options.replay is not None:
        options.engine = f"replay://{options.replay}{'#paced' * options.recorded_pace}"
    elif options.source is not None:
        options.engine = options.source
    elif options.engine is not None:
        options.engine = _listed(options.engine)


def _listed(engines: list[str]) -> str:
    """One engine as it is, several, or one with a name, as a setting lists them."""
    if len(engines) == 1 and not NAMED.match(engines[0]):
        return engines[0]
    with needed(SEVERAL):
        from trt_responses.features.several.spec import entries_of, spelled
    try:
        return spelled(entry for text in engines for entry in entries_of(text))
    except UsageError as error:
        raise UsageError(f"--engine: {error}") from None


def _for_script(settings: Settings) -> Settings:
    """Every model name is accepted and nothing is stored, unless the settings say otherwise."""
    own = {"store": settings.store or "memory://", "model": settings.model or ("script", "*")}
    return settings.model_copy(update=own)


def _prepared(settings: Settings, shown: str, *, move: bool) -> Settings:
    """The settings with the engine's name, or each one's of several, once it is prepared."""
    elsewhere = elsewhere_in(settings)
    if elsewhere is None:
        settings = _with_model(settings, shown, move=move)
        _prepare_demos(settings)
    elif elsewhere.kind == "several":
        with needed(SEVERAL):
            from trt_responses.features.several.spec import entries_of, spelled
        try:
            entries = entries_of(elsewhere.place)
        except UsageError as error:
            raise UsageError(f"{shown or settings.option('engine')}: {error}") from None
        places = {
            place: _prepared(settings.model_copy(update={"engine": place}), shown, move=move)
            for _, place in entries
        }
        several = spelled((entry.model, places[entry.place].engine or "") for entry in entries)
        return settings.model_copy(update={"engine": several})
    return settings


def _with_model(settings: Settings, shown: str, *, move: bool) -> Settings:
    """The settings with the engine's name in place of a path or a model of the hub, which is
    prepared first. Errors name the setting as `shown`, or as the user set it."""
    if settings.engine is None:
        return settings
    name = settings.engine.partition("@")[0]
    home = settings.engines_dir / name
    if shelf.NAME.fullmatch(name) and any(home.glob(f"*/{CARD}")):  # a version is complete
        return settings
    from trt_responses.cli.engines.model import engine_for
    from trt_responses.serve.server import bound

    if os.environ.get("LISTEN_PID") != str(os.getpid()):  # else systemd holds the address
        bound(settings).close()  # an address in use shows before a long preparation
    try:
        engine = engine_for(settings.engine, settings, move=move)
    except UsageError as error:
        raise UsageError(f"{shown or settings.option('engine')}: {error}") from None
    return settings.model_copy(update={"engine": engine})


def server_for(settings: Settings) -> Callable[[Settings], int]:
    """The function that serves: in this process, or with several front ends."""
    count = getattr(settings, "frontends", 1)  # a setting of the fleet's folder
    if str(count) == "auto":
        with needed(f"{settings.option('frontends')} auto: the fleet"):
            from trt_responses.fleet.choice import with_front_ends

        def serve_counted(settings: Settings) -> int:
            counted = with_front_ends(settings, memory().free_bytes)
            return server_for(counted)(counted)

        return serve_counted
    if count > 1:
        with needed(f"{settings.option('frontends')} {count}: the fleet"):
            from trt_responses.fleet.fleet import serve_fleet
        return serve_fleet
    from trt_responses.app import create_app

    return partial(_serve_here, app_of=partial(create_app, engine_of=_engine_of(settings)))


def _serve_here(settings: Settings, app_of: Callable[[Settings], FastAPI]) -> int:
    from trt_responses.logs import log_to_stderr
    from trt_responses.serve.server import serve
    from trt_responses.systemd import Notifier, handed_socket

    log_to_stderr(settings)
    return serve(settings, app_of, handed_socket(), Notifier().tell)


def _engine_of(settings: Settings) -> EngineOf:
    """The function that makes the engine: in a process of its own if the settings say so and the
    fleet is installed."""
    must = EngineSettings.of(settings).engine_process == "always"
    fleet = f"{settings.option('engine_process')} always: the fleet"
    with needed(fleet) if must else suppress(ModuleNotFoundError):
        from trt_responses.fleet.engine_process import engine_of

        return engine_of
    from trt_responses.backends.engines import engine_of as here

    return here


def _open_streams() -> None:
    """Open standard streams that are closed: a socket in their place ends the event loop with an
    abort, and would get what a library writes."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def _stop_with_the_terminal() -> None:
    """Stop the server when its terminal closes, as Ctrl-C does, except under `nohup`."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGINT))


def _prepare_demos(settings: Settings) -> None:
    """Prepare the demo that will be served, if it is not prepared yet."""
    if settings.engine == shelf.DEMO_ONNX:
        from trt_responses.cli.engines.graph import prepare_demo_onnx

        prepare_demo_onnx(settings)
    elif _serves_demo(settings):
        from trt_responses.cli.building import prepare_demo

        prepare_demo(settings)


def _serves_demo(settings: Settings) -> bool:
    """Whether the demo will be served: by name, or because no other engine is prepared."""
    if settings.engine is not None:
        return settings.engine == shelf.DEMO
    return {entry.name for entry in shelf.entries(settings.engines_dir)} <= {shelf.DEMO}
