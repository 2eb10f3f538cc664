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

from trt_responses.backends.installed import needed
from trt_responses.cli.building import build_tools, tell, to_stderr
from trt_responses.cli.commands import ENGINES_DIR, JSON, add_command, add_group, settings_of
from trt_responses.cli.demo import prepare_demo, prepare_llamacpp
from trt_responses.cli.engines.adapters import add_adapters
from trt_responses.cli.engines.graph import KINDS, add_tensorrt, prepare_graph
from trt_responses.cli.engines.versions import add_versions
from trt_responses.prepare.checkpoint.open import checkpoint_name
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import GGUF
from trt_responses.prepare.hardware import this_hardware
from trt_responses.prepare.hub import checkpoint_at
from trt_responses.prepare.llamacpp.gguf import WEIGHT_TYPES
from trt_responses.prepare.llamacpp.qwen3 import open_qwen3
from trt_responses.prepare.llamacpp.template_gguf import open_template_gguf
from trt_responses.prepare.llamacpp.template_gguf import prepare as prepare_template
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf import card as cards
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.tensorrt.targets import FORMATS
from trt_responses.prepare.trtllm.build import GpuHost
from trt_responses.prepare.trtllm.build import prepare as prepare_trtllm
from trt_responses.prepare.trtllm.model import is_template_directory
from trt_responses.prepare.trtllm.plan import EXIT_STATUS, TrtLlmOptions
from trt_responses.prepare.trtllm.preflight import IMAGE, gpu_class_of
from trt_responses.prepare.trtllm.profiles import CLASSES, PROFILES
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from trt_responses.cli.commands import Commands
    from trt_responses.prepare.llamacpp.template_gguf import TemplateSource
    from trt_responses.prepare.shelf.card import Kind
    from trt_responses.settings import Settings

TAKES_NO_TEMPLATE = {
    "trtllm": "a Hugging Face directory for the kind trtllm, which reads no such file",
    **{
        kind: f"one of gpt-oss for the kind {kind}, whose graph is that of gpt-oss"
        for kind in KINDS
    },
}
"""What kinds of engine expect that do not take what the embedded one takes."""


def add(parents: Commands, name: str, about: str) -> None:
    """Add the command `engine` and its subcommands."""
    commands = add_group(parents, name, about)
    text = "prepare an engine from a checkpoint"
    build = add_command(commands, "build", text, _engine_build, ENGINES_DIR)
    build.add_argument(
        "--checkpoint",
        help="a directory, a GGUF file, or the hub's name of a model, such as openai/gpt-oss-20b: "
        "found in its local cache, else fetched; without: the demo's",
    )
    build.add_argument("--name", help="name of the engine; without: that of the directory")
    build.add_argument(
        "--type",
        choices=dict.fromkeys((*WEIGHT_TYPES, *FORMATS)),
        help="llamacpp: of the weights that stay floats, f32, bf16 or q8_0; tensorrt: of the "
        "experts, mxfp4, int8, bf16, f16 or f32; onnx: f32 or f16; without: what fits",
    )
    build.add_argument(
        "--family",
        help="of a model that does not speak Harmony: qwen3, qwen3-xml, glm, deepseek-v3.1, "
        "deepseek-r1, or text; without: found by its template and its vocabulary",
    )
    build.add_argument("--wait", action="store_true", help="wait for another build of this engine")
    build.add_argument(
        "--kind",
        choices=("llamacpp", "trtllm", *KINDS),
        help="what is to serve it; without: TensorRT-LLM where it and a GPU are, else llama.cpp",
    )
    _add_trtllm(build.add_argument_group("TensorRT-LLM"))
    add_tensorrt(build)
    listed = (ENGINES_DIR, JSON)
    add_command(commands, "list", "list the prepared engines", _engine_list, *listed)
    show = add_command(commands, "show", "show an engine's card", _engine_show, *listed)
    show.add_argument("name", help="NAME, or NAME@N for one version")
    verify = add_command(commands, "verify", "compare cards with files", _engine_verify, *listed)
    verify.add_argument("name", nargs="?", help="NAME, or NAME@N for one version")
    verify.add_argument("--deep", action="store_true", help="digest every file anew")
    text = "remove an engine, or one version of it"
    remove = add_command(commands, "remove", text, _engine_remove, ENGINES_DIR)
    remove.add_argument("name", help="NAME, or NAME@N for one version")
    add_versions(commands)
    add_adapters(commands)


