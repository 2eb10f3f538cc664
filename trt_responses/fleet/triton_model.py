"""An engine as a model of Triton's Python backend: ids in, ids out, a response for each step.

`trt-responses export triton` writes a repository whose models are this class. The module
`triton_python_backend_utils` exists in Triton's processes alone. Arrays are copied before `execute`
returns, for Triton takes them back then.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from trt_responses.backends.engines import chosen_engine, engine_of
from trt_responses.engine import Chunk, Engine, Handle
from trt_responses.engines.triton.fields import DESCRIBE, LOST, limits_text, options_of, outputs_of
from trt_responses.engines.triton.fields import INPUTS as INPUTS
from trt_responses.engines.triton.fields import OUTPUTS as OUTPUTS
from trt_responses.errors import ApiError
from trt_responses.settings import Settings

SETTINGS_FILE = "settings.json"
CANCEL_LOOK_S = 0.1
"""Seconds between two looks at whether a request's client has left."""
STOP_S = 20.0
TYPES = {"TYPE_INT32": np.int32, "TYPE_STRING": np.object_}


class TritonPythonModel:
    """The class that Triton calls. Its engine lives on an event loop in a thread of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        self._triton = importlib.import_module("triton_python_backend_utils")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._running: set[_Answer] = set()
        self._engine = engine_of_version(
            Path(args["model_repository"]) / args["model_version"] / SETTINGS_FILE
        )
        self._wait(self._engine.start())
        self._looking = asyncio.run_coroutine_threadsafe(self._look(), self._loop)

    def execute(self, requests: Sequence[Any]) -> None:
        """Begin all requests; each is answered through its own sender, to its FINAL flag."""
        for request in requests:
            rows = {name: self._row(request, name) for name in INPUTS}
            parameters = json.loads(request.parameters() or "{}")
            sender = request.get_response_sender()
            self._loop.call_soon_threadsafe(self._begin, rows, parameters, sender)

    def is_ready(self) -> bool:
        return self._engine.health().ready

    def finalize(self) -> None:
        self._looking.cancel()
        self._wait(self._engine.stop(STOP_S))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _row(self, request: Any, name: str) -> tuple[int, ...]:
        tensor = self._triton.get_input_tensor_by_name(request, name)
        return () if tensor is None else tuple(tensor.as_numpy().reshape(-1).tolist())

    def _begin(
        self, rows: dict[str, tuple[int, ...]], parameters: dict[str, Any], sender: Any
    ) -> None:
        """Begin one request, on the loop."""
        answer = _Answer(self._triton, sender, self._running.discard)
        if parameters.pop(DESCRIBE, False):
            answer.send({"limits": limits_text(self._engine.limits())}, final=True)
            return
        try:
            options = options_of(rows, parameters)
            self._running.add(answer)
            answer.handle = self._engine.generate(rows["input_ids"], options, answer)
        except (ApiError, ValueError, TypeError, KeyError) as error:
            answer.fail(str(error))

    async def _look(self) -> None:
        """Abort requests whose client has left."""
        while True:
            await asyncio.sleep(CANCEL_LOOK_S)
            for answer in tuple(self._running):
                answer.leave_if_cancelled()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Answer:
    """A request's sink: each chunk is a response. After the last one it sends nothing."""

    def __init__(self, triton: Any, sender: Any, over: Any) -> None:
        self.handle: Handle | None = None
        self._triton = triton
        self._sender = sender
        self._over = over
        self._ended = False

    def push(self, chunk: Chunk) -> None:
        if chunk.finish == "error":
            error = chunk.error or "the engine failed"
            self.fail(f"{LOST}{error}" if chunk.lost else error)
        else:
            self.send(outputs_of(chunk), final=chunk.finish is not None)

    def send(self, values: dict[str, Any], *, final: bool) -> None:
        tensors = [self._tensor(name, value) for name, value in values.items()]
        self._give(self._triton.InferenceResponse(output_tensors=tensors), final=final)

    def fail(self, message: str) -> None:
        error = self._triton.TritonError(message)
        self._give(self._triton.InferenceResponse(error=error), final=True)

    def leave_if_cancelled(self) -> None:
        """Stop the engine's work when the client has left. The FINAL flag is owed even so."""
        if not self._ended and self._sender.is_cancelled():
            self._end()
            with suppress(Exception):  # as in `_give`; the others are still to be looked at
                self._sender.send(flags=self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _tensor(self, name: str, value: Any) -> Any:
        row = value if isinstance(value, list) else [value]
        return self._triton.Tensor(name, np.array(row, dtype=TYPES[OUTPUTS[name]]))

    def _give(self, response: Any, *, final: bool) -> None:
        if self._ended:
            return
        if final:
            self._end()
        flags = self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0
        try:
            self._sender.send(response, flags)
        except Exception:  # whatever Triton says: no client reads the answer any more
            self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._over(self)
            if self.handle is not None:
                self.handle.abort()


def engine_of_version(settings_file: Path) -> Engine:
    """The engine that a version's file names."""
    file = json.loads(settings_file.read_text("utf-8"))
    settings = Settings(engine=file["engine"], engines_dir=file["engines_dir"], **file["settings"])
    return engine_of(chosen_engine(settings), settings)
