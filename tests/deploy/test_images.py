"""The images as their Dockerfiles build them, in machines of the tests' own: the server starts as
the image's user, can write nowhere but where the image lets it, is healthy and answers. So it does
with what deploy/compose.yaml and the CPU overlay of Kubernetes give it, beside their other services
as far as their programs are here."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import compose
from tests.support.images import Build, steps
from tests.support.imports import ROOT
from tests.support.machine import why_not
from tests.support.manifests import KUSTOMIZE, copied, made_secrets, objects
from tests.support.processes import children_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.images import Image
    from tests.support.machine import Machine

DEPLOY = ROOT / "deploy"
QUESTION = {"model": "demo", "input": "What is the capital of Norway?"}
HERE = "http://127.0.0.1:8000"

pytestmark = [
    pytest.mark.skipif(why_not("curl") is not None, reason=str(why_not("curl"))),
    pytest.mark.xdist_group("embedded"),
]


@contextmanager
def running(command: list[str], ready: bytes) -> Iterator[None]:
    """A program in a machine, from when it says that it is ready; it must end well."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        assert server.stdout is not None
        try:
            printed = []
            for line in server.stdout:
                printed.append(line)
                if ready in line:
                    break
            else:
                pytest.fail(b"".join(printed).decode(errors="replace"))
            yield
        finally:
            for process in children_of(server.pid):  # nsenter passes no signal on
                os.kill(process, signal.SIGTERM)
            server.stdout.read()
    assert server.returncode == 0


@contextmanager
def serving(image: Image, settings: Mapping[str, str]) -> Iterator[None]:
    with running(image.started(**settings), b" is ready; "):
        image.is_healthy()
        yield


def redis(host: Machine, command: list[str], user: str) -> list[str]:
    """The command of a Redis whose volume is at /data of its own container."""
    host.run(["install", "-d", "-o", user, "-g", user, "/redis-data"])
    own = [word.replace("/data", "/redis-data") for word in command]
    return host.command(own, user=user, cwd="/redis-data")


REDIS_READY = b"Ready to accept connections"


def answer(image: Image, key: str) -> str:
    made: dict[str, Any] = image.machine.ask(f"{HERE}/v1/responses", QUESTION, key)
    return str(made["output"][-1]["content"][0]["text"])


def is_stored(image: Image, host: str) -> bool:
    return "resp_" in image.machine.run(["redis-cli", "-h", host, "--scan"])


@pytest.fixture(scope="module")
def cpu_build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    with ExitStack() as stack:
        yield Build(DEPLOY / "Dockerfile.cpu", tmp_path_factory.mktemp("image"), stack)


@contextmanager
def finished(build: Build, *hosts: str) -> Iterator[Image]:
    """The last stage in a machine that ends, in which nothing else can be written."""
    with build.last(hosts) as image:
        image.machine.close_files(*image.volumes, "/redis-data", "/prometheus")
        yield image


def test_the_cpu_image_builds_from_what_it_copies_and_answers_as_its_user(cpu_build: Build) -> None:
    """Budget: 90 s."""
    with finished(cpu_build) as image, serving(image, {"TRT_RESPONSES_API_KEYS": "me:key"}):
        assert "Oslo" in answer(image, "key")


def test_the_gpu_image_builds_from_what_it_copies_and_answers_as_its_user(tmp_path: Path) -> None:
    """Its own engine needs a GPU: it serves a demo that lies in its volume instead.
    Budget: 90 s."""
    with ExitStack() as stack:
        build = Build(DEPLOY / "Dockerfile", tmp_path, stack)
        image = stack.enter_context(build.last())
        engines = image.env["TRT_RESPONSES_ENGINES_DIR"]
        command = ["trt-responses", "engine", "build", "--name", "demo", "--engines-dir", engines]
        image.machine.run(command, env=image.env)
        image.machine.close_files(*image.volumes)
        with serving(image, {"TRT_RESPONSES_API_KEYS": "me:key"}):
            assert "Oslo" in answer(image, "key")


