"""The manifests of deploy/kubernetes as a cluster would get them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]  # ships no types

from scripts.docs_check import blocks
from tests.support.imports import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

PAGE = ROOT / "docs" / "kubernetes.md"
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


def page_commands() -> list[str]:
    """The commands of docs/kubernetes.md that need neither Docker nor a cluster."""
    typed = [b.text for b in blocks(PAGE) if b.reason == "needs a cluster"]
    return [text for text in typed if "kubectl" not in text]


def made_secrets(manifests: Path) -> str:
    """Have the page's own commands make the secrets, and return the client's key."""
    shutil.rmtree(manifests / "shared" / "secret")
    [command] = [text for text in page_commands() if "secret" in text]
    return type_in(manifests, command).split()[0]


def type_in(manifests: Path, command: str) -> str:
    """What a command of the page prints, in the copied checkout."""
    root = manifests.parents[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "TRT_RESPONSES_DATA_DIR": str(root / "data")}
    typed = ["bash", "-euc", command]
    return subprocess.run(
        typed, cwd=root, env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def built(overlay: str) -> list[Json]:
    """The objects of an overlay as it is shipped."""
    return _read(_built_text(overlay))


@cache
def _built_text(overlay: str) -> str:
    """Built once in a process: it takes half a second."""
    with tempfile.TemporaryDirectory() as folder:
        return _kustomized(copied(Path(folder)) / overlay)


def objects(overlay: Path) -> list[Json]:
    return _read(_kustomized(overlay))


def _kustomized(overlay: Path) -> str:
    assert KUSTOMIZE is not None
    ran = subprocess.run([*KUSTOMIZE, str(overlay)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _read(text: str) -> list[Json]:
    return list(yaml.load_all(text, yaml.CSafeLoader))


def pods(objects: list[Json]) -> Iterator[tuple[Json, Json]]:
    """Each object that makes pods, with their specification."""
    for found in objects:
        template = found.get("spec", {}).get("template")
        if isinstance(template, dict):
            yield found, template.get("spec", template)


def images(objects: list[Json]) -> set[str]:
    return {c["image"] for _, pod in pods(objects) for c in pod["containers"]}
