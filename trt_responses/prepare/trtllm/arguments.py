"""Reads and spells a file of arguments: YAML for TensorRT-LLM's own tools, in a simple form.
One line per argument, each value as JSON, which is valid YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from trt_responses.prepare.faults import PrepareError, refusal

NAME = re.compile(r"[a-z][a-z0-9_]*")


def text_of(arguments: Mapping[str, object], heading: str = "") -> str:
    """The text of a file of arguments."""
    lines = [f"# {line}" for line in heading.splitlines()]
    lines += [f"{name}: {json.dumps(value)}" for name, value in arguments.items()]
    return "\n".join(lines) + "\n"


def read_arguments(path: Path) -> dict[str, object]:
    """The arguments in a file."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise PrepareError(f"{path} cannot be read ({error.strerror}).") from None
    found: dict[str, object] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not NAME.fullmatch(name) or name in found:
            raise refusal(f"{path.name}, line {number}", repr(line), "`name: value`, each once")
        try:
            found[name] = json.loads(value)
        except ValueError:
            expected = "a JSON value on the same line"
            raise refusal(f"{path.name}, {name}", repr(value.strip()), expected) from None
    return found
