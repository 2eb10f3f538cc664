"""Starts each server in processes of its own, over an engine that plays; ends them all.

The other servers and their mock engine are those of the conformance kit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from responses_conformance.peers.installed import SMG, VLLM
from responses_conformance.peers.start import Server, process, rust_vllm, smg

from bench.asks import MODEL
from bench.servers.plays import KINDS, REQUESTS, given
from bench.timing import children_of
from trt_responses.tokens.vocabulary import ENCODINGS_BASE, RANKS_FILE, cache_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from bench.servers.plays import Play
    from trt_responses.tokens.vocabulary import Vocabulary

    Starter = Callable[[Vocabulary, Mapping[str, Play]], AbstractContextManager["Server"]]

CHAT, RESPONSES = "chat", "Responses"


def ours(frontends: int, *, unlike: bool = False, sqlite: bool = False) -> Starter:
    """This server, with so many front ends over one engine process; `unlike`: no two of its
    answers are alike."""

    @contextmanager
    def start(vocabulary: Vocabulary, plays: Mapping[str, Play]) -> Iterator[Server]:
        with _folder() as folder, ExitStack() as stack:
            store = "sqlite" if sqlite or frontends > 1 else "memory"
            (folder / "plays.json").write_text(json.dumps(given(plays) | {"unlike": unlike}))
            command = (sys.executable, "-m", "bench.servers.ours", str(folder / "plays.json"))
            begun = stack.enter_context(
                process(*command, str(frontends), store, str(folder), says=subprocess.PIPE)
            )
            assert begun.stdout is not None
            hello = begun.stdout.readline()
            if (found := re.search(r":(\d+) is ready", hello)) is None:
                raise RuntimeError(f"it did not start: {hello!r}")
            yield Server(int(found[1]), _front_ends(begun.pid, frontends), (begun,))

    return start


def _front_ends(pid: int, count: int) -> tuple[int, ...]:
    if count == 1:
        return (pid,)
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children_of(pid)}
    return tuple(child for child, line in commands.items() if b"fleet.front_end" in line)


def over_core(server: Callable[..., AbstractContextManager[Server]]) -> Starter:
    """A server of another's make over the mock of vLLM's engine core."""

    @contextmanager
    def start(_: Vocabulary, plays: Mapping[str, Play]) -> Iterator[Server]:
        os.environ.setdefault(ENCODINGS_BASE, str(_ranks()))
        with server(given(plays), MODEL) as begun:
            yield begun

    return start


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _ranks() -> Path:
    """The folder of o200k's ranks, which this server's own start has left behind."""
    named = os.environ.get(ENCODINGS_BASE)
    places = [Path(named)] if named else cache_places()
    return next(place for place in places if (place / RANKS_FILE).exists())


@dataclass(frozen=True, slots=True)
class Contender:
    """One API of one server, by its name in tables."""

    name: str
    start: Starter
    api: str
    kinds: tuple[str, ...] = KINDS


ONE, TWO = ours(1), ours(2)

CONTENDERS: dict[str, tuple[Contender, ...]] = {
    "ours": (
        Contender("this server, chat", ONE, CHAT),
        Contender("this server, Responses", ONE, RESPONSES),
        Contender("this server, chat, 2 front ends", TWO, CHAT, (REQUESTS,)),
    ),
    "vllm-rs": (Contender(f"{VLLM.replace('==', '-rs ')}, chat", over_core(rust_vllm), CHAT),),
    "smg": (
        Contender(f"{SMG.upper().replace('==', ' ')}, chat", over_core(smg), CHAT),
        Contender(f"{SMG.upper().replace('==', ' ')}, Responses", over_core(smg), RESPONSES),
    ),
}
"""By the name that `--peers` takes; `ours` is always among them."""
