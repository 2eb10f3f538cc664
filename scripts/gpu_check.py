"""What compiled plans do on this machine's GPU, step by step, one JSON line each.

`python -m scripts.gpu_check [STEP …] [--soak SECONDS]`. Every step compares with the CPU or times
something; none writes outside a temporary directory or changes a setting of the GPU. Without a
driver, or on a GPU that TensorRT-RTX does not know, the steps say "not run" and why. Statuses: ok,
differs (a comparison failed), failed (it could not be done), not run. The exit status is 1 when a
step differs or failed, else 0. All of them together stay below half an hour.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.gpu_steps import STEPS, Differs, Here, soak
from trt_responses.engines.tensorrt.cuda import Cuda, runtime
from trt_responses.engines.tensorrt.executor import ExecutorFault
from trt_responses.errors import StartupError
from trt_responses.prepare.hardware import visible_gpus
from trt_responses.prepare.machine import library_versions
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.tensorrt.binding import binding
from trt_responses.prepare.tensorrt.targets import TARGETS
from trt_responses.tokens.vocabulary import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scripts.gpu_steps import Figures

LIMIT_S = 300
"""Of one step; the soak has its own."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Ends longer work, with an error that says so."""

    def ended(number: int, frame: object) -> None:
        raise TimeoutError(f"it took longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(int(seconds))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def report(name: str, status: str, **figures: object) -> bool:
    """Print one line. Returns whether the step is no reason to fail."""
    print(json.dumps({"step": name, "status": status, **figures}), flush=True)
    return status in ("ok", "not run")


def tried(name: str, step: Callable[[], Figures], limit_s: float) -> bool:
    began = time.perf_counter()

    def seconds() -> float:
        return round(time.perf_counter() - began, 1)

    try:
        with bounded(limit_s):
            found = step()
    except Differs as difference:
        return report(name, "differs", seconds=seconds(), figures=difference.args[0])
    except (StartupError, ExecutorFault, TimeoutError, OSError) as error:
        return report(name, "failed", seconds=seconds(), why=str(error))
    except (RuntimeError, TypeError, AttributeError) as error:  # the binding's own, never run here
        return report(name, "failed", seconds=seconds(), why=f"{type(error).__name__}: {error}")
    return report(name, "ok", seconds=seconds(), figures=found)


def here_or_why(folder: Path, runtime: Callable[[], Any] = runtime) -> Here | str:
    try:
        found = runtime()
        target = Cuda(found).target()
        return Here(binding().module, found, target, folder, BuildTools(load()))
    except (StartupError, ExecutorFault) as error:
        return str(error)


def main(
    arguments: Sequence[str] | None = None, look: Callable[[Path], Here | str] = here_or_why
) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*STEPS, "soak")
    shown = f"any of {', '.join(names)}; without: all"
    parser.add_argument("steps", nargs="*", choices=(*names, []), metavar="STEP", help=shown)
    parser.add_argument("--soak", type=float, default=60.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    wanted = options.steps or names
    gpus, why = visible_gpus()
    shown_gpus = [f"{gpu.name}, driver {gpu.driver}" for gpu in gpus]
    report("here", "ok", gpus=shown_gpus or why, packages=library_versions())
    with tempfile.TemporaryDirectory() as name:
        here = look(Path(name))
        good = [_run(step, here, options.soak) for step in wanted]
    return 0 if all(good) else 1


def _run(step: str, here: Here | str, soak_s: float) -> bool:
    if isinstance(here, str):
        return report(step, "not run", why=here)
    if here.target not in TARGETS and step != "machine":
        known = ", ".join(TARGETS)
        why = f"this GPU is {here.target}, and TensorRT-RTX's targets are {known}"
        return report(step, "not run", why=why)
    if step == "soak":
        return tried(step, lambda: soak(here, soak_s), soak_s + LIMIT_S)
    return tried(step, lambda: STEPS[step](here), LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
