"""A TCP proxy that is as bad as networks are: it slows, splits, cuts and forgets connections."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WAYS = ("fair", "slow", "split", "cut", "reset", "half-open")
"""`half-open`: from some byte on nothing passes any more, and neither end gets a signal of it."""
PAUSE_S = 0.02
RESET = struct.pack("ii", 1, 0)
"""Lingering for no time: closing sends a reset."""


class BadProxy:
    """Connections are treated the ways in turn; a seed decides at which byte."""

    def __init__(self, target: int, seed: int) -> None:
        self._target = target
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self.treated = dict.fromkeys(WAYS, 0)
        self._open: list[socket.socket] = []

    @contextmanager
    def running(self) -> Iterator[BadProxy]:
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listening.close()
            for each in self._open:
                each.close()

    def _accept(self) -> None:
        ways = cycle(WAYS)
        with suppress(OSError):  # it is closed when the run is over
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += (near, far)
                way = next(ways)
                self.treated[way] += 1
                for source, sink in ((near, far), (far, near)):
                    after = self._chance.randrange(1, 3000)
                    pump = threading.Thread(
                        target=_pump, args=(source, sink, way, after), daemon=True
                    )
                    pump.start()


def _pump(source: socket.socket, sink: socket.socket, way: str, after: int) -> None:
    """One direction. `after` so many bytes a fault begins."""
    passed = 0
    with suppress(OSError):
        while data := source.recv(1 if way == "split" else 512):
            if way == "slow":
                time.sleep(PAUSE_S)
            passed += len(data)
            if way in ("cut", "reset") and passed > after:
                if way == "reset":
                    sink.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sink.sendall(data[: len(data) // 2])
                for end in (sink, source):
                    end.shutdown(socket.SHUT_RDWR)
                    end.close()
                return
            if way != "half-open" or passed <= after:
                sink.sendall(data)
        if way != "half-open":
            sink.shutdown(socket.SHUT_WR)
