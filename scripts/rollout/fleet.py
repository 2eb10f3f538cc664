"""Two servers, the Redis that they share, and a proxy in front of them: each a process."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import httpx2 as httpx
import orjson

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

ROOT = Path(__file__).parents[2]
READY_S = 300.0
"""Two servers load two engines on the cores that the clients use, too."""
KEY, ADMIN_KEY = "rollout-key", "rollout-admin-key"
SERVED_BY = "x-served-by"
"""The header in which the proxy names the server of a reply, as HOST:PORT."""
RESUMED = re.compile(r"resuming (\S+) after (\d+) tokens \(taken over\)")
LOG_TAIL = 2000

ProxyName = Literal["haproxy", "envoy"]

HAPROXY = """
defaults
  mode http
  timeout connect 10s
  timeout check 5s
  timeout client 300s
  timeout server 300s
  retries 0
frontend front
  bind 127.0.0.1:{front}
  default_backend servers
backend servers
  balance roundrobin
  http-response set-header {served_by} %si:%sp
  option httpchk GET /health/ready
  default-server check inter 500ms fall 1 rise 1
{servers}
"""


class Program:
    """A process that is ended with the fleet; what it says goes to a file."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *command: str, **environment: str) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=inherited() | environment, stdout=log, stderr=log
            )

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def stop(self) -> None:
        """Freeze it, and wait until none of its threads runs."""
        self.signal(signal.SIGSTOP)
        assert self.process is not None
        states = os.WSTOPPED | os.WEXITED | os.WNOWAIT
        await asyncio.to_thread(os.waitid, os.P_PID, self.process.pid, states)

    async def ended(self) -> int:
        assert self.process is not None
        return await self.process.wait()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass
class Server:
    """One of the two; it keeps its port over all its lives."""

    port: int
    program: Program
    settings: dict[str, str]
    module: str = "trt_responses"
    """What is started as `python -m MODULE serve`."""
    ends: list[int] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def start(self) -> None:
        await self.program.start(
            sys.executable,
            "-m",
            self.module,
            "serve",
            "--port",
            str(self.port),
            **self.settings,
        )
        await self.ready()

    async def ready(self) -> None:
        """Wait until it takes work; raises a `RuntimeError` with its last words if it ends first,
        or does not come to it."""
        ready = asyncio.create_task(answers(f"{self.url}/health/ready"))
        ended = asyncio.create_task(self.program.ended())
        await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
        for task in (ready, ended):
            task.cancel()
        await asyncio.gather(ready, ended, return_exceptions=True)
        if ready.cancelled() or ready.exception() is not None:
            raise RuntimeError(
                f"server {self.program.name} did not get ready within {READY_S:g} s, or ended; the "
                f"end of its log:\n{self.program.text[-LOG_TAIL:]}"
            )

    async def replace(self, number: signal.Signals) -> float:
        """End it by a signal and start it anew; the seconds that its end took."""
        begun = time.monotonic()
        self.program.signal(number)
        self.ends.append(await self.program.ended())
        took = time.monotonic() - begun
        await self.start()
        return took


@dataclass
class Fleet:
    servers: Sequence[Server]
    url: str

    @property
    def resumed(self) -> dict[str, int]:
        """The background responses that a server resumed for another one, and after how many
        tokens."""
        logs = "".join(server.program.text for server in self.servers)
        return {made: int(tokens) for made, tokens in RESUMED.findall(logs)}


