"""TensorRT-LLM's protocol of `trtllm-serve --grpc`: makes and reads messages, without state. Calls
raise gRPC's errors.

The protocol reports the context size, but neither the batch size nor the guides. The server ignores
cache salts and priorities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from trt_responses.engine import GenerateOptions, GuideKind, Limits, Logprob
from trt_responses.engines.grpc.messages import Messages
from trt_responses.engines.id_events import ModelIds, Part, spelled_logprob, stops_of
from trt_responses.errors import StartupError
from trt_responses.tokens.control import CONTROL, FIRST_PADDING_ID

SERVICE = "trtllm.TrtllmService"
END_ID = CONTROL.return_
"""The id that ends guided output."""
IDS = ModelIds(ends=(END_ID,))
MAX_LOGPROBS = 20
PENALTY = frozenset({"repetition_penalty"})
UNLIKELY = -9999.0
"""The log probability of an id for which the engine gave none, since it is too unlikely."""
UNKNOWN_BATCH = 2048
"""The batch size of an engine that does not report it: `trtllm-serve`'s default."""
GUIDE_TYPES: Mapping[GuideKind, str] = {
    "json_schema": "GUIDE_TYPE_JSON_SCHEMA",
    "regex": "GUIDE_TYPE_REGEX",
    "lark": "GUIDE_TYPE_EBNF_GRAMMAR",
}


class TrtLlmProtocol:
    """TensorRT-LLM's protocol over one channel."""

    ids = IDS

    def __init__(self, channel: Any) -> None:
        messages = Messages("trtllm")
        self.generate = messages.call(channel, f"{SERVICE}.Generate")
        self._health = messages.call(channel, f"{SERVICE}.HealthCheck")
        self._model_info = messages.call(channel, f"{SERVICE}.GetModelInfo")
        self._abort = messages.call(channel, f"{SERVICE}.Abort")
        self._abort_request = messages.message("trtllm.AbortRequest")
        self._request = messages.message("trtllm.GenerateRequest")
        self._no_question = messages.message("trtllm.HealthCheckRequest")
        self._about = messages.message("trtllm.GetModelInfoRequest")

    async def describe(self, timeout_s: float) -> Limits:
        """The limits that the protocol reports; working guides and ignored options are tested
        later. Raises a `StartupError` for an unsupported engine."""
        reply = await self._model_info(self._about(), timeout=timeout_s)
        if reply.max_seq_len <= 0:
            raise StartupError(
                "it does not report its context size: start trtllm-serve with --max_seq_len."
            )
        batch = reply.max_batch_size if reply.max_batch_size > 0 else UNKNOWN_BATCH
        guides = dict.fromkeys(GUIDE_TYPES, frozenset({END_ID}))
        return Limits(reply.max_seq_len, batch, guides, MAX_LOGPROBS, extras=PENALTY)

    async def trouble(self, timeout_s: float) -> str | None:
        """Why the engine accepts no requests; None if it does."""
        reply = await self._health(self._no_question(), timeout=timeout_s)
        return None if reply.status == "OK" else str(reply.status) or "it does not report OK"

    def request(
        self, request_id: str, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Any:
        """The message of a request for at most `left` ids."""
        request = self._request(
            request_id=request_id,
            tokenized={"input_token_ids": prompt_ids},
            sampling_config=_sampling(options),
            max_tokens=left,
            streaming=True,
            stop_token_ids=stops_of(options, IDS),
            bad_token_ids=_banned(options),
            ignore_eos=True,  # stop ids are explicit
            include_stop_token_in_output=True,
        )
        if options.logprobs is not None:
            request.output_config.logprobs = max(1, options.logprobs)
        if options.guide is not None:
            guide_type = request.guided_decoding.GuideType.Value(GUIDE_TYPES[options.guide.kind])
            request.guided_decoding.guide_type = guide_type
            request.guided_decoding.guide = options.guide.source
        if options.cache_salt is not None:
            request.cache_salt_id = _number(options.cache_salt)
        return request

    async def abort(self, request_id: str, timeout_s: float) -> bool:
        """Abort a request on the engine, which ends its stream. Returns whether the engine had it.
        Cancelling the call while a message is in transit would leave the request running."""
        reply = await self._abort(self._abort_request(request_id=request_id), timeout=timeout_s)
        return bool(reply.success)

    def read(self, message: Any, seen: int, options: GenerateOptions) -> Part:
        """The new part in a message, for a request that has read `seen` ids."""
        match message.WhichOneof("response"):
            case "chunk":
                chunk = message.chunk
                logprobs = _logprobs(chunk.logprobs, options)
                return Part(list(chunk.token_ids), logprobs, chunk.cached_tokens)
            case "complete":
                whole = message.complete  # repeats all ids; the stream had most of them
                return Part(
                    list(whole.output_token_ids[seen:]),
                    _logprobs(whole.logprobs[seen:], options),
                    whole.cached_tokens,
                    whole.finish_reason or "it did not say why",
                )
        return Part()


def _sampling(options: GenerateOptions) -> Mapping[str, float | int]:
    """The sampling options by the protocol's names."""
    sampling: dict[str, float | int] = {
        "temperature": max(options.temperature, 0.0),
        "top_p": options.top_p,
        "top_k": options.top_k,
    }
    if options.temperature <= 0:
        sampling |= {"top_p": 1.0, "top_k": 1}
    elif options.min_p:
        sampling["min_p"] = options.min_p
    if options.presence_penalty:
        sampling["presence_penalty"] = options.presence_penalty
    if options.frequency_penalty:
        sampling["frequency_penalty"] = options.frequency_penalty
    if options.repetition_penalty != 1:
        sampling["repetition_penalty"] = options.repetition_penalty
    if options.seed is not None:
        sampling["seed"] = options.seed % (1 << 64)
    return sampling


def _banned(options: GenerateOptions) -> tuple[int, ...]:
    """The ids to ban. Under a grammar a control id could pass as its spelling in a string. Padding
    ids have no spelling, and each ban costs time at every step."""
    if options.guide is None:
        return tuple(dict.fromkeys(options.banned_ids))
    own = (token_id for token_id in CONTROL if token_id != END_ID)
    banned = dict.fromkeys((*own, *options.banned_ids))
    return tuple(token_id for token_id in banned if token_id < FIRST_PADDING_ID)


def _logprobs(reply: Sequence[Any], options: GenerateOptions) -> list[Logprob]:
    """Log probabilities with sorted alternatives. The engine reports an id that is not among them
    as certain, which is wrong."""
    if options.logprobs is None:
        return []
    result = []
    for entry in reply:
        top = [(other.token_id, other.logprob) for other in entry.top_logprobs]
        listed = not top or any(token_id == entry.token_id for token_id, _ in top)
        chosen = entry.logprob if listed else UNLIKELY
        result.append(spelled_logprob(entry.token_id, chosen, top, options))
    return result


def _number(salt: str) -> int:
    """A salt as the protocol's integer."""
    digest = blake2b(salt.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
