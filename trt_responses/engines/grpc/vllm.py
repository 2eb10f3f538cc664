"""The protocol of `vllm serve --grpc`: makes and reads messages, without state. Calls raise
gRPC's errors.

The protocol has neither cache salts nor priorities nor adapters, and reports no guides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from trt_responses.engine import EXTRAS, GenerateOptions, Guide, GuideKind, Limits, Logprob
from trt_responses.engines.grammar import grammar
from trt_responses.engines.grpc.messages import Messages
from trt_responses.engines.id_events import (
    ENDS,
    GPT_OSS,
    Part,
    biases_of,
    sampling_of,
    spelled_logprob,
)
from trt_responses.errors import StartupError

PACKAGE = "vllm.grpc.engine"
MAX_LOGPROBS = 19
"""One fewer than vLLM's default, since the drawn id takes the place of an alternative."""
UNKNOWN_BATCH = 256
"""The batch of a server that does not report it: the smallest of vLLM's defaults."""
BAN = -100.0


class VllmProtocol:
    """The protocol of vLLM over one channel."""

    ids = GPT_OSS

    def __init__(self, channel: Any) -> None:
        self._messages = messages = Messages("vllm")
        service = f"{PACKAGE}.VllmEngine"
        self.generate = messages.call(channel, f"{service}.Generate")
        self._calls = {
            name: messages.call(channel, f"{service}.{name}")
            for name in ("HealthCheck", "GetModelInfo", "GetServerInfo", "Abort")
        }

    def _message(self, name: str) -> Any:
        return self._messages.message(f"{PACKAGE}.{name}Request")

    async def _ask(self, name: str, timeout_s: float, **fields: Any) -> Any:
        return await self._calls[name](self._message(name)(**fields), timeout=timeout_s)

    async def describe(self, timeout_s: float) -> Limits:
        """The limits that the protocol reports; working guides and ignored options are tested
        later. Raises a `StartupError` for an unsupported engine."""
        model = await self._ask("GetModelInfo", timeout_s)
        if model.max_context_length <= 0:
            raise StartupError("it does not report its context size.")
        server = await self._ask("GetServerInfo", timeout_s)
        batch = server.max_num_seqs if server.max_num_seqs > 0 else UNKNOWN_BATCH
        guides = dict.fromkeys(get_args(GuideKind), frozenset(ENDS))
        return Limits(model.max_context_length, batch, guides, MAX_LOGPROBS, extras=EXTRAS)

    async def trouble(self, timeout_s: float) -> str | None:
        """Why the engine accepts no requests; None if it does."""
        reply = await self._ask("HealthCheck", timeout_s)
        return None if reply.healthy else str(reply.message) or "it is not healthy"

    def request(
        self, request_id: str, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Any:
        """The message of a request for at most `left` ids."""
        return self._message("Generate")(
            request_id=request_id,
            tokenized={"input_ids": prompt_ids},
            sampling_params=_sampling(options, left),
            stream=True,
        )

    async def abort(self, request_id: str, timeout_s: float) -> bool:
        """Abort a request on the engine, which ends its stream if it has arrived there; the reply
        does not say so."""
        await self._ask("Abort", timeout_s, request_ids=[request_id])
        return False

    def read(self, message: Any, seen: int, options: GenerateOptions) -> Part:
        """The new part in a message. The last one repeats the ids of the one before."""
        if message.WhichOneof("response") == "complete":
            return Part(end=message.complete.finish_reason or "it did not say why")
        chunk = message.chunk
        logprobs = _logprobs(chunk.output_logprobs, options)
        return Part(list(chunk.token_ids), logprobs, chunk.cached_tokens)


def _sampling(options: GenerateOptions, left: int) -> dict[str, Any]:
    fields = sampling_of(options) | {
        "max_tokens": left,
        "ignore_eos": True,
        "logit_bias": {int(n): bias for n, bias in biases_of(options, BAN).items()},
    }
    if options.seed is not None:
        fields["seed"] = options.seed % (1 << 31)
    if options.logprobs is not None:
        fields["logprobs"] = options.logprobs and options.logprobs + 1
    if options.guide is not None:
        # Else it waits for the end of a thought.
        fields |= {**_structured(options.guide), "grammar_from_first_token": True}
    return fields


def _structured(guide: Guide) -> Mapping[str, Any]:
    if guide.kind == "lark":
        return {"grammar": grammar(guide)}
    return {guide.kind: guide.source}


def _logprobs(found: Any, options: GenerateOptions) -> list[Logprob]:
    """Log probabilities with their alternatives. The drawn id stands first among these, likely or
    not."""
    if options.logprobs is None:
        return []
    tops = found.top_logprobs or [None] * len(found.token_ids)
    return [
        spelled_logprob(
            token_id,
            logprob,
            [] if top is None else list(zip(top.token_ids, top.values, strict=True)),
            options,
        )
        for token_id, logprob, top in zip(found.token_ids, found.token_logprobs, tops, strict=True)
    ]
