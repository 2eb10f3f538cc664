"""A stand-in for `systemctl` in the sessions of `scripts/docs_session.py`: starts what units say.

It knows templates (`name@8001`), `Environment`, `EnvironmentFile`, `WorkingDirectory`, `ExecStart`
and `Type=notify`, and two services of the distribution, `haproxy` and `redis-server`. Folders are
those below `$DOCS_ROOT`. A service belongs to the shell's process group, which the session ends.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(os.environ.get("DOCS_ROOT", "/nonexistent"))
START_S = 120
UNITS = ROOT / "etc/systemd/system"


class Service:
    """One service: how it starts, and the process that runs for it."""

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(".service")
        self._pid = ROOT / f"{self.name}.pid"

    def start(self) -> None:
        if self._process() is None:
            self._pid.write_text(str(self._run()))

    def stop(self) -> None:
        process = self._process()
        if process is None:
            return
        os.kill(process, signal.SIGTERM)
        while is_running(process):
            time.sleep(0.05)

    def restart(self) -> None:
        self.stop()
        self.start()

    def reload(self) -> None:
        """HAProxy's way: the master takes up the file again."""
        process = self._process()
        assert process is not None, f"{self.name} does not run"
        os.kill(process, signal.SIGUSR2)

    def _process(self) -> int | None:
        if not self._pid.exists():
            return None
        process = int(self._pid.read_text())
        return process if is_running(process) else None

    def _run(self) -> int:
        if self.name == "haproxy":
            return started(["haproxy", "-W", "-f", str(ROOT / "etc/haproxy/haproxy.cfg")])
        if self.name == "redis-server":
            return started(["redis-server", str(redis_configuration())])
        return self._run_unit()

    def _run_unit(self) -> int:
        template, _, instance = self.name.partition("@")
        path = UNITS / (f"{template}@.service" if instance else f"{template}.service")
        unit = read_unit(path.read_text("utf-8").replace("%i", instance))
        environment = dict(
            line.split("=", 1) for lines in unit["Environment"] for line in shlex.split(lines)
        )
        for file in unit["EnvironmentFile"]:
            environment |= read_environment(Path(file.removeprefix("-")))
        folder = Path(unit["WorkingDirectory"][-1])
        (command,) = unit["ExecStart"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
            news.bind(f"\0{ROOT}/{self.name}-{os.getpid()}")
            news.settimeout(START_S)
            environment["NOTIFY_SOCKET"] = f"@{ROOT}/{self.name}-{os.getpid()}"
            process = started(shlex.split(command), environment, folder)
            while unit["Type"] == ["notify"] and not news.recv(1000).startswith(b"READY=1"):
                pass
        return process


def redis_configuration() -> Path:
    """A file that the server can also rewrite."""
    path = ROOT / "etc/redis.conf"
    if not path.exists():
        path.write_text(f'port {os.environ["DOCS_REDIS_PORT"]}\nsave ""\ndir {ROOT}\n')
    return path


def started(command: list[str], more: dict[str, str] | None = None, at: Path = ROOT) -> int:
    """The process of a command, with what it prints in a file."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
    with (ROOT / "services.log").open("ab") as log:
        made = subprocess.Popen(
            command,
            cwd=at,
            env={**inherited, **(more or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return made.pid


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return False
    return state != "Z"


def read_unit(text: str) -> defaultdict[str, list[str]]:
    """Every value of each key of a unit, whatever its section."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.M):
        found[key].append(value)
    return found


def read_environment(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def main() -> int:
    action, *names = [word for word in sys.argv[1:] if not word.startswith("--")]
    verbs = {"enable": "start", "disable": "stop", "is-active": "_process"}
    for name in names:
        service = Service(name)
        getattr(service, verbs.get(action, action))()
    return 0 if names or action == "daemon-reload" else 2


if __name__ == "__main__":
    sys.exit(main())
