"""The manifests in deploy/kubernetes as data: strictly valid, and true to the server. None is run
on a cluster."""

from __future__ import annotations

import asyncio
import gzip
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]  # ships no types
from jsonschema import Draft202012Validator

from tests.support.imports import ROOT
from tests.support.manifests import KUSTOMIZE, MANIFESTS, OVERLAYS, built, images
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, served
from trt_responses.app import ENGINE_STOP_S, create_app
from trt_responses.prepare.trtllm.preflight import IMAGE
from trt_responses.serve.server import CLOSING_S
from trt_responses.settings import PREFIX, Settings, variables

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

VERSIONS = tuple(f"1.{minor}" for minor in range(31, 38))
RULE_FILE: Json = {  # what a PrometheusRule holds: promtool judges the rules themselves
    "required": ["groups"],
    "properties": {
        "groups": {
            "items": {"required": ["name", "rules"], "properties": {"name": {}, "rules": {}}},
        }
    },
}


def documents() -> Iterator[tuple[str, Json]]:
    """Every object of every file; the instructions of kustomize are none."""
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            for number, found in enumerate(yaml.safe_load_all(path.read_text("utf-8"))):
                yield f"{path.relative_to(MANIFESTS)}:{number}", found


@cache
def custom_schemas() -> dict[str, Json]:
    """The schemas of kinds that are no part of Kubernetes, by `apiVersion/kind`."""
    schemas = {}
    for path in (ROOT / "tests" / "data" / "crds").glob("*.json.gz"):
        crd = json.loads(gzip.decompress(path.read_bytes()))
        schemas[f"{crd['group']}/{crd['version']}/{crd['kind']}"] = closed(crd["schema"])
    rule = {"properties": {"apiVersion": {}, "kind": {}, "metadata": {}, "spec": RULE_FILE}}
    return schemas | {"monitoring.coreos.com/v1/PrometheusRule": closed(typed(rule))}


def typed(schema: Any) -> Any:
    """The same schema, in which whatever has properties is an object."""
    if not isinstance(schema, dict):
        return schema
    made = {key: typed(value) for key, value in schema.items()}
    return made | ({"type": "object"} if "properties" in made else {})


def closed(schema: Any) -> Any:
    """The same schema, with unknown keys refused wherever it names the known ones."""
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not keeps:
        made.setdefault("additionalProperties", False)
    return made


