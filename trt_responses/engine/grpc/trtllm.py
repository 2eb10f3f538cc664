"""TensorRT-LLM's own protocol, `trtllm-serve --grpc`: messages made and read, nothing kept.

It tells the context and neither the batch nor the guides. Its server reads no cache salt and no
priority.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from trt_responses.engine.base import GuideKind, Limits, Logprob
from trt_responses.engine.grpc.messages import Messages
from trt_responses.engine.grpc.protocol import (
    END_ID,
    MAX_LOGPROBS,
    UNKNOWN_BATCH,
    UNLIKELY,
    Part,
    guide_ends,
    sampling_of,
    stops_of,
)
from trt_responses.errors import StartupError
from trt_responses.tokens.control import CONTROL, FIRST_PADDING_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engine.base import GenerateOptions

SERVICE = "trtllm.TrtllmService"
GUIDE_TYPES: Mapping[GuideKind, str] = {
    "json_schema": "GUIDE_TYPE_JSON_SCHEMA",
    "regex": "GUIDE_TYPE_REGEX",
    "lark": "GUIDE_TYPE_EBNF_GRAMMAR",
}


class TrtLlmProtocol:
    """TensorRT-LLM's own protocol over one channel."""

    name = "TensorRT-LLM's own protocol"

    def __init__(self, channel: Any, model: str) -> None:
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
        told = await self._model_info(self._about(), timeout=timeout_s)
        if told.max_seq_len <= 0:
            raise StartupError(
                "it does not say how many tokens fit into its context: give trtllm-serve "
                "--max_seq_len."
            )
        batch = told.max_batch_size if told.max_batch_size > 0 else UNKNOWN_BATCH
        return Limits(told.max_seq_len, batch, guide_ends(tuple(GUIDE_TYPES)), MAX_LOGPROBS)

    async def trouble(self, timeout_s: float) -> str | None:
        told = await self._health(self._no_question(), timeout=timeout_s)
        return None if told.status == "OK" else str(told.status) or "it does not say that it is OK"

    def request(
        self, request_id: str, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Any:
        request = self._request(
            request_id=request_id,
            tokenized={"input_token_ids": prompt_ids},
            sampling_config=sampling_of(options),
            max_tokens=left,
            streaming=True,
            stop_token_ids=stops_of(options),
            bad_token_ids=_banned(options),
            ignore_eos=True,  # the ids that stop are named
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

    def metadata(self, options: GenerateOptions) -> tuple[tuple[str, str], ...]:
        return tuple(options.trace_headers.items())

    async def abort(self, request_id: str, timeout_s: float) -> bool:
        """A call that is cancelled while a message is under way leaves the request running."""
        told = await self._abort(self._abort_request(request_id=request_id), timeout=timeout_s)
        return bool(told.success)

    def read(self, message: Any, seen: int, options: GenerateOptions) -> Part:
        match message.WhichOneof("response"):
            case "chunk":
                chunk = message.chunk
                logprobs = _logprobs(chunk.logprobs, options)
                return Part(list(chunk.token_ids), logprobs, chunk.cached_tokens)
            case "complete":
                whole = message.complete  # all ids again; the stream has had most of them
                stop_id = None
                if whole.WhichOneof("matched_stop") == "matched_token_id":
                    stop_id = whole.matched_token_id
                return Part(
                    list(whole.output_token_ids[seen:]),
                    _logprobs(whole.logprobs[seen:], options),
                    whole.cached_tokens,
                    whole.finish_reason or "it did not say why",
                    stop_id,
                )
        return Part()


def _banned(options: GenerateOptions) -> tuple[int, ...]:
    """The ids to ban. Under a grammar a control id may pass for its spelling in a string. The ids
    that pad the matrix have none, and each ban is walked at every step."""
    if options.guide is None:
        return tuple(dict.fromkeys(options.banned_ids))
    own = (token_id for token_id in CONTROL if token_id != END_ID)
    banned = dict.fromkeys((*own, *options.banned_ids))
    return tuple(token_id for token_id in banned if token_id < FIRST_PADDING_ID)


def _logprobs(told: Sequence[Any], options: GenerateOptions) -> list[Logprob]:
    """The alternatives come in no order. An id that is not among them is told as certain, which it
    is not."""
    if (count := options.logprobs) is None:
        return []
    found = []
    for entry in told:
        top = sorted(((e.token_id, e.logprob) for e in entry.top_logprobs), key=lambda e: -e[1])
        known = not top or any(token_id == entry.token_id for token_id, _ in top)
        chosen = entry.logprob if known else UNLIKELY
        found.append(Logprob(entry.token_id, chosen, tuple(top[:count])))
    return found


def _number(salt: str) -> int:
    """A salt as the whole number that the protocol has for it."""
    digest = blake2b(salt.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
