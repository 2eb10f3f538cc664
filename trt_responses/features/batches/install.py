"""Batches of requests, in uploaded files."""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

from trt_responses.features.batches.answers import AnswersBatches, ResponsesAnswers
from trt_responses.features.batches.batches import Batches
from trt_responses.features.batches.endpoint import BatchRoutes
from trt_responses.features.batches.making import Maker
from trt_responses.features.batches.settings import BatchSettings
from trt_responses.features.files.files import Files
from trt_responses.setup.server import Server
from trt_responses.web.shared import Shared


@runtime_checkable
class Notifies(Protocol):
    """Sends events about what has ended."""

    def notify(self, kind: str, name: str) -> None:
        """`name` is the id of what has ended."""
        ...


def install(server: Server) -> None:
    if Files in server.by_class:
        server.when_built(partial(_build, server))


def _build(server: Server) -> None:
    answers = dict[str, AnswersBatches]()
    notifying = [part for part in server.by_class.values() if isinstance(part, Notifies)]

    def notify(kind: str, name: str) -> None:
        for part in notifying:
            part.notify(kind, name)

    maker = Maker(
        server.parts,
        server.runs,
        server.of(Files),
        answers,
        server.places,
        server.settings.max_body_bytes,
        server.sleep,
        notify,
    )
    batches = Batches(maker, server.parts.model, BatchSettings.of(server.settings).owner_batches)

    def routes(shared: Shared) -> list[BatchRoutes]:
        others = [part for part in server.by_class.values() if isinstance(part, AnswersBatches)]
        for one in (ResponsesAnswers(shared), *others):
            answers[one.batch_path] = one
        return [BatchRoutes(shared, batches)]

    server.add_routes(60, routes)  # behind the APIs whose requests it answers
    server.lives.append(batches.life)
