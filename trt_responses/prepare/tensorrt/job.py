"""Compiles one plan in another process, so that all its memory is freed.
`compiled` starts `python -m …tensorrt.job JOB RESULT` and passes the job and the result as JSON
files; `network` compiles.
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
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.tensorrt.binding import binding
from trt_responses.prepare.tensorrt.network import Listing, Network
from trt_responses.prepare.tensorrt.targets import Family  # decoded by its annotation

MODULE = "trt_responses.prepare.tensorrt.job"
LONG = 16_384
"""The length of a cache from which no fused attention kernel exists; measured at 32,768."""


@dataclass(frozen=True, slots=True)
class CompileJob:
    """One plan to compile: its graph, its weights, and its GPUs."""

    checkpoint: str
    graph: str
    plan: str
    family: Family
    slots: int
    chunk: int
    length: int


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The result of a compilation, with its time and memory."""

    seconds: float
    peak_bytes: int
    size_bytes: int
    sha256: str
    listing: Listing


def compiled(job: CompileJob) -> CompileResult:
    """Compile the plan at `job.plan` in another process. Raises that process's `PrepareError`."""
    with tempfile.TemporaryDirectory() as name:
        wanted, result = Path(name) / "job.json", Path(name) / "result.json"
        wanted.write_text(json.dumps(asdict(job)), "utf-8")
        command = [sys.executable, "-m", MODULE, str(wanted), str(result)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if result.exists():
            if refused := json_or_nothing(result).get("refused"):
                raise PrepareError(str(refused))
            return decoded(CompileResult, result.read_bytes(), result.name)
    raise PrepareError(_death(done.returncode, done.stdout, Path(job.plan)))


def _death(status: int, output: str, plan: Path) -> str:
    what = f"{plan.parent.name}/{plan.name}: the compiling process"
    if status == -signal.SIGKILL:
        return (
            f"{what} was killed, most likely for memory; stop other programs, or use fewer layers "
            "per plan (--group 1)."
        )
    lines = output.strip().splitlines() or ["no output"]
    return f"{what} ended with status {status}: {lines[-1]}."


def main(arguments: list[str]) -> int:
    """The compiling process. Writes a `PrepareError` as a result, and then exits with 0."""
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
    if job.family.element == "float32" or job.length >= LONG:
        network.decompose()
    listing = network.listing(job.slots, job.chunk)
    plan = network.built(listing, job.family.targets)
    digest = _written(Path(job.plan), plan)
    seconds = round(time.perf_counter() - began, 3)
    return CompileResult(seconds, _peak_bytes(), plan.nbytes, digest, listing)


def _written(path: Path, plan: memoryview) -> str:
    """Write a plan in one write, and return its digest."""
    try:
        write_whole(path, plan)
    except OSError as error:
        raise PrepareError(
            f"{path}: writing {megabytes(plan.nbytes)} failed ({error.strerror}); make room, or "
            "choose another directory for engines."
        ) from None
    return hashlib.sha256(plan).hexdigest()


def _peak_bytes() -> int:
    """The peak memory of this process."""
    status = Path("/proc/self/status").read_text("ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