def faults(found: Json, version: str) -> list[str]:
    kind = f"{found['apiVersion']}/{found['kind']}"
    custom = custom_schemas()
    if kind in custom:
        errors = Draft202012Validator(custom[kind]).iter_errors(found)
        return [f"{error.json_path}: {error.message}"[:300] for error in errors]
    try:
        kubernetes_validate.validate(found, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [error.message[:300]]
    return []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_strictly_valid(version: str) -> None:
    bad = {}
    for place, found in documents():
        if place.startswith("overlays/gpu/server"):
            continue  # a patch, which is judged with what it changes
        if wrong := faults(found, version):
            bad[place] = wrong
    assert bad == {}


CHECKED = ("Deployment", "InferencePool", "ScaledObject", "ServiceMonitor", "PrometheusRule")


def test_the_judge_sees_what_is_wrong() -> None:
    by_kind = {found["kind"]: found for _, found in documents()}
    for kind in CHECKED:
        broken = json.loads(json.dumps(by_kind[kind]))
        broken["spec"]["replikas"] = 2
        assert faults(broken, "1.34")
    service = json.loads(json.dumps(by_kind["LLMInferenceService"]))
    service["spec"]["template"]["containers"][0]["imagePullPolice"] = "Never"
    assert faults(service, "1.34")


@pytest.mark.skipif(KUSTOMIZE is None, reason="neither kustomize nor kubectl is on the PATH")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_builds_into_valid_objects(overlay: str) -> None:
    objects = built(overlay)
    assert [fault for found in objects for fault in faults(found, "1.34")] == []
    own = "trt-responses:cpu" if overlay == "overlays/cpu" else "trt-responses:gpu"
    assert images(objects) == {own, "redis:7.4-bookworm"}


def pods() -> Iterator[tuple[str, Json]]:
    """The specifications of all pods, patches too."""
    for place, found in documents():
        if "template" in found.get("spec", {}):
            template = found["spec"]["template"]
            yield place, template.get("spec", template)


def servers() -> Iterator[tuple[str, Json, Json]]:
    for place, pod in pods():
        for container in pod["containers"]:
            if container["name"] in ("server", "main") and "livenessProbe" in container:
                yield place, pod, container


def test_no_service_of_a_cluster_changes_a_setting() -> None:
    """A Service named trt-responses sets TRT_RESPONSES_PORT in every pod that lets it."""
    for place, pod in pods():
        if "server.yaml" not in place:
            assert pod["enableServiceLinks"] is False, place


def environment(place: str, container: Json) -> dict[str, str]:
    """The settings of a container, those of the base's ConfigMap and of every overlay's over it."""
    given = {entry["name"]: entry["value"] for entry in container.get("env", ())}
    if "kserve" in place:
        return given
    for path in sorted(MANIFESTS.rglob("kustomization.yaml")):
        for maps in yaml.safe_load(path.read_text("utf-8")).get("configMapGenerator", ()):
            given |= dict(literal.split("=", 1) for literal in maps["literals"])
    return given


def longest_stop_s(given: dict[str, str]) -> float:
    settings = Settings.from_environment(given)
    return settings.linger_s + settings.drain_s + CLOSING_S + ENGINE_STOP_S


def test_a_stop_fits_into_the_time_that_is_granted() -> None:
    found = list(servers())
    assert len(found) == 2
    for place, pod, container in found:
        before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        longest = longest_stop_s(environment(place, container))
        grace = pod["terminationGracePeriodSeconds"]
        assert before + longest + 5 <= grace, place


def test_a_stop_fits_without_a_cluster_too() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    granted = compose["services"]["server"]["stop_grace_period"]
    assert longest_stop_s({}) <= float(granted.removesuffix("s"))
    unit = (ROOT / "deploy" / "systemd" / "trt-responses.service").read_text("utf-8")
    lines = [line.split("=", 1) for line in unit.splitlines() if "=" in line]
    given = dict(value.split("=", 1) for name, value in lines if name == "Environment")
    [granted_s] = [float(value) for name, value in lines if name == "TimeoutStopSec"]
    assert longest_stop_s(given) <= granted_s
    assert ["StateDirectoryMode", "0700"] in lines


def test_the_kserve_service_answers_to_both_of_its_names() -> None:
    """KServe's route asks for the model by its own name and by its publisher's."""
    [(_, found)] = [(p, f) for p, f in documents() if f["kind"] == "LLMInferenceService"]
    own = found["spec"]["model"]["name"]
    publishers = f"publishers/{found['metadata']['namespace']}/models/{own}"
    [container] = found["spec"]["template"]["containers"]
    given = environment("kserve", container)
    settings = Settings.from_environment(given)
    assert settings.engine == own

    async def story() -> None:
        async with served(ANSWER, model=settings.model) as s:
            for name in (own, publishers):
                reply = await s.client.create(model=name)
                assert (reply.status, reply.json()["model"]) == (200, own)

    asyncio.run(story())


def test_probes_ask_what_the_server_answers() -> None:
    app = create_app(Settings(), engine=ScriptedEngine(lambda *_: pytest.fail("asked")))
    paths = set(app.openapi()["paths"])
    for _, _, container in servers():
        probes = [container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")]
        assert [probe["httpGet"]["path"] for probe in probes] == [
            "/health/ready",
            "/health/ready",
            "/health/live",
        ]
        assert {probe["httpGet"]["path"] for probe in probes} <= paths


def named_settings() -> set[str]:
    texts = [path.read_text("utf-8") for path in MANIFESTS.rglob("*.yaml")]
    texts += [path.read_text("utf-8") for path in (ROOT / "deploy").glob("Dockerfile*")]
    texts.append((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    texts.append((ROOT / "deploy" / "systemd" / "trt-responses.service").read_text("utf-8"))
    words = " ".join(texts).replace("=", " ").replace(":", " ").replace("{", " ").split()
    return {word.strip(",\"'}") for word in words if word.startswith(PREFIX)}


def test_every_setting_that_is_named_is_one() -> None:
    known = {PREFIX + name.upper() for name in variables()}
    assert named_settings() <= known
    assert f"{PREFIX}KEYS_FILE" in named_settings()


def test_the_image_for_gpus_is_made_on_the_one_that_is_told_to_users() -> None:
    assert f"\nFROM {IMAGE}\n" in (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    assert IMAGE in (ROOT / "docs" / "tensorrt-llm.md").read_text("utf-8")


def test_containers_have_no_privileges() -> None:
    for place, pod in pods():
        if "server.yaml" in place:
            continue
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, place
            assert context["capabilities"] == {"drop": ["ALL"]}, place


def test_the_page_names_every_file_of_an_overlay() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    for overlay in OVERLAYS:
        assert f"deploy/kubernetes/{overlay}" in page
    assert "have not been run on a" in page
