"""Every name that a manifest asks for is brought: by the overlay, by the page's commands, or by the
operator where the page says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types

from tests.support.imports import ROOT
from tests.support.manifests import (
    KUSTOMIZE,
    OVERLAYS,
    PAGE,
    built,
    copied,
    images,
    made_secrets,
    objects,
    page_commands,
    pods,
    type_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

URL = re.compile(r"\b(?:redis|https?)://([a-z0-9.-]+)(?::(\d+))?")
TABLE = re.compile(r"^\| `deploy/kubernetes/(\S+)` \|[^|]*\|([^|]*)\|$", re.M)

needs_kustomize = pytest.mark.skipif(
    KUSTOMIZE is None, reason="neither kustomize nor kubectl is on the PATH"
)


def brought_by_the_operator(overlay: str) -> str:
    rows: dict[str, str] = dict(TABLE.findall(PAGE.read_text("utf-8")))
    return rows[overlay]


def of_kind(found: list[Json], kind: str) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


def labels(found: Json) -> dict[str, str]:
    return dict(found["spec"]["template"].get("metadata", {}).get("labels", {}))


def selected(found: list[Json], selector: dict[str, str]) -> list[Json]:
    """The pods' specifications that a selector finds."""
    return [
        pod
        for owner, pod in pods(found)
        if owner["kind"] != "Job" and selector.items() <= labels(owner).items()
    ]


def ports(pod: Json) -> set[Any]:
    listed = [port for c in pod["containers"] for port in c.get("ports", ())]
    return {port["name"] for port in listed} | {port["containerPort"] for port in listed}


def urls(found: list[Json]) -> Iterator[tuple[str, int | None]]:
    for name, port in URL.findall(yaml.safe_dump(found)):
        if name not in ("127.0.0.1", "localhost"):
            yield name, int(port) if port else None


def missing_sources(found: list[Json]) -> list[str]:
    """Volumes and environments of pods that nothing fills."""
    missing = []
    claims = of_kind(found, "PersistentVolumeClaim")
    secrets, maps = of_kind(found, "Secret"), of_kind(found, "ConfigMap")
    for owner, pod in pods(found):
        own = {claim["metadata"]["name"] for claim in owner["spec"].get("volumeClaimTemplates", ())}
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        for volume in volumes.values():
            if "secret" in volume and volume["secret"]["secretName"] not in secrets:
                missing.append(f"Secret {volume['secret']['secretName']}")
            if "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"]["claimName"]
                missing += [] if name in claims else [f"PersistentVolumeClaim {name}"]
        for container in pod["containers"]:
            mounts = {mount["name"] for mount in container.get("volumeMounts", ())}
            missing += [f"volume {name}" for name in mounts - {*volumes, *own}]
            for source in container.get("envFrom", ()):
                for key, known in (("secretRef", secrets), ("configMapRef", maps)):
                    if key in source and source[key]["name"] not in known:
                        missing.append(f"{key} {source[key]['name']}")
    return missing


