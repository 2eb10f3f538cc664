"""deploy/compose.yaml as `docker compose` reads it, several files over each other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]  # ships no types

from tests.support.imports import ROOT

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

DEPLOY = ROOT / "deploy"


def read(*names: str, key: str) -> Json:
    """The files merged: `key` is what the one variable of the person holds."""
    merged: Json = {}
    for name in names or ("compose.yaml",):
        text = (DEPLOY / name).read_text("utf-8")
        text = re.sub(r"\$\{TRT_RESPONSES_API_KEYS:\?[^}]*\}", key, text)
        assert "${" not in text, f"{name} wants a variable that the page does not set"
        merged = _over(merged, yaml.safe_load(text))
    return merged


def services(*names: str, key: str) -> dict[str, Json]:
    return dict(read(*names, key=key)["services"])


def _over(below: Json, above: Json) -> Json:
    made = dict(below)
    for name, value in above.items():
        if isinstance(value, dict):
            made[name] = _over(made.get(name, {}), value)
        else:
            made[name] = value
    return made


def mounts(service: Json) -> list[tuple[Path, str]]:
    """What a service mounts of the checkout, and where."""
    found = []
    for volume in service.get("volumes", ()):
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            found.append((DEPLOY / source, target))
    return found
