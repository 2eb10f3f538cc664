"""docs/production.md on a machine with a real systemd, HAProxy and Redis: every command of the page
in its order, by one shell. Two things stand in: `sudo`, and an index of packages."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scripts.docs_blocks import ROOT, blocks
from tests.support.images import gather
from tests.support.machine import OFFLINE, SYSTEMD, machine, why_not

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.docs_blocks import Block
    from tests.support.machine import Machine

NEEDED = (
    *(SYSTEMD, "/lib/systemd/system/haproxy.service", "/lib/systemd/system/redis-server.service"),
    *("haproxy", "redis-server", "redis-cli", "curl", "useradd", "openssl"),
)
SUDO = '#!/bin/sh\n[ "$1" = -u ] || exec "$@"\nuser=$2; shift 2; exec runuser -u "$user" -- "$@"\n'
NO_NAMESPACE = "[Service]\nPrivateUsers=no\n"
HERE = "/root/work"
FENCE = "----- block"

pytestmark = [
    pytest.mark.skipif(why_not(*NEEDED) is not None, reason=str(why_not(*NEEDED))),
    pytest.mark.xdist_group("embedded"),
    pytest.mark.timeout(1500),
]


def wheel_of(version: str, checkout: Path, folder: Path) -> None:
    """Build the checkout's wheel as if it were that version."""
    source = checkout / "trt_responses" / "__init__.py"
    text = source.read_text("utf-8")
    source.write_text(re.sub(r"(?m)^__version__ = .*$", f'__version__ = "{version}"', text))
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(folder)], cwd=checkout, check=True)


def script_of(page: list[Block]) -> str:
    """All commands of the page, with a line before each block that says which it is. The
    distribution's packages are those of the tests' machine."""
    typed = [f"echo '{FENCE} {n}'\n{b.text}" for n, b in enumerate(page) if b.language == "sh"]
    return "\n".join(["set -euo pipefail", *typed]).replace("sudo apt-get", ": apt-get")


def printed_by(output: str) -> dict[int, str]:
    parts = re.split(rf"^{FENCE} (\d+)$", output, flags=re.M)
    return {int(n): text for n, text in zip(parts[1::2], parts[2::2], strict=True)}


def type_page(host: Machine, page: list[Block]) -> dict[int, str]:
    """What each block printed, by its number on the page; a failure shows the journal."""
    env = OFFLINE | {"HOME": "/root", "LANG": "C.UTF-8"}
    try:
        return printed_by(host.run(["bash", "-c", script_of(page)], env=env, cwd=HERE))
    except AssertionError as fault:
        journal = host.run("journalctl -n 60 --no-pager || true")
        raise AssertionError(f"{fault}\n{journal}") from None


def test_the_page_installs_serves_and_upgrades_without_a_broken_stream(tmp_path: Path) -> None:
    """Budget: 180 s."""
    page = list(blocks(ROOT / "docs" / "production.md"))
    checkout = gather(ROOT / "deploy" / "Dockerfile.cpu", tmp_path / "checkout")
    for version in ("0.1.0", "0.2.0"):
        wheel_of(version, checkout, tmp_path / "dist")
    with machine(tmp_path, systemd="basic.target") as host:
        host.put(tmp_path / "dist", f"{HERE}/dist")
        host.write("/usr/local/bin/sudo", SUDO)
        host.run(["chmod", "755", "/usr/local/bin/sudo"])
        # A chroot may have no user namespace, which the distribution's unit of Redis asks for.
        host.write("/etc/systemd/system/redis-server.service.d/chroot.conf", NO_NAMESPACE)
        for block in page:
            if block.mark == "file":
                path = block.marked or ""
                host.write(path if path.startswith("/") else f"{HERE}/{path}", block.text)
        printed = type_page(host, page)
        for number, block in enumerate(page):
            if block.mark == "prints":
                for line in block.text.splitlines():
                    pattern = ".*".join(map(re.escape, line.split("…")))
                    assert re.search(rf"^{pattern}$", printed[number - 1], re.M), line
        for port in (8001, 8002):
            pid = host.run(f"systemctl show -P MainPID trt-responses@{port}").strip()
            command = host.run(["cat", f"/proc/{pid}/cmdline"])
            assert command.startswith("/opt/trt-responses/0.2.0/bin/")
            restarts = host.run(f"systemctl show -P NRestarts trt-responses@{port}").strip()
            assert restarts == "0"