def _add_trtllm(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--profile", choices=PROFILES, default="balanced")
    group.add_argument("--gpus", type=int, help="on all nodes; without: all that are visible")
    group.add_argument("--nodes", type=int, default=1, help="machines like this one")
    group.add_argument("--gpu-class", choices=[found.name for found in CLASSES])
    group.add_argument("--context", type=int, help="tokens; without: the model's own context")
    group.add_argument(
        "--draft",
        type=Path,
        metavar="DIR",
        help="an Eagle3 draft for gpt-oss-120b; profile latency, B200 and GB200 alone",
    )
    group.add_argument(
        "--set",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="an argument of the LLM, in place of the profile's",
    )
    group.add_argument(
        "--allow-known-harm",
        action="store_true",
        help="use a release of TensorRT-LLM that is known to answer wrongly",
    )
    group.add_argument("--rewarm", action="store_true", help="make the caches anew")


def _pair(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=JSON") from None


def _settings(options: argparse.Namespace) -> Settings:
    return settings_of(options, "engines_dir")


def _engine_build(options: argparse.Namespace) -> int:
    settings = _settings(options)
    if options.name is not None:
        shelf.checked_name(options.name)
    if options.checkpoint is not None:
        options.checkpoint = checkpoint_at(options.checkpoint, to_stderr)
        if options.kind == "trtllm" and is_template_directory(options.checkpoint):
            name = options.name or checkpoint_name(options.checkpoint).lower()
            return _prepare_trtllm(settings, name, options)
        if (model := _template_source(options.checkpoint)) is not None:
            return _prepare_template(settings, model, options)
    if options.family is not None:
        raise PrepareError(
            f"family: found {options.family!r} for a model of gpt-oss, expected none: it speaks "
            "Harmony."
        )
    if options.kind in KINDS:
        return prepare_graph(settings, options)
    if options.checkpoint is None:
        prepare_demo(settings)
        return 0
    name = options.name or checkpoint_name(options.checkpoint).lower()
    kind = options.kind or (
        "llamacpp" if options.checkpoint.suffix.lower() == GGUF else _kind_for(settings)
    )
    if kind == "trtllm":
        return _prepare_trtllm(settings, name, options)
    prepare_llamacpp(
        settings,
        name=name,
        source=options.checkpoint,
        weight_type=options.type or "bf16",
        wait=options.wait,
    )
    return 0


def _template_source(path: Path) -> TemplateSource | None:
    """A model with a chat template at this path; None for a gpt-oss."""
    is_file = path.suffix.lower() == GGUF
    return open_template_gguf(path) if is_file else open_qwen3(path)


def _prepare_template(
    settings: Settings, source: TemplateSource, options: argparse.Namespace
) -> int:
    """Prepare a model with a chat template for the embedded engine."""
    if (expected := TAKES_NO_TEMPLATE.get(options.kind)) is not None:
        raise PrepareError(
            f"{source.path.name}: found a model with a chat template ({source.model}), expected "
            f"{expected}; say `--kind llamacpp`, or leave it out."
        )
    if options.type is not None:
        raise PrepareError(
            f"type: found {options.type} for {source.path.name}, a model with a chat template, "
            "expected none: its weights stay as they are stored."
        )
    name = options.name or source.name.lower()
    with build_tools(settings) as tools:
        built = prepare_template(
            source, settings.engines_dir, name, tools, family=options.family, wait=options.wait
        )
    tell(built)
    return 0


def _kind_for(settings: Settings) -> Kind:
    """The kind of engine for this machine: TensorRT-LLM on a GPU host, else the embedded one.
    Raises a `PrepareError` on a GPU host without the package, where the CPU would take hours."""
    hardware = this_hardware(settings.engines_dir, settings.trtllm_python)
    if gpu_class_of(hardware) is None:
        return "llamacpp"
    if hardware.package is None:
        raise PrepareError(
            f"This machine has a GPU that TensorRT-LLM serves ({hardware.gpus[0].name}), and "
            f"TensorRT-LLM was not found: run in the container {IMAGE}, or name the interpreter "
            f"that has it in {PREFIX}TRTLLM_PYTHON. For an engine on the CPU say `--kind llamacpp` "
            "(`make engine KIND=llamacpp`)."
        )
    return "trtllm"


def _prepare_trtllm(settings: Settings, name: str, options: argparse.Namespace) -> int:
    """Prepare an engine for TensorRT-LLM. Returns status 0 when it was verified, 1 when it cannot
    be, and 3 when this machine could only plan it."""
    with needed("What runs an engine in a process of its own"):
        from trt_responses.fleet.engine_process import trtllm_starter
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
    host = GpuHost(
        lambda: this_hardware(settings.engines_dir, settings.trtllm_python),
        trtllm_starter(settings),
    )
    with build_tools(settings) as tools:
        built = prepare_trtllm(
            options.checkpoint, settings.engines_dir, name, tools, chosen, host, wait=options.wait
        )
    tell(built)
    return EXIT_STATUS[built.card.status]


def _engine_list(options: argparse.Namespace) -> int:
    found = shelf.entries(_settings(options).engines_dir)
    if options.json:
        print(json.dumps([e._asdict() for e in found], indent=2))
        return 0
    table = Table("engine", "served", "kind", "weights", "status", "size", "built", box=None)
    table.padding = (0, 1, 0, 0)
    table.columns[0].no_wrap, table.columns[0].overflow = True, "fold"  # it is typed again, whole
    for column in table.columns[1:]:
        column.overflow = "fold"
    for e in found:
        size, mark = megabytes(e.size_bytes), "promoted" if e.promoted else ""
        built = e.built_at[:10]
        table.add_row(e.label, mark, e.kind, e.weight_type, e.status, size, built)
    Console().print(table if found else "No engine is prepared: run `make engine`.")
    return 0


def _engine_show(options: argparse.Namespace) -> int:
    card = cards.read_card(shelf.find(_settings(options).engines_dir, options.name))
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
    settings = _settings(options)
    machine = this_machine(settings.trtllm_python)
    verdicts = shelf.verify(settings.engines_dir, options.name, machine, deep=options.deep)
    if options.json:
        rows = [{**v.entry._asdict(), "difference": v.difference} for v in verdicts]
        print(json.dumps(rows, indent=2))
    else:
        for v in verdicts:
            print(f"{v.entry.label}: {v.difference or 'as its card says'}")
    return 1 if any(v.difference for v in verdicts) else 0


def _engine_remove(options: argparse.Namespace) -> int:
    for entry in shelf.remove(_settings(options).engines_dir, options.name):
        print(f"removed {entry.label}, {megabytes(entry.size_bytes)}")
    return 0
