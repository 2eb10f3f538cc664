"""Background responses, their endpoint, and what other servers have left of theirs."""

from __future__ import annotations

from functools import partial

from trt_responses.features.background.background import Background
from trt_responses.features.background.endpoint import BackgroundJobs
from trt_responses.features.background.resumable import FIELD, Resumable
from trt_responses.features.background.settings import BackgroundNumbers
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(25, lambda shared: [shared.of(BackgroundJobs)])
    server.own_fields.append(FIELD)
    server.features.append(Resumable())
    server.when_built(partial(_build, server))


def _whose(server: Server) -> str:
    """The models that this server can go on with, each with its vocabulary: another server that
    has the same ones takes over its jobs."""
    models = server.served.dialects or {server.parts.model: server.parts.dialect}
    return ", ".join(f"{name} {one.vocabulary}".rstrip() for name, one in sorted(models.items()))


def _build(server: Server) -> None:
    parts, settings = server.parts, server.settings
    background = Background(
        server.runs,
        server.store,
        count=parts.admission.count_background,
        max_per_owner=BackgroundNumbers.of(settings).max_background,
        model=_whose(server),
        check_streams=server.lifecycle.check_streams,
        sleep=server.sleep,
    )
    jobs = BackgroundJobs(background, server.store, server.headers, server.stream_limits)
    server.jobs = jobs
    server.provide(jobs)
    server.on_delete.append(background.drop)
    server.lives.append(partial(background.life, settings.drain_s))
