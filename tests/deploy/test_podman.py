"""The CPU image as Podman builds and runs it, by the page's own lines for one container. What the
base image would bring is this machine's own /usr, and what an index would bring is lent."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from scripts.docs_blocks import ROOT, blocks
from tests.support.images import NO_PACKAGES, gather
from tests.support.machine import OFFLINE, SYSTEMD, machine, why_not

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.machine import Machine

NEEDED = (SYSTEMD, "podman", "crun", "curl")
QUESTION = {"model": "demo", "input": "What is the capital of Norway?"}
HERE = "http://127.0.0.1:8000"
CHECKOUT = "/root/checkout"
OWN_FILES = "--volume=/usr:/usr:ro"
LENT = " ".join(f"--env={name}={value}" for name, value in OFFLINE.items())
DOCKER = f"""#!/bin/sh
export BUILDAH_FORMAT=docker
command=$1; shift
case $command in
  build) set -- --isolation=chroot {OWN_FILES} {LENT} "$@";;
  run) set -- --cgroups=disabled --network=host --name=server {OWN_FILES} "$@";;
esac
exec podman "$command" "$@"
"""
STORAGE = """[storage]
driver = "overlay"
graphroot = "/tmp/images/graph"
runroot = "/tmp/images/run"
"""
ENGINE = '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'
BASE = """
mkdir -p /tmp/base/usr /tmp/base/etc /tmp/base/opt /tmp/base/proc /tmp/base/srv /tmp/base/var
mkdir -m 1777 /tmp/base/tmp
for name in bin sbin lib lib64; do ln -s usr/$name /tmp/base/$name; done
cp /etc/ld.so.cache /etc/passwd /etc/group /tmp/base/etc
tar -C /tmp/base -c . | podman import -q - docker.io/library/python:3.11-slim-bookworm
"""

pytestmark = [
    pytest.mark.skipif(why_not(*NEEDED) is not None, reason=str(why_not(*NEEDED))),
    pytest.mark.xdist_group("embedded"),
]


def prepared(host: Machine, folder: Path) -> None:
    """A checkout, a `docker` that is Podman, and the image that the Dockerfile begins with."""
    dockerfile = ROOT / "deploy" / "Dockerfile.cpu"
    host.put(gather(dockerfile, folder / "checkout"), CHECKOUT)
    host.put(dockerfile, f"{CHECKOUT}/deploy/Dockerfile.cpu")
    host.put(ROOT / ".dockerignore", f"{CHECKOUT}/.dockerignore")
    for path, text in (("docker", DOCKER), ("apt-get", NO_PACKAGES)):
        host.write(f"/usr/local/sbin/{path}", text)
        host.run(["chmod", "755", f"/usr/local/sbin/{path}"])
    host.write("/etc/containers/storage.conf", STORAGE)
    host.write("/etc/containers/containers.conf", ENGINE)
    host.write("/etc/containers/policy.json", POLICY)
    host.run(BASE)


def test_podman_builds_and_runs_the_page_s_container(tmp_path: Path) -> None:
    """Budget: 180 s."""
    page = [b.text for b in blocks(ROOT / "docs" / "compose.md") if b.reason == "needs Docker"]
    build, run = page[-1].splitlines()
    with machine(tmp_path, systemd="basic.target") as host:
        prepared(host, tmp_path)
        host.run(build, cwd=CHECKOUT)
        shown = json.loads(host.run(["podman", "inspect", "trt-responses:cpu"]))[0]
        assert (shown["User"], [*shown["Config"]["Volumes"]]) == ("10001:10001", ["/data"])
        assert shown["Healthcheck"]["Test"][:2] == ["CMD", "python"]
        with subprocess.Popen(host.command(["sh", "-c", run])) as container:
            try:
                host.run(f"until curl -sf {HERE}/health/ready; do sleep 0.2; done")
                made = host.ask(f"{HERE}/v1/responses", QUESTION, "change-this-key")
                assert "Oslo" in made["output"][-1]["content"][0]["text"]
            finally:
                host.run("podman stop server")
        assert container.returncode == 0
