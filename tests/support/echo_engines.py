"""Engines that say the prompt again, each over another kind; also in a process of their own."""

from __future__ import annotations

import builtins
import json
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.double.llm import Double
from tests.support.double.results import Script as Said
from tests.support.double.worker import Worker
from tests.support.engine_claims import CONTEXT, SLOTS
from tests.support.scripted.engine import Script, ScriptedEngine, Stall
from trt_responses import __version__
from trt_responses.engines.remote.child import host
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess, Patience
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.engines.trtllm.liveness import Patience as Liveness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.double.words import SamplingParams
    from trt_responses.engine import Engine, GenerateOptions

ROOT = Path(__file__).parents[2]
STEP_S = 0.02
STILL = 64


def echo(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """A stand-in for a model: what it says depends on the prompt and on nothing else. Where it is
    drawn and may go on for ever, it does: it stands still before the context is full."""
    steps = [(prompt_ids[n % len(prompt_ids)] + n,) for n in range(CONTEXT)]
    endless = options.temperature > 0 and options.max_tokens > CONTEXT
    return Script((*steps[:STILL], Stall()) if endless else tuple(steps), cached_tokens=0)


def scripted() -> Engine:
    return ScriptedEngine(echo, context_tokens=CONTEXT, max_batch=SLOTS)


def trtllm_double() -> Engine:
    """The TensorRT-LLM adapter over the stand-in for its package."""

    def echoed(prompt_ids: Sequence[int], params: SamplingParams) -> Said:
        groups = ((prompt_ids[n % len(prompt_ids)] + n,) for n in range(CONTEXT))
        return Said(tuple(groups))

    arguments = {"max_seq_len": CONTEXT, "max_batch_size": SLOTS, "max_num_tokens": CONTEXT}
    package = Double(echoed).package
    return TrtLlmEngine(Path("checkpoint"), arguments, package=package, environment={})


def trtllm_worker(how: str) -> Engine:
    """The same adapter over a stand-in with a rank's process, which steps until it is killed,
    frozen or fails; `how` is JSON: `error`, the class that tells its death, if one does; `dies`,
    which may be "loading"; and a patience."""
    options = json.loads(how)
    kind = options.get("error")
    error = getattr(builtins, kind)("a rank has failed") if kind else None

    def begun() -> Worker:
        worker = Worker(error, step_s=STEP_S)
        if options.get("dies") == "loading":
            worker.kill()
        return worker

    def says(prompt_ids: Sequence[int], params: SamplingParams) -> Said:
        return Said(((7,),) * 100_000)

    arguments = {"max_seq_len": 100_000, "max_batch_size": 720, "max_num_tokens": 100_000}
    return TrtLlmEngine(
        Path("checkpoint"),
        arguments,
        package=Double(says, worker=begun).package,
        patience=Liveness(**options["patience"]) if "patience" in options else None,
        environment={},
    )


class Starting(ScriptedEngine):
    """Whose start runs a given function."""

    def __init__(self, begin: Callable[[], object]) -> None:
        super().__init__([Script()])
        self._begin = begin

    async def start(self) -> None:
        self._begin()


def fail(name: str) -> None:
    """Raise an error of this class, which has a cause."""
    kind: type[BaseException] = getattr(builtins, name)
    raise kind("Executor worker returned error") from OSError("no CUDA device found")


MAKERS: dict[str, Callable[[], Engine]] = {"scripted": scripted, "trtllm-double": trtllm_double}


def slow() -> Engine:
    """Whose streams do not end by themselves: each says one id, and no more."""
    return ScriptedEngine([Script(((1,), Stall()))])


TROUBLED: dict[str, Callable[[str], Engine]] = {
    "worker": trtllm_worker,
    "slow": lambda _: slow(),
    "raises": lambda name: Starting(lambda: fail(name)),
    "loads for ever": lambda _: Starting(threading.Event().wait),
    "exits": lambda status: Starting(lambda: os._exit(int(status))),
}


def program(module: str) -> tuple[str, ...]:
    """The command that runs `main` of a module of the tests, whatever the working directory is."""
    return (
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {module} import main; main()",
    )


def process_of(kind: str, patience: Patience | None = None, how: str = "") -> EngineProcess:
    return EngineProcess(program(__name__), {"kind": kind, "how": how}, patience)


def remote(kind: str, patience: Patience | None = None, how: str = "") -> RemoteEngine:
    """One of them in a process of its own."""
    return RemoteEngine(__version__, process=process_of(kind, patience, how))


def remote_maker(kind: str) -> partial[RemoteEngine]:
    return partial(remote, kind)


def made(given: dict[str, str]) -> Engine:
    if (maker := MAKERS.get(given["kind"])) is not None:
        return maker()
    return TROUBLED[given["kind"]](given["how"])


def main() -> None:
    host(made)
