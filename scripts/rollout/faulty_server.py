"""`trt-responses serve` with engines that have a fault: `python -m scripts.rollout.faulty_server`.

By the number of an engine's version: SLOW takes three times as long for everything, DIES kills its
own process within its third request, and KILLED kills the first server that loads it, when the
pointer has moved and no response is its own yet. All else is the real server over the real engine.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.versions import Faulty
from trt_responses.cli.main import main
from trt_responses.features.rollout import shelf_builds as builds
from trt_responses.features.rollout.versions import Versions

if TYPE_CHECKING:
    from trt_responses.engine import Engine
    from trt_responses.features.rollout.loaded import Loaded
    from trt_responses.features.rollout.shelf_builds import EngineOf
    from trt_responses.prepare.shelf.shelf import Selection
    from trt_responses.settings import Settings

SLOW, DIES, KILLED = 4, 5, 6
TIMES_SLOWER = 3.0
DEADLY_REQUEST = 3

real_loaded, real_promote = builds.loaded, Versions.promote


def spoiled(selection: Selection, settings: Settings, engine_of: EngineOf) -> Loaded:
    def engine(chosen: Selection, given: Settings) -> Engine:
        made = engine_of(chosen, given)
        if chosen.card.number == SLOW:
            return Faulty(made, factor=TIMES_SLOWER)
        if chosen.card.number == DIES:
            return Faulty(made, dies_at=DEADLY_REQUEST, kill=kill_newest_engine)
        return made

    return real_loaded(selection, settings, engine)


def kill_newest_engine() -> None:
    """The process of the engine that was started last: versions are loaded one at a time."""
    children = [
        int(child)
        for task in Path("/proc/self/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    os.kill(max(children, key=started), signal.SIGKILL)


def started(pid: int) -> int:
    """When a process was started, in ticks since the boot: process ids are given out anew."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def killed(self: Versions, loaded: Loaded) -> None:
    mark = Path(os.environ["TRT_RESPONSES_DATA_DIR"]) / "killed"
    if loaded.version.number == KILLED and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    real_promote(self, loaded)


if __name__ == "__main__":
    builds.loaded = spoiled
    Versions.promote = killed  # type: ignore[method-assign]
    sys.exit(main())
