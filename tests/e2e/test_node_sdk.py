"""What Zod describes, through `.parse()` of openai-node, on the trained demo model.

Runs where `node` finds the packages `openai` and `zod` (`NODE_PATH` says where they are), and is
skipped elsewhere. Versions that were run stand in `docs/clients.md`. Budget: 20 s on one core.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from anyio.from_thread import start_blocking_portal

from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parents[1] / "data" / "node" / "parse.cjs"
PATIENCE_S = 300


def missing() -> str | None:
    """What this machine lacks; None where all is there."""
    node = shutil.which("node")
    if node is None:
        return "no node"
    packages = "require('openai/helpers/zod'); require('zod').z.email()"
    found = subprocess.run([node, "-e", packages], cwd=SCRIPT.parent, capture_output=True)
    return "node finds no packages openai and zod (NODE_PATH)" if found.returncode else None


pytestmark = [
    pytest.mark.xdist_group("embedded"),
    pytest.mark.skipif(missing() is not None, reason=f"{missing()}"),
]


@pytest.fixture(scope="module")
def base_url(demo_gguf: Path) -> Iterator[str]:
    engine = LlamaCppEngine(demo_gguf, context_tokens=2048, slots=1, threads=1)
    app = create_app(Settings(), engine=engine)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(app)) as address,
    ):
        yield f"{address.url}/v1"


def test_all_that_zod_describes_is_parsed_by_the_node_sdk(base_url: str) -> None:
    """Eight shapes: an answer, a stream, a tool's arguments, a chat completion of each."""
    ran = subprocess.run(
        ["node", str(SCRIPT), base_url],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one for one in told if one["fault"]] == [], ran.stderr
    assert Counter(one["way"] for one in told) == dict.fromkeys(
        ("plain", "stream", "tool", "chat"), 8
    )
    assert all(isinstance(one["parsed"], dict) for one in told)
