"""Writes a model repository for Triton's Python backend. Each version serves a prepared engine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from trt_responses.errors import UsageError
from trt_responses.files import write_whole

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MODEL = '''"""By `trt-responses export triton`. Triton's Python needs the package trt_responses."""

from trt_responses.fleet.triton_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''


def write_repository(
    directory: Path,
    name: str,
    *,
    engine: str,
    engines_dir: Path,
    version: int | None,
    settings: Mapping[str, object],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
) -> Path:
    """Add a version (by default the next number) to the model `name` in this repository, and
    return its directory. Triton loads it without a change of the existing versions."""
    if not NAME.fullmatch(name):
        expected = "letters, digits, dots, dashes and underscores, a letter or a digit first"
        raise UsageError(f"name of the model: found {name[:100]!r}, expected {expected}.")
    model = directory / name
    model.mkdir(parents=True, exist_ok=True)
    known = (int(entry.name) for entry in model.iterdir() if entry.name.isdecimal())
    made = model / str(version or max(known, default=0) + 1)
    try:
        made.mkdir()
    except FileExistsError:
        raise UsageError(
            f"{model} already has a version {made.name}, and versions never change; use another."
        ) from None
    form, text = model / "config.pbtxt", config(name, inputs, outputs)
    if not form.exists() or form.read_text("utf-8") != text:  # a new file reloads every version
        write_whole(form, text)
    facts = {
        "engine": engine,
        "engines_dir": str(engines_dir.resolve()),
        "settings": dict(settings),
    }
    write_whole(made / "settings.json", json.dumps(facts, indent=2) + "\n")
    write_whole(made / "model.py", MODEL)
    return made


def config(name: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """The model's `config.pbtxt`. Only the first input is required in every request."""
    lines = [
        f'name: "{name}"',
        'backend: "python"',
        "max_batch_size: 0",
        "model_transaction_policy { decoupled: true }",
        "version_policy: { latest { num_versions: 2 } }",
        "instance_group [ { count: 1 kind: KIND_CPU } ]",
    ]
    for number, (tensor, kind) in enumerate(inputs.items()):
        optional = " optional: true" if number else ""
        lines.append(f'input [ {{ name: "{tensor}" data_type: {kind} dims: [ -1 ]{optional} }} ]')
    for tensor, kind in outputs.items():
        lines.append(f'output [ {{ name: "{tensor}" data_type: {kind} dims: [ -1 ] }} ]')
    return "\n".join(lines) + "\n"
