"""Inference over `/v2`: a request's tensors or texts become a run, and its end an answer.

`generate` speaks JSON, and streams on request; `infer` also takes binary tensors and
compressed bodies. The last event of a stream is not in the log: it is written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trt_responses.apis.chat.output import text_of
from trt_responses.apis.chat.silent import OtherSpelling, SilentDeltas
from trt_responses.apis.kserve import bodies as k
from trt_responses.apis.kserve.accept import accept_kserve
from trt_responses.apis.kserve.codings import deflated, inflated, reply_coding
from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.log.entries import Deltas, unnumbered
from trt_responses.web.body import check_values, read_body, read_bytes
from trt_responses.web.endpoint import json_reply
from trt_responses.web.headers import header, ignored_header, run_headers
from trt_responses.web.responses import Making
from trt_responses.web.stream.sse import Stream, watched
from trt_responses.wire import events as e

if TYPE_CHECKING:
    import re

    from starlette.types import ASGIApp

    from trt_responses.apis.kserve.model import ServedModel
    from trt_responses.run.run import Run
    from trt_responses.web.shared import Shared
    from trt_responses.wire.events import Delta, Event
    from trt_responses.wire.response import Response as ResponseObject

JSON_LENGTH = b"inference-header-content-length"
TAIL = b'"}\n\n'
TAILS = unnumbered(TAIL)


class KServeSpelling(OtherSpelling):
    """The events of one `generate_stream`: the answer's text, and an error. `shared` is a JSON
    object whose keys stand in each of them."""

    def __init__(self, shared: bytes) -> None:
        self._head = b'data: %b,"text_output":"' % shared[:-1]

    def frame(self, event: Event, number: int) -> bytes:
        if isinstance(event, e.Error):
            return b"data: %b\n\n" % orjson.dumps({"error": event.message})
        return b""

    def deltas(self, first: int, template: Delta, *, scored: bool) -> Deltas:
        kind = Deltas if isinstance(template, e.OutputTextDelta) else SilentDeltas
        return kind(first, template, self._head, TAILS, lambda _: TAIL)


class Inference(Making):
    """The endpoints that ask the model."""

    def __init__(self, shared: Shared, model: ServedModel) -> None:
        super().__init__(shared)
        self._model = model

    async def generate(self, request: Request, found: re.Match[str], *, stream: bool) -> ASGIApp:
        self._model.check(found)
        wanted = k.generate_request(await read_body(request, self._limits))
        run, begun = await self._start(request, found, wanted)
        extra = ignored_header(sorted(wanted.parameters.model_extra or ())) | run_headers(run)
        if stream:
            return Stream(
                run,
                self._runs,
                self._headers(request) | extra,
                self._stream_limits,
                lambda: self._last_event(run, wanted, begun),
            )
        values = await self._outputs(request, run, begun)
        body = self._generated(run.id, wanted, values)
        return json_reply(body, self._headers(request) | extra)

    async def infer(self, request: Request, found: re.Match[str]) -> ASGIApp:
        self._model.check(found)
        wanted = await self._infer_request(request)
        run, begun = await self._start(request, found, wanted)
        values = await self._outputs(request, run, begun)
        body, json_length = k.inferred(self._model.name, self._model.maker(run.id), wanted, values)
        headers = self._headers(request) | ignored_header(
            sorted(wanted.parameters.model_extra or ())
        )
        kind = "application/json"
        if json_length is not None:
            headers[JSON_LENGTH.decode()] = str(json_length)
            kind = "application/octet-stream"
        coding = reply_coding(header(request, b"accept-encoding") or "")
        if coding:
            body, headers["content-encoding"] = deflated(body, coding), coding
        return Response(body, 200, headers, media_type=kind)

    async def _infer_request(self, request: Request) -> k.Wanted:
        body = await read_bytes(request, self._limits)
        if coding := header(request, b"content-encoding"):
            body = inflated(body, coding, self._limits.body_bytes)
        length = header(request, JSON_LENGTH)
        if length is not None and not (
            length.isascii() and length.isdecimal() and len(length) < 12
        ):
            raise InvalidRequest(f"Inference-Header-Content-Length is no length: {length!r:.40}")
        json_length = None if length is None else int(length)
        await check_values(body[:json_length], self._limits)
        return k.infer_request(body, json_length)

    async def _start(
        self, request: Request, found: re.Match[str], wanted: k.Wanted
    ) -> tuple[Run, int]:
        """The run, and how many of its ids are the prompt's own."""
        accepted = accept_kserve(wanted, self._model.model_name(found["version"]))

        def spelling(response: ResponseObject, _: int) -> KServeSpelling:
            return KServeSpelling(self._generated(response.id, wanted, {}))

        owner = request.scope["state"]["owner"]
        return await self._unstored(accepted, request, owner, spelling), len(accepted.begun)

    async def _outputs(self, request: Request, run: Run, begun: int) -> dict[str, Any]:
        """Make the run to its end, and return its outputs."""
        with watched(run.cancel, request.receive):
            last = await self._runs.make(run)
        if last.status == "cancelled":
            raise ClientDisconnect  # the client has left
        if last.status == "failed":
            raise run.error or ApiError("The response failed.")
        return {"text_output": text_of(last.output)} | _ending(run, begun)

    def _last_event(self, run: Run, wanted: k.Wanted, begun: int) -> bytes:
        if run.log.response.status == "failed":
            return b""  # the log's error event has been sent
        values = {"text_output": ""} | _ending(run, begun)
        return b"data: %b\n\n" % self._generated(run.id, wanted, values)

    def _generated(self, response_id: str, wanted: k.Wanted, values: dict[str, Any]) -> bytes:
        """What `generate` answers, in the name of the version that made it."""
        return k.generated(self._model.name, self._model.maker(response_id), wanted, values)


def _ending(run: Run, begun: int) -> dict[str, Any]:
    finish = "stop" if run.log.response.incomplete_details is None else "length"
    return {"output_ids": list(run.reader.kept[begun:]), "finish_reason": finish}
