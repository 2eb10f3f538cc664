"""The page of metrics names every metric that is served, and no other."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.metrics_judge import read_text
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, script, served
from tests.support.several import several_served
from trt_responses.features.limits.key_file import changing

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_every_metric_stands_in_the_table(tmp_path: Path) -> None:
    with changing(tmp_path / "keys.json") as write:
        write([])

    async def story() -> bytes:
        settings: dict[str, Any] = {"keys_file": tmp_path / "keys.json", "data_dir": tmp_path}
        engine = partial(ScriptedEngine, [script(ANSWER)])
        async with several_served({"demo": [engine]}, **settings) as s:
            return (await s.client.get("/metrics")).body

    said = asyncio.run(story()).decode()
    shown = re.findall(r"^# TYPE trt_responses_(\S+)", said, re.MULTILINE)
    assert len(shown) == len(set(shown)) > 20
    assert read_text(said.encode())
    section = PAGE.read_text().partition("\n## Names\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(shown)


@pytest.mark.parametrize("prefix", ["trtllm_", "vllm:"])
def test_every_alias_that_is_served_is_named(prefix: str) -> None:
    async def story() -> bytes:
        async with served() as s:
            return (await s.client.get("/metrics")).body

    section = PAGE.read_text().partition("\n## Names of other servers\n")[2]
    listed = set(re.findall(r"`(\w+)`", section))
    shown = re.findall(rf"^# TYPE {prefix}(\S+)", asyncio.run(story()).decode(), re.MULTILINE)
    assert len(shown) > 10
    assert set(shown) <= listed