@pytest.mark.skipif(
    shutil.which("redis-server") is None or shutil.which("prometheus") is None,
    reason="needs redis-server and prometheus",
)
def test_the_compose_file_starts(cpu_build: Build) -> None:
    """Server, Redis and Prometheus with its commands and settings. With the second file the server
    also starts with its browser shut in. Budget: 30 s."""
    services = compose.services(key="me:key")
    with_search = compose.services("compose.yaml", "compose.search.yaml", key="me:key")
    with finished(cpu_build, *with_search) as image, ExitStack() as stack:
        host = image.machine
        started = redis(host, services["redis"]["command"], "999")
        stack.enter_context(running(started, REDIS_READY))
        host.write("/prometheus/read-only", "")
        for source, target in compose.mounts(services["prometheus"]):
            host.run(["mkdir", "-p", "/prometheus/etc"])
            host.put(source, f"/prometheus{target}")
        place = [w.replace("=/etc", "=/prometheus/etc") for w in services["prometheus"]["command"]]
        own = "--storage.tsdb.path=data"  # where it is by itself, but for Debian's
        watching = host.command(["prometheus", *place, own], cwd="/prometheus")
        with serving(image, services["server"]["environment"]):
            assert "Oslo" in answer(image, "key")
            assert is_stored(image, "redis")
            with running(watching, b"Server is ready"):
                host.run(SCRAPED)
        with serving(image, with_search["server"]["environment"]):
            assert "Oslo" in answer(image, "key")


SCRAPED = """
until curl -sf 127.0.0.1:9090/api/v1/targets | grep -q '"health":"up"'; do sleep 0.2; done
"""


@pytest.mark.skipif(
    shutil.which("redis-server") is None or KUSTOMIZE is None,
    reason="needs redis-server, and kustomize or kubectl",
)
def test_the_containers_of_the_cpu_overlay_start(cpu_build: Build, tmp_path: Path) -> None:
    """Redis and a server with the overlay's commands, settings and secrets, which the page's
    commands make, and its probes. Budget: 30 s."""
    manifests = copied(tmp_path)
    key = made_secrets(manifests)
    found = {(o["kind"], o["metadata"]["name"]): o for o in objects(manifests / "overlays/cpu")}
    [server] = found["Deployment", "trt-responses"]["spec"]["template"]["spec"]["containers"]
    [store] = found["StatefulSet", "trt-responses-redis"]["spec"]["template"]["spec"]["containers"]
    settings: dict[str, str] = {}
    for source in server["envFrom"]:
        if "configMapRef" in source:
            settings |= found["ConfigMap", source["configMapRef"]["name"]]["data"]
        else:
            settings |= decoded(found["Secret", source["secretRef"]["name"]])
    hosts = [name for kind, name in found if kind == "Service"]
    with cpu_build.last(hosts) as image:
        [mount] = [m["mountPath"] for m in server["volumeMounts"] if m["name"] == "keys"]
        for name, text in decoded(found["Secret", "trt-responses-keys"]).items():
            image.machine.write(f"{mount}/{name}", text)
        image.machine.close_files(*image.volumes, "/redis-data")
        command = redis(image.machine, [*store["command"], *store["args"]], "999")
        with running(command, REDIS_READY), serving(image, settings):
            assert "Oslo" in answer(image, key)
            assert is_stored(image, "trt-responses-redis")
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                image.machine.ask(f"{HERE}{server[probe]['httpGet']['path']}")


def decoded(secret: dict[str, Any]) -> dict[str, str]:
    return {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}


def test_what_the_images_pin_by_hand_is_what_the_constraints_say() -> None:
    constraints = (DEPLOY.parent / "constraints.txt").read_text("utf-8").split()
    commands = " ".join(rest for word, rest in steps(DEPLOY / "Dockerfile") if word == "RUN")
    [orjson] = [word for word in commands.split() if word.startswith("orjson==")]
    assert orjson in constraints


def test_the_commands_of_an_image_are_lists() -> None:
    """`sh` as the first process would pass no SIGTERM on."""
    for name in ("Dockerfile", "Dockerfile.cpu"):
        [command] = [rest for word, rest in steps(DEPLOY / name) if word == "CMD"]
        assert json.loads(command)
