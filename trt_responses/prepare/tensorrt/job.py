"""One plan to compile, as it is told to another process, and what that process tells back.

`compiled` runs it there, so that all its memory comes back: `python -m …tensorrt.job JOB RESULT` is
that process. Knows files and processes; the compiling itself is `network`'s.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from trt_responses.children import die_with
from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import decoded, json_or_nothing
from trt_responses.prepare.graph.onnx_file import Element  # likewise
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf.chain import Format  # decoded by its annotation
from trt_responses.prepare.tensorrt.binding import binding
from trt_responses.prepare.tensorrt.network import Listing, Network, Sizes
from trt_responses.prepare.tensorrt.targets import Family

MODULE = "trt_responses.prepare.tensorrt.job"
LONG = 16_384
"""The length of a cache from which on no fused attention kernel takes it; measured at 32,768."""


@dataclass(frozen=True, slots=True)
class CompileJob:
    """One plan to compile: its graph, its weights, and for which GPUs."""

    checkpoint: str
    graph: str
    plan: str
    targets: tuple[str, ...]
    weights: Format
    element: Element
    slots: int
    chunk: int
    length: int

    @property
    def family(self) -> Family:
        return Family(self.targets, self.weights, self.element)


@dataclass(frozen=True, slots=True)
class CompileResult:
    """What compiling a plan took and gave."""

    seconds: float
    peak_bytes: int
    size_bytes: int
    sha256: str
    listing: Listing


def compiled(job: CompileJob) -> CompileResult:
    """Compile the plan at `job.plan` in another process. Raises with that process's own refusal."""
    with tempfile.TemporaryDirectory() as name:
        told, result = Path(name) / "job.json", Path(name) / "result.json"
        told.write_text(json.dumps(asdict(job)), "utf-8")
        command = [sys.executable, "-m", MODULE, str(told), str(result)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if result.exists():
            if refused := json_or_nothing(result).get("refused"):
                raise PrepareError(str(refused))
            return decoded(CompileResult, result.read_bytes(), result.name)
    raise PrepareError(_death(done.returncode, done.stdout, Path(job.plan)))


def _death(status: int, said: str, plan: Path) -> str:
    what = f"{plan.parent.name}/{plan.name}: the process that compiled it"
    if status == -signal.SIGKILL:
        return (
            f"{what} was killed, most likely for memory; stop what else runs here, or ask for "
            "fewer layers in a plan (--group 1)."
        )
    lines = said.strip().splitlines() or ["it said nothing"]
    return f"{what} ended with status {status}: {lines[-1]}."


def main(arguments: list[str]) -> int:
    """The other process. A refusal is told as a sentence, and is no failure of its own."""
    die_with(os.getppid())
    job_path, result_path = map(Path, arguments)
    job = decoded(CompileJob, job_path.read_bytes(), job_path.name)
    try:
        answer: dict[str, object] = asdict(_built(job))
    except PrepareError as error:
        answer = {"refused": str(error)}
    result_path.write_text(json.dumps(answer), "utf-8")
    return 0


def _built(job: CompileJob) -> CompileResult:
    began = time.perf_counter()
    network = Network(binding(), Path(job.graph))
    network.fill(open_checkpoint(Path(job.checkpoint)).tensors, job.family)
    if job.element == "float32" or job.length >= LONG:
        network.decompose()
    listing = network.listing(Sizes(job.slots, job.chunk))
    plan = network.built(listing, job.targets)
    digest = _written(Path(job.plan), plan)
    seconds = round(time.perf_counter() - began, 3)
    return CompileResult(seconds, _peak_bytes(), plan.nbytes, digest, listing)


def _written(path: Path, plan: memoryview) -> str:
    """Write a plan whole or not at all, and return its digest."""
    try:
        write_whole(path, plan)
    except OSError as error:
        raise PrepareError(
            f"{path}: writing {megabytes(plan.nbytes)} stopped ({error.strerror}); make room, or "
            "name another directory for engines."
        ) from None
    return hashlib.sha256(plan).hexdigest()


def _peak_bytes() -> int:
    """The most memory that this process has used since its program began."""
    status = Path("/proc/self/status").read_text("ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
