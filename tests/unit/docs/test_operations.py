"""The page of operations names every metric there is, and no other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.support.metrics_judge import read_text
from tests.support.served import served
from trt_responses.features.limits.key_file import changing

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def test_every_metric_stands_in_the_table(tmp_path: Path) -> None:
    with changing(tmp_path / "keys.json") as write:
        write([])

    async def story() -> bytes:
        async with served(keys_file=tmp_path / "keys.json", data_dir=tmp_path) as s:
            return (await s.client.get("/metrics")).body

    said = asyncio.run(story()).decode()
    shown = re.findall(r"^# TYPE trt_responses_(\S+)", said, re.MULTILINE)
    assert len(shown) == len(set(shown)) > 20
    assert read_text(said.encode())
    section = PAGE.read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(shown)


def test_every_alias_that_is_served_is_named() -> None:
    page = re.sub(r"\s+", " ", PAGE.read_text())
    whole = page.replace("`_waiting`", "`trtllm_num_requests_waiting`")
    for names in re.findall(r"trtllm_\w*\{[^}]*\}\w*", page):
        head, inner, tail = re.split(r"[{}]", names)
        whole += " ".join(f"{head}{each}{tail}" for each in inner.split(","))

    async def story() -> bytes:
        async with served() as s:
            return (await s.client.get("/metrics")).body

    said = asyncio.run(story()).decode()
    for alias in re.findall(r"^# TYPE (trtllm_\S+)", said, re.MULTILINE):
        assert alias in whole, alias
