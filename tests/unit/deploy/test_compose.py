"""The compose files ask for nothing that they do not bring."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types

from tests.support import compose
from tests.support.imports import ROOT
from trt_responses.backends.keys import check_exposure
from trt_responses.settings import Settings

Json = dict[str, Any]

FILES = (("compose.yaml",), ("compose.yaml", "compose.search.yaml"))
PORTS = {"server": 8000, "redis": 6379, "prometheus": 9090, "grafana": 3000, "searxng": 8080}
"""Where each image listens by its own documentation."""
PAGE = ROOT / "docs" / "compose.md"
MONITORING = ROOT / "deploy" / "monitoring"
HOST = re.compile(r"\b(?:redis|http)://([a-z]+):(\d+)")


def unknown(services: dict[str, Json], text: str) -> list[str]:
    """Hosts that no service has, or at a port of another one."""
    found = HOST.findall(text)
    return [f"{h}:{p}" for h, p in found if h not in services or PORTS[h] != int(p)]


@pytest.mark.parametrize("names", FILES)
def test_every_name_is_brought(names: tuple[str, ...]) -> None:
    whole = compose.read(*names, key="me:key")
    services = whole["services"]
    assert unknown(services, yaml.safe_dump(services)) == []
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services)
        for source, _ in compose.mounts(service):
            assert source.exists(), source
        named = [v.partition(":")[0] for v in service.get("volumes", ()) if v[0] not in "./"]
        assert set(named) <= set(whole["volumes"])
        for port in service.get("ports", ()):
            address, outside, inside = port.split(":")
            assert (address, int(inside)) == ("127.0.0.1", PORTS[name])
            assert f"http://127.0.0.1:{outside}" in PAGE.read_text("utf-8")
        if "healthcheck" not in service:
            for other in services.values():
                waited = other.get("depends_on", {}).get(name, {})
                assert waited.get("condition") != "service_healthy"


def test_a_name_that_is_missing_is_seen() -> None:
    services = compose.services(key="me:key")
    assert unknown(services, "http://searxng:8080 redis://redis:6380") == [
        "searxng:8080",
        "redis:6380",
    ]


@pytest.mark.parametrize("names", FILES)
def test_the_servers_settings_hold(names: tuple[str, ...]) -> None:
    given = compose.services(*names, key="me:key")["server"]["environment"]
    settings = Settings.from_environment(given)
    check_exposure(settings)
    scrape = yaml.safe_load((MONITORING / "compose.yml").read_text("utf-8"))["scrape_configs"][0]
    for target in scrape["static_configs"][0]["targets"]:
        host, _, port = target.partition(":")
        assert host in settings.allowed_hosts
        assert PORTS[host] == int(port)


def test_searxng_answers_json_which_the_server_asks_for() -> None:
    given = yaml.safe_load((ROOT / "deploy/searxng/settings.yml").read_text("utf-8"))
    assert "json" in given["search"]["formats"]
    assert given["server"]["limiter"] is False
    assert given["server"]["secret_key"] != "ultrasecretkey"  # with which SearXNG does not start


def test_grafana_finds_its_dashboard_and_its_prometheus() -> None:
    services = compose.services(key="me:key")
    targets = {target for _, target in compose.mounts(services["grafana"])}
    provisioned = MONITORING / "grafana"
    boards = yaml.safe_load((provisioned / "dashboards/trt_responses.yaml").read_text("utf-8"))
    folder = boards["providers"][0]["options"]["path"]
    assert f"{folder}/trt_responses.json" in targets
    assert "/etc/grafana/provisioning" in targets
    sources = (provisioned / "datasources/prometheus.yaml").read_text("utf-8")
    assert unknown(services, sources) == []
    assert HOST.findall(sources)
    assert json.loads((MONITORING / "dashboard.json").read_text("utf-8"))["panels"]
