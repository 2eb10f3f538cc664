"""The rank's process of the stand-in: what is killed, frozen or fails, as the real one may be.

Each step of the batch goes through it and back, and its results come from a thread, as the
package's do. `cat` is such a process: it answers a line with a line, until it dies.
"""

from __future__ import annotations

import atexit
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED = "Executor worker returned error"


class Worker:
    """`error` reports its death, in the next call. Without one no error comes, and each later
    call blocks for ever, since its socket has no other end."""

    def __init__(self, error: Exception | None = None, *, step_s: float = 0.0) -> None:
        self.error = error
        self._step_s = step_s
        self.is_dead = threading.Event()
        self._advance: Callable[[], bool] = bool  # nothing to do
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._process = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        atexit.register(self.wait)

    def drive(self, advance: Callable[[], bool]) -> None:
        """Take charge of `advance`, which makes one step and says whether there is more to do."""
        self._advance = advance
        self._thread.start()

    def loaded(self) -> None:
        """Return when the model is loaded; an error where the worker died meanwhile."""
        if not self._answers():
            if self.error is None:
                threading.Event().wait()
            assert self.error is not None
            raise RuntimeError(FAILED) from self.error

    def wake(self) -> None:
        self._work.set()

    def send(self, shut_down: Callable[[], None]) -> None:
        """Tell it something: at once, or never. Its error comes out here, after a shutdown."""
        if self._process.poll() is not None:
            self.is_dead.set()
        if self.is_dead.is_set():
            if self.error is None:
                threading.Event().wait()
            assert self.error is not None
            shut_down()
            raise self.error

    def stop(self) -> None:
        """Ask it to end, and wait until it has. A frozen one never ends, and a death without an
        error is never noticed."""
        if self.is_dead.is_set() and self.error is None:
            threading.Event().wait()
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self.wait()

    def wait(self) -> None:
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def end(self) -> None:
        """End it with the test that began it; a late call raises instead of blocking."""
        self.error = self.error or RuntimeError("the test is over")
        atexit.unregister(self.wait)
        self.kill()
        self.is_dead.set()
        self.wake()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def _run(self) -> None:
        while not self.is_dead.is_set():
            self._work.wait()
            self._work.clear()
            more = True
            while more and not self.is_dead.is_set():
                more = self._answers() and self._advance()
                time.sleep(self._step_s)  # slept: a thread whose steps take time

    def _answers(self) -> bool:
        """Whether it lives. Waits for as long as it is frozen."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(OSError, ValueError):
            stdin.write(b"\n")
            if stdout.readline():
                return True
        self.is_dead.set()
        return False
