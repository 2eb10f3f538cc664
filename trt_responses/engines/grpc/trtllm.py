"""TensorRT-LLM's own protocol, `trtllm-serve --grpc`: messages made and read, nothing kept. Its
calls raise gRPC's own errors.

It tells the context and neither the batch nor the guides. Its server reads no cache salt and no
priority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from trt_responses.engine import GenerateOptions, GuideKind, Limits, Logprob
from trt_responses.engines.grpc.messages import Messages
from trt_responses.engines.grpc.protocol import Part
from trt_responses.errors import StartupError
from trt_responses.tokens.control import CONTROL, FIRST_PADDING_ID

SERVICE = "trtllm.TrtllmService"
END_ID = CONTROL.return_
"""The id that ends what a guide has guided."""
MAX_LOGPROBS = 20
UNLIKELY = -9999.0
"""The log probability that is told for an id so unlikely that none was given."""
UNKNOWN_BATCH = 2048
"""The requests at once of an engine that does not say it: what `trtllm-serve` takes if it is told
nothing."""
GUIDE_TYPES: Mapping[GuideKind, str] = {
    "json_schema": "GUIDE_TYPE_JSON_SCHEMA",
    "regex": "GUIDE_TYPE_REGEX",
    "lark": "GUIDE_TYPE_EBNF_GRAMMAR",
}


class TrtLlmProtocol:
    """TensorRT-LLM's protocol over one channel."""

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
        """What the engine can take, as far as the protocol says; which guides guide and what it
        ignores is found out later. Raises a `StartupError` for an engine that cannot be served."""
        told = await self._model_info(self._about(), timeout=timeout_s)
        if told.max_seq_len <= 0:
            raise StartupError(
                "it does not say how many tokens fit into its context: give trtllm-serve "
                "--max_seq_len."
            )
        batch = told.max_batch_size if told.max_batch_size > 0 else UNKNOWN_BATCH
        guides = dict.fromkeys(GUIDE_TYPES, frozenset({END_ID}))
        return Limits(told.max_seq_len, batch, guides, MAX_LOGPROBS)

    async def trouble(self, timeout_s: float) -> str | None:
        """Why the engine takes no requests; None if it does."""
        told = await self._health(self._no_question(), timeout=timeout_s)
        return None if told.status == "OK" else str(told.status) or "it does not say that it is OK"

    def request(
        self, request_id: str, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Any:
        """The message that asks for at most `left` ids."""
        request = self._request(
            request_id=request_id,
            tokenized={"input_token_ids": prompt_ids},
            sampling_config=_sampling(options),
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

    async def abort(self, request_id: str, timeout_s: float) -> bool:
        """Have the engine end a request, and say whether it knew it; its stream ends then.
        A call that is cancelled while a message is under way leaves the request running."""
        told = await self._abort(self._abort_request(request_id=request_id), timeout=timeout_s)
        return bool(told.success)

    def read(self, message: Any, seen: int, options: GenerateOptions) -> Part:
        """What a message says to a request that has seen so many ids."""
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


def _sampling(options: GenerateOptions) -> Mapping[str, float | int]:
    """Everything that samples, by the protocol's names."""
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
    if options.seed is not None:
        sampling["seed"] = options.seed % (1 << 64)
    return sampling


def stops_of(options: GenerateOptions) -> tuple[int, ...]:
    """The ids that stop a request. What a guide has guided ends with its own."""
    ends = () if options.guide is None else (END_ID,)
    return tuple(dict.fromkeys((*options.stop_ids, *ends)))


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
