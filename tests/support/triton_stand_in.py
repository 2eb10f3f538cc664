"""A stand-in for a Triton: the module that its Python backend hands to a model, written from that
backend's sources, and the three routes over HTTP that this project uses. It proves texts and
ids, and not Triton.

It is meaner than it must be: a request's arrays are overwritten as soon as `execute` has returned,
and all requests that come within one turn of the loop are given to one `execute`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import types
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

FINAL = 1
NAME = "triton_python_backend_utils"


class Tensor:
    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._name = name
        self._array = array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._array


class TritonError(Exception):
    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.message_text = message


class InferenceResponse:
    def __init__(
        self, output_tensors: list[Tensor] | None = None, error: TritonError | None = None
    ) -> None:
        self.tensors = output_tensors or []
        self.error_told = error


class Sender:
    """A request's answers, from whichever thread they come."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.told: asyncio.Queue[InferenceResponse | None] = asyncio.Queue()
        self.cancelled = False
        self.finals = 0
        self.raises = self.raises_at_the_end = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        assert not self.finals, "something was sent after FINAL"
        if self.raises or (self.raises_at_the_end and response is None):
            raise RuntimeError("the request is gone")
        if response is not None:
            self.loop.call_soon_threadsafe(self.told.put_nowait, response)
        if flags & FINAL:
            self.finals += 1
            self.loop.call_soon_threadsafe(self.told.put_nowait, None)

    def is_cancelled(self) -> bool:
        return self.cancelled


class InferRequest:
    def __init__(self, inputs: dict[str, list[int]], parameters: dict[str, Any]) -> None:
        self.tensors = {
            name: Tensor(name, np.array(row, dtype=np.int32)) for name, row in inputs.items()
        }
        self.sender = Sender()
        self._parameters = json.dumps(parameters)

    def parameters(self) -> str:
        return self._parameters

    def get_response_sender(self) -> Sender:
        return self.sender


@contextmanager
def backend_module() -> Iterator[None]:
    module: Any = types.ModuleType(NAME)
    module.Tensor, module.TritonError = Tensor, TritonError
    module.InferenceResponse = InferenceResponse
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    module.get_input_tensor_by_name = lambda request, name: request.tensors.get(name)
    sys.modules[NAME] = module
    try:
        yield
    finally:
        del sys.modules[NAME]


class StandIn:
    """One version of one model, loaded from a repository."""

    def __init__(self, model: Path, version: str) -> None:
        file = model / version / "model.py"
        spec = importlib.util.spec_from_file_location(f"model_{model.name}_{version}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.model = module.TritonPythonModel()
        self.name = model.name
        self.requests: list[InferRequest] = []
        self._waiting: list[InferRequest] = []
        self._args = {
            "model_repository": str(model),
            "model_version": version,
            "model_name": model.name,
        }

    async def load(self) -> None:
        await asyncio.to_thread(self.model.initialize, self._args)

    async def unload(self) -> None:
        await asyncio.to_thread(self.model.finalize)

    def ask(self, inputs: dict[str, list[int]], parameters: dict[str, Any]) -> InferRequest:
        """Begin a request, with all others of this turn of the loop."""
        request = InferRequest(inputs, parameters)
        self.requests.append(request)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._execute)
        self._waiting.append(request)
        return request

    def _execute(self) -> None:
        requests, self._waiting = self._waiting, []
        assert self.model.execute(requests) is None
        for request in requests:
            for tensor in request.tensors.values():
                tensor.as_numpy()[:] = -1

    # --- over HTTP ------------------------------------------------------------------------------

    def app(self) -> Starlette:
        path = f"/v2/models/{self.name}"
        return Starlette(
            routes=[
                Route(f"{path}/ready", self._ready),
                Route(f"{path}/generate", self._generate, methods=["POST"]),
                Route(f"{path}/generate_stream", self._stream, methods=["POST"]),
            ]
        )

    async def _ready(self, request: Request) -> Response:
        if self.model.is_ready():
            return Response()
        return JSONResponse({"error": "Model version not ready"}, 400)

    async def _begun(self, request: Request) -> InferRequest:
        body = await request.json()
        parameters = body.pop("parameters", {})
        return self.ask({name: row for name, row in body.items() if row}, parameters)

    async def _generate(self, request: Request) -> Response:
        begun = await self._begun(request)
        replies = [reply async for reply in _replies(begun)]
        assert len(replies) == 1
        return JSONResponse(replies[0])

    async def _stream(self, request: Request) -> Response:
        begun = await self._begun(request)

        async def events() -> AsyncIterator[str]:
            try:
                async for reply in _replies(begun):
                    yield f"data: {json.dumps(reply)}\n\n"
            except (asyncio.CancelledError, ClientDisconnect, GeneratorExit):
                begun.sender.cancelled = True
                raise

        return StreamingResponse(events(), media_type="text/event-stream")


async def _replies(begun: InferRequest) -> AsyncIterator[dict[str, Any]]:
    while (response := await begun.sender.told.get()) is not None:
        yield said(response)


def said(response: InferenceResponse) -> dict[str, Any]:
    """A response as Triton writes it: a row of one element is a bare value."""
    if response.error_told is not None:
        return {"error": response.error_told.message_text}
    rows = {tensor.name(): tensor.as_numpy().tolist() for tensor in response.tensors}
    return {name: row[0] if len(row) == 1 else row for name, row in rows.items()}
