"""The manifests of deploy/kubernetes as a cluster would get them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]  # ships no types

from tests.support.imports import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

MANIFESTS = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("overlays/cpu", "overlays/gpu", "overlays/inference-gateway", "kserve")


def _program() -> list[str] | None:
    for name in ("kustomize", "kustomize-linux-x64"):
        if shutil.which(name) is not None:
            return [name, "build"]
    return ["kubectl", "kustomize"] if shutil.which("kubectl") is not None else None


KUSTOMIZE = _program()
"""The command that builds an overlay, if there is one."""


def copied(folder: Path) -> Path:
    """The manifests in a folder of a test's own, with the secrets that the page makes."""
    made = folder / "deploy" / "kubernetes"
    shutil.copytree(MANIFESTS, made, ignore=shutil.ignore_patterns("secret"))
    secret = made / "shared" / "secret"
    secret.mkdir()
    (secret / "keys.json").write_text("{}")
    (secret / "settings.env").write_text("TRT_RESPONSES_SEAL_KEYS=none\n")
    return made


def built(overlay: str, folder: Path) -> list[Json]:
    """The objects of an overlay."""
    return objects(copied(folder) / overlay)


def objects(overlay: Path) -> list[Json]:
    assert KUSTOMIZE is not None
    ran = subprocess.run([*KUSTOMIZE, str(overlay)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return list(yaml.safe_load_all(ran.stdout))


def pods(objects: list[Json]) -> Iterator[tuple[Json, Json]]:
    """Each object that makes pods, with their specification."""
    for found in objects:
        template = found.get("spec", {}).get("template")
        if isinstance(template, dict):
            yield found, template.get("spec", template)


def images(objects: list[Json]) -> set[str]:
    return {c["image"] for _, pod in pods(objects) for c in pod["containers"]}
