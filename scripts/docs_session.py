"""One reader's session: a page's blocks typed in order into one shell, in an empty directory.

Variables and servers live on from block to block. A second `serve` on a port first stops the one
before, as Ctrl-C does. Ports and the machine's folders (`/etc`, `/opt`, `/var`) are the session's
own, and `sudo`, `useradd` and `systemctl` are stand-ins: see `scripts/docs_systemctl.py`.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.docs_blocks import RUN, CommandFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scripts.docs_blocks import Block

SERVE = re.compile(
    r"^(?:[A-Z_]+=\S+ )*(?:trt-responses|make) serve\b(?!.*--print-settings)[^&#\n]*&?", re.M
)
READY = 'curl -sf -o /dev/null "$SERVER/health/ready"'
WAIT = f"for _ in $(seq 1000); do {READY} && break; sleep 0.2; done; {READY}"
PATIENCE_S = 300
DONE = "end of block"
ADDRESS = re.compile(r"(127\.0\.0\.1|localhost):(\d{3,4})\b")
PORT = re.compile(r"(--port |_PORT=|bind \*:|trt-responses@)(\d{3,4})\b")
FOLDER = re.compile(r"(?<![\w./-])/(etc|opt|var|models)/")
STAND_INS = {
    "sudo": '[ "$1" != -u ] || shift 2; exec "$@"',
    **dict.fromkeys(("useradd", "chown", "apt-get"), "exit 0"),
    "systemctl": f'exec {sys.executable} -m scripts.docs_systemctl "$@"',
}


class Session:
    """A shell that types the blocks of one page."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._root = directory / ".root"
        self._ports: dict[str, int] = {}
        self._printed: str | None = ""
        """What the last commands printed; None if they were not run."""
        self._blocks = 0
        self._write_stand_ins()
        path = f"{self._root / 'bin'}:{environment['PATH']}"
        self._shell = subprocess.Popen(
            ["bash", "-euo", "pipefail"],
            cwd=directory,
            env={**environment, **self._own(), "PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, block: Block) -> None:
        """Type it, save it, or compare what was printed; raises `CommandFailed`."""
        if block.mark == "prints" and self._printed is not None:
            self._compare(block, self._printed)
        elif block.mark == "file":
            self._save(block)
        elif block.language in RUN:
            self._printed = self._type(block) if block.is_run else None

    def close(self) -> None:
        """End the shell and everything that it has started."""
        end(self._shell)
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _own(self) -> dict[str, str]:
        return {
            "TRT_RESPONSES_PORT": str(self._port("8000")),
            "DOCS_ROOT": str(self._root),
            "DOCS_REDIS_PORT": str(self._port("6379")),
        }

    def _write_stand_ins(self) -> None:
        folder = self._root / "bin"
        folder.mkdir(parents=True)
        for name, text in STAND_INS.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
        for name in ("etc/haproxy", "etc/systemd/system", "var/lib/trt-responses"):
            (self._root / name).mkdir(parents=True)
        for version in ("0.1.0", "0.2.0"):  # as pip leaves them
            installed = self._root / "opt/trt-responses" / version
            installed.mkdir(parents=True)
            for name in ("bin", "lib", "pyvenv.cfg"):
                (installed / name).symlink_to(Path(sys.prefix) / name)

    def _port(self, shown: str) -> int:
        if shown not in self._ports:
            self._ports[shown] = free_port()
        return self._ports[shown]

    def _here(self, text: str) -> str:
        """The text with this session's ports and folders."""
        text = ADDRESS.sub(lambda found: f"{found[1]}:{self._port(found[2])}", text)
        text = PORT.sub(lambda found: f"{found[1]}{self._port(found[2])}", text)
        return FOLDER.sub(lambda found: f"{self._root}/{found[1]}/", text)

    def _save(self, block: Block) -> None:
        path = self._directory / self._here(block.marked or "")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(block.text), "utf-8")

    def _type(self, block: Block) -> str:
        self._blocks += 1
        script = self._root / f"block-{self._blocks}"
        text = self._here(block.text)
        script.write_text(text if block.language == "python" else self._serving(text), "utf-8")
        typed = f"python {script}" if block.language == "python" else f". {script}"
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{typed} </dev/null\necho '{DONE}'\n".encode())
        self._shell.stdin.flush()
        printed, is_whole = self._read()
        if not is_whole:
            raise CommandFailed(f"{block}: failed\n{printed[-3000:]}")
        return printed

    def _serving(self, text: str) -> str:
        """The commands of a reader who stops the server before, and waits for the next one."""

        def in_background(found: re.Match[str]) -> str:
            named = re.search(r"--port (\d+)", found[0])
            port = int(named[1]) if named else self._port("8000")
            stop = f"kill -INT ${{SERVED_{port}}} && wait ${{SERVED_{port}}} || true"
            wait = WAIT.replace("$SERVER", f"http://127.0.0.1:{port}")
            return (
                f'[ -z "${{SERVED_{port}:-}}" ] || {{ {stop}; }}\n'
                f"{found[0].rstrip(' &')} &\nSERVED_{port}=$!\n{wait} #"
            )

        return SERVE.sub(in_background, text)

    def _read(self) -> tuple[str, bool]:
        """What the shell prints until the block's end, and whether it came to that."""
        assert self._shell.stdout is not None
        printed, end_of_block = b"", f"{DONE}\n".encode()
        deadline = time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._shell.stdout, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0 and selector.select(left):
                read = os.read(self._shell.stdout.fileno(), 65536)
                printed += read
                if end_of_block in printed:
                    return printed.replace(end_of_block, b"").decode(errors="replace"), True
                if not read:
                    break
        return printed.decode(errors="replace"), False

    def _compare(self, block: Block, printed: str) -> None:
        lines = iter(printed.splitlines())
        for shown in block.text.splitlines():
            pattern = re.compile(".*".join(map(re.escape, self._here(shown).split("…"))))
            if not any(pattern.fullmatch(line.rstrip()) for line in lines):
                raise CommandFailed(f"{block}: no line {shown!r} in:\n{self._printed}")


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
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
