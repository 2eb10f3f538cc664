"""The program of docs/embedding.md, run as it stands there. Budget: 10 s."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import orjson

from tests.support.asgi import PATIENCE_S, asked
from tests.support.raw_http import Wire
from tests.support.serving import Address

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "embedding.md"


def test_the_program_of_the_page_answers(engines_dir: Path, tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for line in program.splitlines() if line]
    assert len(lines) <= 10
    assert "port=8000" in lines[-1]
    (tmp_path / "engines").symlink_to(engines_dir)

    async def story() -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program.replace("port=8000", "port=0")),
            cwd=tmp_path,
            env=inherited | {"PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                said = ""
                while not (found := re.search(r"running on http://([\d.]+):(\d+)", said)):
                    line = await process.stderr.readline()
                    assert line, said
                    said += line.decode()
                async with Wire.to(Address(found[1], int(found[2]))) as wire:
                    body = orjson.dumps(asked(model="tiny", max_output_tokens=5))
                    wire.send(
                        b"POST /llm/v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                        b"content-type: application/json\r\n"
                        b"content-length: %d\r\n\r\n%b" % (len(body), body)
                    )
                    assert await wire.status() == 200
                process.terminate()
                await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        assert (tmp_path / "responses.db").exists()

    asyncio.run(story())
