"""`make docs-check`: runs the commands of README and `docs/` as a reader would type them.

A fence that says `sh` or `python` is run, the fences of a page one after the other in one
directory. A comment above a fence says why it is not: `<!-- not run: needs a GPU -->`. What a page
calls `127.0.0.1:8000` is a server with the demo, or the one that the commands start themselves;
`/models/gpt-oss-20b` is a tiny random checkpoint. The fences of a tutorial are one session
(`scripts/docs_session.py`).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from openai import OpenAI

from scripts.checkpoints import Recipe, write_checkpoint
from scripts.docs_blocks import PAGES, ROOT, RUN, CommandFailed, blocks, is_in_order
from scripts.docs_session import SERVE, WAIT, Session, end, free_port, waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scripts.docs_blocks import Block

PATIENCE_S = 300
__all__ = ["ROOT", "Reader", "blocks"]


class Reader:
    """Someone with this project installed, a new home directory and a server with the demo."""

    def __init__(self, home: Path, engines: Path | None = None) -> None:
        """`engines` are prepared; a copy of them is this reader's."""
        self.home = home
        self.engines = home / "engines"
        if engines is not None:
            shutil.copytree(engines, self.engines)
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
        with OpenAI(base_url=f"http://{self.demo}/v1", api_key="none") as client:
            self._response = client.responses.create(model="demo", input="Hello!").id

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    def run(self, block: Block, directory: Path) -> None:
        """Run it, if it is to be run here; raises `CommandFailed` with what it printed."""
        if block.reason is not None:
            return
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
            output = printed.read().decode(errors="replace")
        if ended:
            raise CommandFailed(f"{block}: {ended}\n{output[-2000:]}")

    def session(self, directory: Path, *, again: bool = False) -> Session:
        """A new session of this reader, in a new directory and without a server. `again`: the demo
        is prepared, as by a reader of an earlier page."""
        directory.mkdir()
        models = directory / ".root" / "models"
        models.mkdir(parents=True)
        (models / "gpt-oss-20b").symlink_to(self.home / "models/gpt-oss-20b")
        settings = self._settings(self.demo)
        for name in ("OPENAI_BASE_URL", "TRT_RESPONSES_DATA_DIR"):
            del settings[name]
        if not again:
            del settings["TRT_RESPONSES_ENGINES_DIR"]
        return Session(directory, settings)

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
                failed += check(someone, page, home / page.stem)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 1 if failed else 0


def check(someone: Reader, page: Path, directory: Path) -> int:
    """Run a page's blocks and print how each went; returns how many failed."""
    if is_in_order(page):
        session = someone.session(directory)
        try:
            return int(not all(succeeds(block, session.run) for block in blocks(page)))
        finally:
            session.close()
    directory.mkdir(exist_ok=True)
    run = partial(someone.run, directory=directory)
    typed = [b for b in blocks(page) if b.language in RUN and b.mark in (None, "needs", "not run")]
    return sum(not succeeds(block, run) for block in typed)


def succeeds(block: Block, run: Callable[[Block], None]) -> bool:
    """Run one block, if it has no reason against it, and print how it went."""
    begun = time.monotonic()
    try:
        run(block)
    except CommandFailed as fault:
        print(f"{fault}\n{block}  FAILED")
        return False
    how = f"not run: {block.reason}" if block.reason else f"ok, {time.monotonic() - begun:.1f} s"
    print(f"{block}  {how}")
    return True


if __name__ == "__main__":
    sys.exit(main())