def missing_ports(found: list[Json]) -> list[str]:
    """Ports of services and probes that no container has."""
    missing = []
    for name, service in of_kind(found, "Service").items():
        behind = selected(found, service["spec"]["selector"])
        if not behind and "LLMInferenceService" not in {one["kind"] for one in found}:
            missing.append(f"pods of {name}")
        for port in service["spec"]["ports"]:
            missing += [
                f"{name}:{port['targetPort']}" for p in behind if port["targetPort"] not in ports(p)
            ]
    for _, pod in pods(found):
        for container in pod["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container.get(probe, {}).get("httpGet", {}).get("port", None)
                missing += [f"{probe} {asked}"] if asked and asked not in ports(pod) else []
    return missing


def shut_out(found: list[Json]) -> list[str]:
    """Servers that a NetworkPolicy keeps from what they use. KServe labels its pods itself, so only
    an empty selector lets them in."""
    servers = [labels(one) for one, pod in pods(found) if one["metadata"]["name"] in SERVERS]
    allowed = [
        source["podSelector"].get("matchLabels", {}).items()
        for policy in of_kind(found, "NetworkPolicy").values()
        for rule in policy["spec"]["ingress"]
        for source in rule["from"]
    ]
    assert servers
    assert allowed
    return [str(of) for of in servers if not all(wanted <= of.items() for wanted in allowed)]


SERVERS = ("trt-responses", "gpt-oss-20b")


def missing_hosts(found: list[Json], operator: str) -> list[str]:
    """Hosts of URLs that are neither a Service of the overlay nor the operator's by the page."""
    services = of_kind(found, "Service")
    missing = []
    for host, port in urls(found):
        if host in services:
            numbers = {p["port"] for p in services[host]["spec"]["ports"]}
            missing += [] if port in numbers else [f"{host}:{port}"]
        elif f"`{host}`" not in operator:
            missing.append(host)
    return missing


@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_brings_what_it_asks_for(overlay: str) -> None:
    found, operator = built(overlay), brought_by_the_operator(overlay)
    assert missing_sources(found) + missing_ports(found) + missing_hosts(found, operator) == []
    assert shut_out(found) == []
    page = PAGE.read_text("utf-8")
    for image in images(found):
        assert f" {image}" in page or f"`{image}`" in page or image.startswith("redis:7")
    for pool in of_kind(found, "InferencePool").values():
        assert selected(found, pool["spec"]["selector"]["matchLabels"])
        assert f"`{pool['spec']['endpointPickerRef']['name']}`" in operator
    for scaler in of_kind(found, "ScaledObject").values():
        assert scaler["spec"]["scaleTargetRef"]["name"] in of_kind(found, "Deployment")
    for budget in of_kind(found, "PodDisruptionBudget").values():
        assert selected(found, budget["spec"]["selector"]["matchLabels"])


@needs_kustomize
def test_what_is_missing_is_seen() -> None:
    found = built("overlays/cpu")
    without = [one for one in found if one["kind"] not in ("Secret", "StatefulSet")]
    assert missing_sources(without) == ["Secret trt-responses-keys", "secretRef trt-responses"]
    assert missing_ports(without) == ["pods of trt-responses-redis"]
    for policy in of_kind(found, "NetworkPolicy").values():
        policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"] = {"app": "other"}
    assert len(shut_out(found)) == 1
    alone = [one for one in found if one["kind"] != "Service"]
    assert missing_hosts(alone, "") == ["trt-responses-redis"]


def operator_job(found: list[Json], monitor: Json) -> str:
    """The label `job` that the Prometheus operator gives a scrape: the Service's name."""
    assert "jobLabel" not in monitor["spec"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    [service] = [
        one
        for one in of_kind(found, "Service").values()
        if wanted <= one["metadata"].get("labels", {}).items()
    ]
    names = {port["name"] for port in service["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= names
    return str(service["metadata"]["name"])


@needs_kustomize
def test_the_alerts_name_the_job_of_each_scrape() -> None:
    found = built("overlays/inference-gateway")
    [monitor] = of_kind(found, "ServiceMonitor").values()
    jobs = {operator_job(found, monitor)}
    monitoring = ROOT / "deploy" / "monitoring"
    for name in ("prometheus.yml", "compose.yml"):
        scrapes = yaml.safe_load((monitoring / name).read_text("utf-8"))["scrape_configs"]
        jobs |= {scrape["job_name"] for scrape in scrapes}
    [rules] = of_kind(found, "PrometheusRule").values()
    assert rules["spec"] == yaml.safe_load((monitoring / "rules.yml").read_text("utf-8"))
    named = re.findall(r'job=~"([^"]+)"', yaml.safe_dump(rules))
    assert named
    assert all(re.fullmatch(pattern, job) for pattern in named for job in jobs)


def seconds(probe: Json) -> int:
    return int(probe["periodSeconds"] * probe["failureThreshold"])


@needs_kustomize
@pytest.mark.parametrize("overlay", [o for o in OVERLAYS if o != "kserve"])
def test_a_slow_start_is_no_failed_rollout(overlay: str) -> None:
    [found] = of_kind(built(overlay), "Deployment").values()
    [server] = found["spec"]["template"]["spec"]["containers"]
    assert found["spec"]["progressDeadlineSeconds"] > seconds(server["startupProbe"])
    step = found["spec"]["strategy"]["rollingUpdate"]
    has_gpu = "nvidia.com/gpu" in server["resources"]["limits"]
    assert (step["maxSurge"], step["maxUnavailable"]) == ((0, 1) if has_gpu else (1, 0))


@needs_kustomize
def test_the_pages_own_commands_make_the_secrets_and_name_the_image(tmp_path: Path) -> None:
    """Those that need neither Docker nor a cluster, in a copy."""
    copy = copied(tmp_path)
    made_secrets(copy)
    for command in page_commands():
        if "secret" not in command:
            type_in(copy, command)
    found = objects(copy / "overlays/cpu")
    assert images(found) == {"registry.example/trt-responses:1", "redis:7.4-bookworm"}
    secrets = of_kind(found, "Secret")
    assert set(secrets["trt-responses"]["data"]) == {"TRT_RESPONSES_SEAL_KEYS"}
    assert set(secrets["trt-responses-keys"]["data"]) == {"keys.json"}


def test_each_engine_job_gets_a_name_and_goes_again() -> None:
    job = yaml.safe_load((ROOT / "deploy/kubernetes/models/engine-job.yaml").read_text("utf-8"))
    assert "name" not in job["metadata"]
    assert job["metadata"]["generateName"].endswith("-")
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    [(label, value)] = job["metadata"]["labels"].items()
    page = PAGE.read_text("utf-8")
    assert f"-l {label}={value}" in page
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert f"{container['name']}=registry.example/" in page
