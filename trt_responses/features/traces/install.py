"""OpenTelemetry spans of finished runs: one for the response, and one for each part of its time;
sent where the settings say.

They are made at the end, with the times that a run notes anyway, so that no token costs anything.
A span joins the caller's trace, by its `traceparent`. Only this file imports OpenTelemetry's SDK,
which is an extra. Knows finished runs; exports none of their texts.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trt_responses import __version__
from trt_responses.errors import StartupError
from trt_responses.features.traces.settings import TraceSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

    from trt_responses.run.facts import RunFacts
    from trt_responses.setup.server import Server

Value = str | int | float | bool | tuple[str, ...]

OPERATION = "gen_ai.operation.name"
"""Names that do not begin with `trt_responses` are those of the conventions for generative AI,
which still change."""


def install(server: Server) -> None:
    if endpoint := TraceSettings.of(server.settings).otlp_endpoint:
        traces = traces_to(endpoint)
        server.listeners.append(traces)
        server.lives.append(traces.life)


class Traces:
    """A listener of runs that makes spans of them."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("trt_responses")

    def run_ended(self, facts: RunFacts) -> None:
        from opentelemetry import trace

        offset_ns = time.time_ns() - time.monotonic_ns()
        span = self._tracer.start_span(
            f"chat {facts.response.model}",
            _caller(facts.origin.trace_headers),
            trace.SpanKind.SERVER,
            _values(facts),
            start_time=facts.arrival_ns + offset_ns,
        )
        if facts.response.error is not None:
            span.set_status(trace.StatusCode.ERROR, facts.response.error.code)
        within = trace.set_span_in_context(span)
        for name, begun_ns, ended_ns in _parts(facts):
            part = self._tracer.start_span(name, within, start_time=begun_ns + offset_ns)
            part.end(ended_ns + offset_ns)
        self._tools(within, facts, offset_ns)
        span.end(facts.end_ns + offset_ns)

    def _tools(self, within: Context, facts: RunFacts, offset_ns: int) -> None:
        """Make a span for each call that the server ran."""
        from opentelemetry import trace

        for run in facts.tool_runs:
            began_ns = run.began_ns + offset_ns
            part = self._tracer.start_span(
                f"execute_tool {run.tool}",
                within,
                attributes={
                    OPERATION: "execute_tool",
                    "gen_ai.tool.name": run.tool,
                    "trt_responses.failed": run.failed,
                    "trt_responses.answer_bytes": run.answer_bytes,
                },
                start_time=began_ns,
            )
            if run.failed:
                part.set_status(trace.StatusCode.ERROR)
            part.end(began_ns + run.duration_ns)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Send spans, by a thread of the SDK's own, for as long as the context lasts; at its end,
        those that are left."""
        try:
            yield
        finally:
            await asyncio.to_thread(self._provider.shutdown)


def traces_to(endpoint: str) -> Traces:
    """Traces that are sent over OTLP/HTTP to a collector's `…/v1/traces`."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise StartupError(
            "Traces need OpenTelemetry's SDK: install 'trt-responses[otel]', or unset "
            "TRT_RESPONSES_OTLP_ENDPOINT."
        ) from None
    resource = Resource.create({"service.name": "trt_responses", "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Traces(provider)


def _caller(headers: Mapping[str, str]) -> Context:
    """The caller's span, or none: never one that happens to be current in this process."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(headers, Context())


def _values(facts: RunFacts) -> dict[str, Value]:
    response, usage = facts.response, facts.response.usage
    values: dict[str, Value] = {
        OPERATION: "chat",
        "gen_ai.provider.name": "trt_responses",
        "gen_ai.request.model": response.model,
        "gen_ai.response.model": response.model,
        "gen_ai.response.id": response.id,
        "trt_responses.request_id": facts.origin.request_id,
        "gen_ai.response.finish_reasons": (response.status,),
        "trt_responses.repairs": sum(facts.repairs.values()),
        "trt_responses.segments": len(facts.ends),
    }
    if usage is not None:
        values["gen_ai.usage.input_tokens"] = usage.input_tokens
        values["gen_ai.usage.output_tokens"] = usage.output_tokens
        cached, reasoned = usage.input_tokens_details, usage.output_tokens_details
        values["gen_ai.usage.cache_read.input_tokens"] = cached.cached_tokens
        values["gen_ai.usage.reasoning.output_tokens"] = reasoned.reasoning_tokens
    if facts.first_token_ns is not None:
        first_token_s = (facts.first_token_ns - facts.arrival_ns) / 1e9
        values["gen_ai.response.time_to_first_chunk"] = first_token_s
    if response.error is not None:
        values["error.type"] = response.error.code
    return values


def _parts(facts: RunFacts) -> list[tuple[str, int, int]]:
    """The parts of a run's time, each with its begin and end."""
    requested, first, last = facts.requested_ns, facts.first_token_ns, facts.last_token_ns
    parts = [("queue", facts.arrival_ns, requested if requested is not None else facts.end_ns)]
    if requested is not None:
        parts.append(("prefill", requested, first or last or facts.end_ns))
    if first is not None and last is not None:
        parts.append(("decode", first, last))
    if last is not None:
        parts.append(("store", last, facts.end_ns))
    return parts
