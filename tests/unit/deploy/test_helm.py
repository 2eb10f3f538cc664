"""The chart of deploy/helm renders the objects of the overlays: both are the same deployment."""

from __future__ import annotations

import shutil
import subprocess
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types

from scripts.docs_blocks import blocks
from tests.support.imports import ROOT
from tests.support.manifests import KUSTOMIZE, PAGE, built, copied, made_secrets, type_in

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

CHART = ROOT / "deploy" / "helm"
GPU = ("gpu=true", "image=trt-responses:gpu")

needs_helm = pytest.mark.skipif(
    shutil.which("helm") is None or KUSTOMIZE is None, reason="needs helm, and kustomize or kubectl"
)


def rendered(folder: Path, *values: str) -> list[Json]:
    keys = folder / "keys.json"
    keys.write_text("{}")
    given = [f"--set={value}" for value in ("secret.TRT_RESPONSES_SEAL_KEYS=none", *values)]
    command = ["helm", "template", "it", str(CHART), f"--set-file=keys={keys}", *given]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return list(yaml.safe_load_all(ran.stdout))


def by_name(objects: list[Json]) -> dict[tuple[str, str], Json]:
    """The objects by kind and name, without what says that the settings have changed: a digest in
    the ConfigMap's name, or an annotation. The order of volumes says nothing."""
    [own] = [found for found in objects if found["kind"] == "ConfigMap"]
    digest = own["metadata"]["name"].removeprefix("trt-responses")
    text = yaml.dump(objects, Dumper=yaml.CSafeDumper)
    found = {}
    for each in yaml.load(
        text.replace(f"trt-responses{digest}", "trt-responses"), yaml.CSafeLoader
    ):
        if each["kind"] == "Deployment":
            pod = each["spec"]["template"]
            pod["metadata"].pop("annotations", None)
            pod["spec"]["volumes"].sort(key=str)
            pod["spec"]["containers"][0]["volumeMounts"].sort(key=str)
        found[each["kind"], each["metadata"]["name"]] = each
    return found


@needs_helm
@pytest.mark.parametrize(("overlay", "values"), [("cpu", ()), ("gpu", GPU)])
def test_the_chart_renders_what_the_overlay_builds(
    overlay: str, values: tuple[str, ...], tmp_path: Path
) -> None:
    chart = by_name(rendered(tmp_path, *values))
    assert chart == by_name(built(f"overlays/{overlay}"))


@needs_helm
def test_the_operator_s_settings_come_before_the_chart_s(tmp_path: Path) -> None:
    objects = by_name(rendered(tmp_path, "settings.TRT_RESPONSES_STORE=redis://mine:1"))
    data = objects["ConfigMap", "trt-responses"]["data"]
    assert data["TRT_RESPONSES_STORE"] == "redis://mine:1"
    assert data["TRT_RESPONSES_PORT"] == "8000"


@needs_helm
@pytest.mark.slow  # a command line of its own, twice
def test_the_page_s_command_gives_the_chart_its_keys(tmp_path: Path) -> None:
    manifests = copied(tmp_path)
    shutil.copytree(CHART, manifests.parent / "helm")
    key = made_secrets(manifests)
    [typed] = [b.text for b in blocks(PAGE) if "helm -n llm" in b.text]
    command = typed.replace("helm -n llm upgrade --install", "helm template")
    text = type_in(manifests, command.replace("kubectl", ": kubectl"))
    secrets = [found for found in yaml.safe_load_all(text) if found["kind"] == "Secret"]
    data = {name: b64decode(value) for found in secrets for name, value in found["data"].items()}
    assert len(b64decode(data["TRT_RESPONSES_SEAL_KEYS"])) == 32
    assert b"ann" in data["keys.json"]
    assert key.encode() not in data["keys.json"]


def test_the_chart_is_short() -> None:
    """A longer one would be a second product beside the overlays."""
    files = [path for path in CHART.rglob("*") if path.is_file()]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) < 300
