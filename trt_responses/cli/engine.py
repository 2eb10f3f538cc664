"""`trt-responses engine build | list | show | verify | remove`. Parses, calls, prints.

Versions, adapters and compiled graphs have commands of their own in `cli/engines/`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from trt_responses.backends.settings import EngineSettings
from trt_responses.cli.building import (
    kind_for,
    prepare_demo,
    prepare_llamacpp,
    prepare_template,
    prepare_trtllm,
    template_source,
    to_stderr,
)
from trt_responses.cli.commands import (
    ENGINES_DIR,
    JSON,
    VERSION_OF,
    add_command,
    add_group,
    engines_dir_of,
    number_from,
    settings_of,
)
from trt_responses.cli.engines.adapters import add_adapters
from trt_responses.cli.engines.graph import KINDS, add_tensorrt, prepare_graph
from trt_responses.cli.engines.versions import add_versions
from trt_responses.prepare.checkpoint.open import checkpoint_name
from trt_responses.prepare.faults import WrongInput
from trt_responses.prepare.hub import checkpoint_at
from trt_responses.prepare.llamacpp.gguf import WEIGHT_TYPES
from trt_responses.prepare.llamacpp.move import undo
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.tensorrt.targets import FORMATS
from trt_responses.prepare.trtllm.model import is_template_directory
from trt_responses.prepare.trtllm.plan import EXIT_STATUS, TrtLlmOptions
from trt_responses.prepare.trtllm.profiles import CLASSES, PROFILES

if TYPE_CHECKING:
    from trt_responses.cli.commands import Commands
    from trt_responses.prepare.llamacpp.template_gguf import TemplateSource
    from trt_responses.settings import Settings

TAKES_NO_TEMPLATE = {
    "trtllm": "this kind reads Hugging Face directories only",
    **dict.fromkeys(KINDS, "this kind serves gpt-oss only"),
}
"""Why kinds of engine refuse a model that the embedded engine serves."""


def add(parents: Commands, name: str, about: str) -> None:
    """Add the command `engine` and its subcommands."""
    commands = add_group(parents, name, about, example="engine list")
    text = "prepare an engine from a checkpoint"
    example = "engine build --checkpoint openai/gpt-oss-20b --name gpt-oss-20b"
    build = add_command(commands, "build", text, _engine_build, ENGINES_DIR, example=example)
    build.add_argument(
        "--checkpoint",
        metavar="PATH|OWNER/MODEL",
        help="Directory, GGUF file, or model of the Hugging Face hub, which is downloaded if its "
        "cache does not have it (default: the demo's checkpoint)",
    )
    build.add_argument(
        "--name", metavar="NAME", help="Name of the engine (default: the checkpoint's name)"
    )
    build.add_argument(
        "--type",
        choices=dict.fromkeys((*WEIGHT_TYPES, *FORMATS)),
        help="Type of weights. llamacpp: f32, bf16 or q8_0 for those that are not quantised; "
        "tensorrt: mxfp4, int8, bf16, f16 or f32 for the experts; onnx: f32 or f16 (default: "
        "depends on kind and checkpoint)",
    )
    build.add_argument(
        "--family",
        metavar="FAMILY",
        help="Family of a model other than gpt-oss: qwen3, qwen3-xml, glm, deepseek-v3.1, "
        "deepseek-r1, or text (default: by its template and vocabulary)",
    )
    build.add_argument(
        "--wait", action="store_true", help="Wait for another build of the same engine"
    )
    build.add_argument(
        "--kind",
        choices=("llamacpp", "trtllm", *KINDS),
        help="Kind of engine (default: trtllm on a machine with TensorRT-LLM and a GPU, else "
        "llamacpp)",
    )
    _add_trtllm(build.add_argument_group("TensorRT-LLM"))
    add_tensorrt(build)
    listed = (ENGINES_DIR, JSON)
    text = "list the prepared engines"
    add_command(commands, "list", text, _engine_list, *listed, example="engine list --json")
    text = "show an engine's card"
    show = add_command(commands, "show", text, _engine_show, *listed, example="engine show demo")
    show.add_argument("name", metavar="NAME", help=VERSION_OF)
    text, example = "compare engines with their cards", "engine verify demo --deep"
    verify = add_command(commands, "verify", text, _engine_verify, *listed, example=example)
    verify.add_argument("name", metavar="NAME", nargs="?", help=f"{VERSION_OF} (default: all)")
    verify.add_argument("--deep", action="store_true", help="New digests of all files")
    text, example = "remove an engine, or one version of it", "engine remove demo@1"
    remove = add_command(commands, "remove", text, _engine_remove, ENGINES_DIR, example=example)
    remove.add_argument("name", metavar="NAME", help=VERSION_OF)
    add_versions(commands)
    add_adapters(commands)


def _add_trtllm(group: argparse._ArgumentGroup) -> None:
    count = number_from(1)
    group.add_argument(
        "--profile",
        choices=PROFILES,
        default="balanced",
        help="Goal of the tuning (default: balanced)",
    )
    group.add_argument(
        "--gpus", type=count, metavar="N", help="GPUs on all nodes (default: all visible ones)"
    )
    group.add_argument(
        "--nodes",
        type=count,
        default=1,
        metavar="N",
        help="Machines like this one (default: 1)",
    )
    group.add_argument(
        "--gpu-class",
        choices=[found.name for found in CLASSES],
        help="Class of the GPUs (default: this machine's)",
    )
    group.add_argument(
        "--context",
        type=count,
        metavar="N",
        help="Tokens of context (default: the model's own context)",
    )
    group.add_argument(
        "--draft",
        type=Path,
        metavar="DIR",
        help="Eagle3 draft for gpt-oss-120b, with profile latency on B200 or GB200 (default: none)",
    )
    group.add_argument(
        "--set",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="Argument of TensorRT-LLM's LLM in place of the profile's; repeatable",
    )
    group.add_argument(
        "--allow-known-harm",
        action="store_true",
        help="Use of a TensorRT-LLM release with known wrong answers",
    )
    group.add_argument("--rewarm", action="store_true", help="New caches instead of the kept ones")


def _pair(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=JSON") from None


def _engine_build(options: argparse.Namespace) -> int:
    settings = settings_of(options, "engines_dir")
    if options.name is not None:
        shelf.checked_name(options.name)
    if options.checkpoint is not None:
        options.checkpoint = checkpoint_at(options.checkpoint, to_stderr)
        undo(options.checkpoint)
        if options.kind == "trtllm" and is_template_directory(options.checkpoint):
            name = options.name or checkpoint_name(options.checkpoint).lower()
            return _prepare_trtllm(settings, name, options)
        if (model := template_source(options.checkpoint)) is not None:
            return _prepare_template(settings, model, options)
    if options.family is not None:
        raise WrongInput(
            f"--family {options.family}: gpt-oss models have no family, they speak Harmony; leave "
            "out --family."
        )
    if options.kind in KINDS:
        return prepare_graph(settings, options)
    if options.checkpoint is None:
        if options.kind == "trtllm":
            raise WrongInput("--kind trtllm needs --checkpoint: the demo is for llamacpp.")
        prepare_demo(settings)
        return 0
    name = options.name or checkpoint_name(options.checkpoint).lower()
    if (options.kind or kind_for(settings, options.checkpoint)) == "trtllm":
        return _prepare_trtllm(settings, name, options)
    prepare_llamacpp(
        settings,
        name=name,
        source=options.checkpoint,
        weight_type=options.type or "bf16",
        wait=options.wait,
    )
    return 0


def _prepare_template(
    settings: Settings, source: TemplateSource, options: argparse.Namespace
) -> int:
    """Prepare a model with a chat template for the embedded engine."""
    if (why := TAKES_NO_TEMPLATE.get(options.kind)) is not None:
        raise WrongInput(
            f"--kind {options.kind}: {why}, and {source.path.name} is a model with a chat template "
            f"({source.model}); use --kind llamacpp, or leave out --kind."
        )
    if options.type is not None:
        raise WrongInput(
            f"--type {options.type}: {source.path.name} is a model with a chat template, whose "
            "weights stay as they are stored; leave out --type."
        )
    name = options.name or source.name.lower()
    prepare_template(settings, source, name, family=options.family, wait=options.wait)
    return 0


def _prepare_trtllm(settings: Settings, name: str, options: argparse.Namespace) -> int:
    """Prepare an engine for TensorRT-LLM. Returns status 0 when it was verified, 1 when it failed,
    and 3 when this machine could only plan it."""
    chosen = TrtLlmOptions(
        profile=options.profile,
        gpus=options.gpus,
        nodes=options.nodes,
        gpu_class=options.gpu_class,
        context_tokens=options.context,
        draft=options.draft,
        overrides=dict(options.set),
        rewarm=options.rewarm,
        family=options.family,
        allow_known_harm=options.allow_known_harm,
    )
    built = prepare_trtllm(settings, options.checkpoint, name, chosen, wait=options.wait)
    return EXIT_STATUS[built.card.status]


def _engine_list(options: argparse.Namespace) -> int:
    engines_dir = engines_dir_of(options)
    found = shelf.entries(engines_dir)
    if options.json:
        print(json.dumps([e._asdict() for e in found], indent=2))
        return 0
    if not found:
        print(f"No engines in {engines_dir}: run `make engine`.")
        return 0
    table = Table("engine", "served", "kind", "weights", "status", "size", "built", box=None)
    table.padding = (0, 1, 0, 0)
    table.columns[0].no_wrap, table.columns[0].overflow = True, "fold"  # people copy it
    for column in table.columns[1:]:
        column.overflow = "fold"
    for e in found:
        size, mark = megabytes(e.size_bytes), "promoted" if e.promoted else ""
        built = e.built_at[:10]
        table.add_row(e.label, mark, e.kind, e.weight_type, e.status, size, built)
    Console().print(table)
    return 0


def _engine_show(options: argparse.Namespace) -> int:
    card = cards.read_card(shelf.find(engines_dir_of(options), options.name))
    if options.json:
        print(json.dumps(asdict(card), indent=2))
        return 0
    table = Table("field", "value", title=card.label)
    for key, value in asdict(card).items():
        shown = value if isinstance(value, str) else json.dumps(value, indent=1)
        table.add_row(key, shown)
    Console().print(table)
    return 0


def _engine_verify(options: argparse.Namespace) -> int:
    settings = settings_of(options, "engines_dir")
    machine = this_machine(EngineSettings.of(settings).trtllm_python)
    verdicts = shelf.verify(settings.engines_dir, options.name, machine, deep=options.deep)
    if options.json:
        rows = [{**v.entry._asdict(), "difference": v.difference} for v in verdicts]
        print(json.dumps(rows, indent=2))
    else:
        for v in verdicts:
            print(f"{v.entry.label}: {v.difference or 'as its card says'}")
    return 1 if any(v.difference for v in verdicts) else 0


def _engine_remove(options: argparse.Namespace) -> int:
    for entry in shelf.remove(engines_dir_of(options), options.name):
        print(f"removed {entry.label}, {megabytes(entry.size_bytes)}")
    return 0
