"""OpenEngine v0.1, which is not of one engine alone: messages made and read, nothing kept.

It tells what an engine can do. It has no word for banned ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.engine.base import GuideKind, Limits, Logprob
from trt_responses.engine.grpc.messages import Messages
from trt_responses.engine.grpc.protocol import (
    MAX_LOGPROBS,
    UNKNOWN_BATCH,
    UNLIKELY,
    Fault,
    Part,
    guide_ends,
    sampling_of,
    stops_of,
)
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engine.base import GenerateOptions

PACKAGE = "openengine.v1"
REVISION = 1
"""The revision of the protocol that this is written for."""
GUIDE_FIELDS: Mapping[GuideKind, str] = {
    "json_schema": "json_schema",
    "regex": "regex",
    "lark": "ebnf_grammar",
}
STATUSES = {
    "UNSUPPORTED_FEATURE": "UNIMPLEMENTED",
    "OVERLOADED": "RESOURCE_EXHAUSTED",
    "DRAINING": "UNAVAILABLE",
}
"""gRPC's statuses for the errors inside a stream that have other names."""
ENDS = {"STOP": "stop", "LENGTH": "length"}
PRIORITIES = 100
"""Steps between the lowest and the highest of our priorities."""


class OpenEngineProtocol:
    """OpenEngine over one channel, for one model."""

    name = "OpenEngine"

    def __init__(self, channel: Any, model: str) -> None:
        messages = Messages("openengine")
        self.generate = messages.call(channel, f"{PACKAGE}.Inference.Generate")
        self._server_info = messages.call(channel, f"{PACKAGE}.Control.GetServerInfo")
        self._model_info = messages.call(channel, f"{PACKAGE}.Control.GetModelInfo")
        self._health = messages.call(channel, f"{PACKAGE}.Control.Health")
        self._messages = messages
        self._request = messages.message(f"{PACKAGE}.GenerateRequest")
        self._states = _labels(messages, "HealthResponse", "state", "HEALTH_STATE_")
        self._errors = _labels(messages, "EngineError", "code", "ERROR_CODE_")
        self._reasons = _labels(messages, "GenerationFinished", "reason", "FINISH_REASON_")
        self._model = model
        self._can: Any = None
        """What the engine says that it can do."""

    async def describe(self, timeout_s: float) -> Limits:
        about = self._messages.message(f"{PACKAGE}.GetServerInfoRequest")()
        server = await self._server_info(about, timeout=timeout_s)
        if server.minimum_client_revision > REVISION:
            raise StartupError(
                f"it speaks to clients of revision {server.minimum_client_revision} of OpenEngine "
                f"and later, and this one is of {REVISION}."
            )
        asked = self._messages.message(f"{PACKAGE}.GetModelInfoRequest")(model=self._model)
        model = await self._model_info(asked, timeout=timeout_s)
        if model.HasField("supports_token_ids_input") and not model.supports_token_ids_input:
            raise StartupError("it takes no ids.")
        if not model.max_context_length:
            raise StartupError(
                "it does not say how many tokens fit into its context: give trtllm-serve "
                "--max_seq_len."
            )
        self._can = model.generation
        return Limits(
            model.max_context_length,
            server.capacity.max_running_requests or UNKNOWN_BATCH,
            guide_ends(self._guides()),
            min(MAX_LOGPROBS, self._can.output_logprobs.max_top_n),
            ignores=frozenset({"banned_ids"}),
        )

    def _guides(self) -> tuple[GuideKind, ...]:
        told = self._can.guided_decoding
        modes = told.DESCRIPTOR.fields_by_name["modes"].enum_type.values_by_number
        names = {modes[number].name.removeprefix("GUIDED_DECODING_MODE_") for number in told.modes}
        return tuple(kind for kind, field in GUIDE_FIELDS.items() if field.upper() in names)

    async def trouble(self, timeout_s: float) -> str | None:
        asked = self._messages.message(f"{PACKAGE}.HealthRequest")()
        told = await self._health(asked, timeout=timeout_s)
        state = self._states[told.state]
        if state in ("READY", "DEGRADED"):
            return None
        said = [f"{check.name}: {check.message}" for check in told.checks if check.message]
        return "; ".join(said) or f"it is {state.lower().replace('_', ' ')}"

    def request(
        self, request_id: str, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Any:
        request = self._request(
            request_id=request_id,
            model=self._model,
            token_ids={"ids": prompt_ids},
            sampling=sampling_of(options),
            stopping={
                "max_tokens": left,
                "conditions": [{"stop_token_id": token_id} for token_id in stops_of(options)],
                "ignore_eos": True,  # the ids that stop are named
                "include_stop_in_output": True,
            },
        )
        request.extra.fields["detokenize"].bool_value = False
        if options.logprobs is not None:
            request.response.return_output_logprobs = True
            request.response.output_candidates.top_n = max(1, options.logprobs)
        if options.guide is not None:
            setattr(request.guided, GUIDE_FIELDS[options.guide.kind], options.guide.source)
        if options.cache_salt is not None and self._can.supports_cache_salt:
            request.kv.cache_salt = options.cache_salt
        return request

    def metadata(self, options: GenerateOptions) -> tuple[tuple[str, str], ...]:
        given = dict(options.trace_headers)
        if self._can.supports_priority:
            given["openengine-priority"] = str(round(options.priority * PRIORITIES))
        return tuple(given.items())

    async def abort(self, request_id: str, timeout_s: float) -> None:
        return None

    def read(self, message: Any, seen: int, options: GenerateOptions) -> Part:
        cached = None
        if message.HasField("usage") and message.usage.HasField("cached_prompt_tokens"):
            cached = message.usage.cached_prompt_tokens
        match message.WhichOneof("event"):
            case "token":
                told = message.token.tokens
                logprobs = [] if options.logprobs is None else _logprobs(told, options.logprobs)
                return Part([one.token_id for one in told], logprobs, cached)
            case "finished":
                reason = self._reasons[message.finished.reason]
                return Part((), (), cached, *_end(reason, message.finished))
            case "error":
                code = self._errors[message.error.code]
                return Part(fault=Fault(STATUSES.get(code, code), message.error.message))
        return Part(cached_tokens=cached)


def _end(reason: str, finished: Any) -> tuple[str, int | None]:
    """The word for an end, and the id that stopped it."""
    stop_id = None
    matched = finished.stop_match.WhichOneof("match")
    if matched in ("stop_token_id", "eos_token_id"):
        stop_id = getattr(finished.stop_match, matched)
    return ENDS.get(reason) or finished.message or reason.lower(), stop_id


def _logprobs(told: Sequence[Any], count: int) -> list[Logprob]:
    return [
        Logprob(
            one.token_id,
            one.logprob if one.HasField("logprob") else UNLIKELY,
            tuple((other.token_id, other.logprob) for other in one.candidates[:count]),
        )
        for one in told
    ]


class _Labels(dict[int, str]):
    """The names of an enumeration's values; one that a newer server says has its number."""

    def __missing__(self, number: int) -> str:
        return str(number)


def _labels(messages: Messages, message: str, field: str, prefix: str) -> _Labels:
    fields = messages.message(f"{PACKAGE}.{message}").DESCRIPTOR.fields_by_name
    values = fields[field].enum_type.values
    return _Labels({value.number: value.name.removeprefix(prefix) for value in values})
