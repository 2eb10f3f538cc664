"""`make docs-check`: runs the commands of README and `docs/` as a reader would type them.

A fence that says `sh` or `python` is run, the fences of a page one after the other in one
directory. A comment above a fence says why it is not: `<!-- not run: needs a GPU -->`. What a page
calls `127.0.0.1:8000` is a server with the demo, or the one that the commands start themselves;
`/models/gpt-oss-20b` is a tiny random checkpoint.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from openai import OpenAI

from scripts.checkpoints import Recipe, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RUN = ("sh", "python")
SHOWN = ("text", "json", "toml", "js")
"""Languages of fences that hold no command of ours; what `js` needs comes from npm."""
REASONS = (
    *("needs a GPU", "needs Docker", "needs a cluster", "needs a download", "needs a real model"),
    *("needs a search service", "needs an OTLP receiver", "needs a server of yours"),
    *("needs a terminal", "needs another package", "tests/e2e/test_embedding.py does"),
    "tests/e2e/test_extending.py does",
)
PATIENCE_S = 300
FENCE = re.compile(r"(?:^<!-- not run: (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
SERVE = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:trt-responses|make) serve\b[^&#\n]*&?", re.M)
WAIT = 'curl -sf -o /dev/null --retry 200 --retry-delay 1 --retry-all-errors "$SERVER/health/ready"'


@dataclass(frozen=True)
class Block:
    """One fence of a page."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None
    """Why it is not run here."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.reason is None


class CommandFailed(Exception):
    """What a page tells the reader to type does not work."""


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(page, line, found[2], found[3], found[1])


class Reader:
    """Someone with this project installed, a new home directory and a server with the demo."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.engines = home / "engines"
        self.demo = f"127.0.0.1:{free_port()}"
        self._server: subprocess.Popen[bytes] | None = None
        self._response = ""
        (home / "empty").mkdir(parents=True)
        write_checkpoint(home / "models/gpt-oss-20b", Recipe())

    def start(self) -> None:
        """Serve the demo, and have one answer to speak of."""
        self._server = subprocess.Popen(
            [sys.executable, "-m", "trt_responses", "serve"],
            env=self._settings(self.demo),
            cwd=self.home / "empty",
            stdout=subprocess.DEVNULL,
        )
        there = {**os.environ, "SERVER": f"http://{self.demo}"}
        subprocess.run(["sh", "-c", WAIT], env=there, check=True)
        client = OpenAI(base_url=f"http://{self.demo}/v1", api_key="none")
        self._response = client.responses.create(model="demo", input="Hello!").id

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    def run(self, block: Block, directory: Path) -> None:
        """Run it; raises `CommandFailed` with what it printed."""
        address = f"127.0.0.1:{free_port()}" if SERVE.search(block.text) else self.demo
        text = self._here(block.text, address)
        if block.language == "python":
            command = [sys.executable, "-c", text]
        else:
            command = ["bash", "-euo", "pipefail", "-c", waiting(text)]
        where = ROOT if re.search(r"^make |deploy/|scripts\.", text, re.M) else directory
        with tempfile.TemporaryFile() as printed:
            made = subprocess.Popen(
                command,
                cwd=where,
                env=self._settings(address) | {"SERVER": f"http://{address}"},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = made.wait(PATIENCE_S)
                ended = f"status {status}" if status else ""
            except subprocess.TimeoutExpired:
                ended = f"not over after {PATIENCE_S} s"
            finally:
                end(made)
            printed.seek(0)
            said = printed.read().decode(errors="replace")
        if ended:
            raise CommandFailed(f"{block}: {ended}\n{said[-2000:]}")

    def _here(self, text: str, address: str) -> str:
        """The commands with this reader's address, checkpoint and response."""
        text = re.sub(r"(127\.0\.0\.1|localhost):800[01]", address, text)
        text = text.replace("--port 8001 ", "").replace("/models", str(self.home / "models"))
        return text.replace("resp_…", self._response)

    def _settings(self, address: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
        bin_dir = Path(sys.executable).parent
        return inherited | {
            "HOME": str(self.home),
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "MAKEFLAGS": f" -- BIN={bin_dir} ENV= DEV= GRAPHS=",
            "OPENAI_BASE_URL": f"http://{address}/v1",
            "OPENAI_API_KEY": "none",
            "TRT_RESPONSES_LOG_LEVEL": "warning",
            "TRT_RESPONSES_PORT": address.rpartition(":")[2],
            "TRT_RESPONSES_ENGINES_DIR": str(self.engines),
            "TRT_RESPONSES_DATA_DIR": str(self.home / "data" / address.replace(":", "_")),
        }


def waiting(text: str) -> str:
    """The commands of someone who waits until a server is ready, and stops it when all is done."""

    def in_background(found: re.Match[str]) -> str:
        return f"{found[0].rstrip(' &')} &\n{WAIT} #"

    return SERVE.sub(in_background, text) + "\nkill %% 2>/dev/null || true"


def end(made: subprocess.Popen[bytes]) -> None:
    """Whatever the commands started goes with them."""
    try:
        os.killpg(made.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    made.wait()


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@contextmanager
def reader(home: Path) -> Iterator[Reader]:
    new = Reader(home)
    try:
        new.start()
        yield new
    finally:
        new.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the commands of README and docs.")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES, help="all, if none is named")
    failed = 0
    home = Path(tempfile.mkdtemp(prefix="docs-"))
    try:
        with reader(home) as someone:
            for page in parser.parse_args().pages:
                failed += sum(not told(someone, block, home / page.stem) for block in blocks(page))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 1 if failed else 0


def told(someone: Reader, block: Block, directory: Path) -> bool:
    """Run one block and print how it went."""
    if block.language not in RUN:
        return True
    if block.reason is not None:
        print(f"{block}  not run: {block.reason}")
        return True
    directory.mkdir(exist_ok=True)
    begun = time.monotonic()
    try:
        someone.run(block, directory)
    except CommandFailed as fault:
        print(f"{fault}\n{block}  FAILED")
        return False
    print(f"{block}  ok, {time.monotonic() - begun:.1f} s")
    return True


if __name__ == "__main__":
    sys.exit(main())
