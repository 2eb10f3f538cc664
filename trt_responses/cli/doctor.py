"""`trt-responses doctor`. Parses, calls, prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses import doctor
from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.cli.commands import add_command, add_settings, settings_of
from trt_responses.errors import StartupError
from trt_responses.prepare.shelf import shelf

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands
    from trt_responses.doctor.check import Check
    from trt_responses.settings import Settings

OPTIONS = ("engine", "host", "port", "engines_dir")


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `doctor` and its options."""
    parser = add_command(commands, name, text, _doctor, example="doctor --engine demo --deep")
    add_settings(parser, *OPTIONS)
    parser.add_argument("--json", action="store_true", help="JSON instead of lines")
    deep = "Comparison of the embedded engine with NumPy on the demo too; takes some seconds"
    parser.add_argument("--deep", action="store_true", help=deep)


def _doctor(options: argparse.Namespace) -> int:
    settings = settings_of(options, *OPTIONS)
    if options.engine is not None and elsewhere_in(settings) is None:
        shelf.find(settings.engines_dir, options.engine)
    found = doctor.checks(settings) + ([_deep(settings)] if options.deep else [])
    print(doctor.as_json(found) if options.json else "\n".join(doctor.lines(found)))
    return doctor.exit_status(found)


def _deep(settings: Settings) -> Check:
    """Run the numeric check on the demo, after preparing it if needed."""
    from trt_responses.backends.dialects import vocabulary
    from trt_responses.backends.engines import llamacpp_over
    from trt_responses.cli.building import prepare_demo
    from trt_responses.doctor.check import Check
    from trt_responses.doctor.numeric import NAME, deep_check
    from trt_responses.prepare import demo
    from trt_responses.prepare.checkpoint.open import open_checkpoint
    from trt_responses.prepare.files import MODEL

    try:
        directory = prepare_demo(settings)
        checkpoint = open_checkpoint(demo.demo_checkpoint(settings.engines_dir))
        return deep_check(llamacpp_over(directory / MODEL, settings), checkpoint, vocabulary())
    except StartupError as error:
        return Check(NAME, "fault", "the demo cannot be prepared", str(error))