def inherited() -> dict[str, str]:
    """This process's environment without settings of a server's."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}


async def answers(url: str) -> None:
    """Wait until a health check is 200."""
    async with httpx.AsyncClient() as client, asyncio.timeout(READY_S):
        while True:
            with suppress(httpx.HTTPError):
                if (await client.get(url)).status_code == 200:
                    return
            await asyncio.sleep(0.1)


def missing(proxy: ProxyName) -> str | None:
    """What is not installed here, of all that a fleet needs."""
    return next((name for name in ("redis-server", proxy) if found(name) is None), None)


def found(program: str) -> str | None:
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.exists() else shutil.which(program)


@asynccontextmanager
async def fleet(
    proxy: ProxyName, folder: Path, settings: dict[str, str], module: str = "trt_responses"
) -> AsyncIterator[Fleet]:
    redis_port, front, admin, *ports = free_ports(5)
    redis = Program("redis", folder / "redis.log")
    before = Program(proxy, folder / f"{proxy}.log")
    shared = settings | {
        "TRT_RESPONSES_STORE": os.environ.get("ROLLOUT_STORE", f"redis://127.0.0.1:{redis_port}"),
        "TRT_RESPONSES_API_KEYS": f"rollout:{KEY}",
        "TRT_RESPONSES_ADMIN_KEY": ADMIN_KEY,
        "TRT_RESPONSES_SEAL_KEYS": base64.b64encode(os.urandom(32)).decode(),
        "TRT_RESPONSES_DATA_DIR": str(folder),
        "TRT_RESPONSES_LOG_LEVEL": "warning",
        "TRT_RESPONSES_LOG_FORMAT": "json",  # with whole ids
        # On a busy machine a heartbeat comes late and a response takes long: neither a lease nor a
        # drain must end what lives.
        "TRT_RESPONSES_LEASE_S": "6",
        "TRT_RESPONSES_DRAIN_S": "300",
        "TRT_RESPONSES_THREADS": "1",
    }
    servers = [
        Server(port, Program(name, folder / f"{name}.log"), shared, module)
        for name, port in zip("AB", ports, strict=True)
    ]
    try:
        await redis.start(
            str(found("redis-server")),
            *("--port", str(redis_port), "--save", "", "--bind", "127.0.0.1"),
        )
        await asyncio.gather(*(server.start() for server in servers))
        await before.start(*proxy_command(proxy, folder, front, admin, ports))
        url = f"http://127.0.0.1:{front}"
        await answers(f"{url}/health/ready")
        yield Fleet(servers, url)
    finally:
        for program in (before, *(server.program for server in servers), redis):
            await program.kill()


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def proxy_command(
    proxy: ProxyName, folder: Path, front: int, admin: int, ports: Sequence[int]
) -> tuple[str, ...]:
    program = str(found(proxy))
    if proxy == "haproxy":
        config = folder / "haproxy.cfg"
        lines = "\n".join(f"  server s{port} 127.0.0.1:{port}" for port in ports)
        config.write_text(HAPROXY.format(front=front, servers=lines, served_by=SERVED_BY))
        return program, "-db", "-f", str(config)
    config = folder / "envoy.json"
    config.write_bytes(orjson.dumps(envoy_config(front, admin, ports)))
    return program, "-c", str(config), "--log-level", "warning", "--use-dynamic-base-id"


def envoy_config(front: int, admin: int, ports: Sequence[int]) -> dict[str, object]:
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network"
        ".http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "stream_idle_timeout": "0s",
        "http_filters": [{"name": "router", "typed_config": router}],
        "route_config": {
            "response_headers_to_add": [
                {"header": {"key": SERVED_BY, "value": "%UPSTREAM_REMOTE_ADDRESS%"}}
            ],
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {"cluster": "servers", "timeout": "0s"},
                        }
                    ],
                }
            ],
        },
    }
    check = {
        "timeout": "5s",
        "interval": "0.5s",
        "no_traffic_interval": "0.5s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/health/ready"},
    }
    endpoints = [{"endpoint": {"address": address(port)}} for port in ports]
    return {
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": [
                {
                    "address": address(front),
                    "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                }
            ],
            "clusters": [
                {
                    "name": "servers",
                    "connect_timeout": "10s",
                    "type": "STATIC",
                    "health_checks": [check],
                    # Else half of the servers being away lets it send work to any of them.
                    "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
                    "load_assignment": {
                        "cluster_name": "servers",
                        "endpoints": [{"lb_endpoints": endpoints}],
                    },
                }
            ],
        },
    }


def address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
