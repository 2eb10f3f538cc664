"""docs/systemd.md under a real systemd, in a machine of the test's own: every command of the page,
in its order, with the shipped unit and socket as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts.docs_check import blocks
from tests.support.images import gather
from tests.support.imports import ROOT
from tests.support.machine import OFFLINE, SYSTEMD, machine, why_not

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.machine import Machine

NEEDED = (SYSTEMD, "curl", "useradd", "openssl")
HERE = "http://127.0.0.1:8000"
QUESTION = {"model": "demo", "input": "What is the capital of Norway?"}
DONE = "tests/deploy/test_systemd.py does"

pytestmark = [
    pytest.mark.skipif(why_not(*NEEDED) is not None, reason=str(why_not(*NEEDED))),
    pytest.mark.xdist_group("embedded"),
]


def typed(host: Machine, command: str) -> None:
    """What an operator types as root in the checkout; a failure shows the service's journal."""
    env = OFFLINE | {"HOME": "/root", "LANG": "C.UTF-8"}
    try:
        host.run(command, env=env, cwd="/root/checkout")
    except AssertionError as fault:
        journal = host.run("journalctl -u trt-responses -n 40 --no-pager || true")
        raise AssertionError(f"{fault}\n{journal}") from None


def answered(host: Machine, key: str | None = None) -> str:
    made = host.ask(f"{HERE}/v1/responses", QUESTION, key)
    return str(made["output"][-1]["content"][0]["text"])


def installed(host: Machine) -> str:
    """The installation that the running service is of."""
    pid = host.run("systemctl show -P MainPID trt-responses").strip()
    return host.run(["cat", f"/proc/{pid}/cmdline"]).split("\0")[0]


def test_the_page_installs_serves_upgrades_and_goes_back(tmp_path: Path) -> None:
    """Budget: 120 s."""
    page = [b.text for b in blocks(ROOT / "docs" / "systemd.md") if b.reason == DONE]
    install, engine, start, keys, address, upgrade, back = page
    checkout = gather(ROOT / "deploy" / "Dockerfile.cpu", tmp_path / "checkout")
    with machine(tmp_path, systemd="basic.target") as host:
        host.put(checkout, "/root/checkout")
        host.put(ROOT / "deploy" / "systemd", "/root/checkout/deploy/systemd")
        for commands in (install, engine, start):
            typed(host, commands)
        assert "Oslo" in answered(host)
        where = "find / -xdev -user trt-responses -newer /etc/trt-responses.env -type f"
        written = host.run(f"{where} -not -path '/proc/*'").split()
        assert written
        places = {re.sub(r"^(/var/[^/]+/[^/]+)/.*$", r"\1", path) for path in written}
        assert places <= {"/var/lib/trt-responses", "/var/cache/trt-responses"}
        units = "/etc/systemd/system/trt-responses.service"
        assert host.run(["systemd-analyze", "verify", units]) == ""
        typed(host, keys)
        key = host.run("sed -n 's/^TRT_RESPONSES_API_KEYS=me://p' /etc/trt-responses.env").strip()
        assert "Oslo" in answered(host, key)
        typed(host, address)
        assert "Oslo" in answered(host, key)
        for commands, version in ((upgrade, "0.2.0"), (back, "0.1.0")):
            typed(host, commands)
            assert "Oslo" in answered(host, key)
            assert f"/opt/trt-responses/{version}/bin/python" in installed(host)
        typed(host, "systemctl stop trt-responses.service")
        host.run(
            ["curl", "-sf", f"{HERE}/health/live"]
        )  # waits in the socket, and starts the service
        typed(host, "systemctl start trt-responses.service")
        assert "Oslo" in answered(host, key)
        assert host.run("systemctl show -P NRestarts trt-responses").strip() == "0"
