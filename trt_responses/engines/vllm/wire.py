"""The routes of vLLM for token ids: fields of requests, events and reports. No connection.

Started with `--enable-scale-out` or `--tokens-only`. Its defaults never apply: all options are
explicit, and end ids stop a request because it lists them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, get_args

from trt_responses.engine import EXTRAS, GenerateOptions, Guide, GuideKind, Limits
from trt_responses.engines.distant import Away
from trt_responses.engines.grammar import grammar
from trt_responses.engines.http_engine import Found, Look
from trt_responses.engines.id_events import (
    GPT_OSS,
    IdEvents,
    ModelIds,
    Part,
    biases_of,
    salt_of,
    sampling_of,
    spelled_logprob,
)
from trt_responses.errors import StartupError

KINDS = get_args(GuideKind)
MAX_LOGPROBS = 20
UNKNOWN_BATCH = 256
"""The batch of a server that does not report it: the smallest of vLLM's defaults."""
MOST = 2**14
"""More sequences than a server runs at once; such a request is refused with the server's limit."""
BAN = -100.0
"""The lowest bias that vLLM takes."""
LIMIT = re.compile(r"max_num_seqs \((\d+)\)")
ALLOWED = re.compile(r"max allowed: (\d+)")
NO_PRIORITIES = "no priorities: start vLLM with --scheduling-policy priority"
START = "start vLLM with --enable-scale-out"


class VllmWire:
    """The routes of `vllm serve`."""

    name = "vLLM"
    path = "/inference/v1/generate"
    health = "/health"
    known = "0.33."

    def __init__(self, ids: ModelIds = GPT_OSS) -> None:
        self._ids = ids
        self._takes_priorities = False
        self._model = ""

    async def describe(self, look: Look) -> Found:
        models = (await look("/v1/models")).fields.get("data", [])
        bases = [model for model in models if model.get("parent") is None]
        if not bases or not isinstance(context := bases[0].get("max_model_len"), int):
            raise StartupError("it is no vLLM server: /v1/models has no max_model_len.")
        self._model = str(bases[0]["id"])
        version = str((await look("/version")).fields.get("version", "of an unknown version"))
        adapters = tuple(str(model["id"]) for model in models if model.get("parent") is not None)
        batch = await self._batch(look)
        priority = {"priority": -1, **self._probe(max_tokens=1)}
        self._takes_priorities = (await look(self.path, priority)).status == 200
        limits = Limits(
            context,
            batch,
            dict.fromkeys(KINDS, frozenset(self._ids.ends)),
            await self._logprobs(look),
            adapters=adapters,
            extras=EXTRAS,
        )
        lacks = () if self._takes_priorities else (NO_PRIORITIES,)
        return Found(version, self._model, limits, lacks)

    async def _batch(self, look: Look) -> int:
        """The requests that it runs at once, which only a refusal reports."""
        reply = await look(
            self.path, {"stream": True, **self._probe(n=MOST, prompt_logprob_token_ids=[[0]])}
        )
        if reply.status in (404, 405):
            raise StartupError(f"it has no {self.path}: {START}.")
        found = LIMIT.search(reply.message)
        return int(found[1]) if found else UNKNOWN_BATCH

    async def _logprobs(self, look: Look) -> int:
        with suppress(Away):  # a server that fails here has none
            reply = await look(self.path, self._probe(max_tokens=1, logprobs=MAX_LOGPROBS))
            if reply.status == 200:
                return MAX_LOGPROBS
            if found := ALLOWED.search(reply.message):
                return int(found[1])
        return 0

    def body(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Mapping[str, Any]:
        fields: dict[str, Any] = {
            "model": options.adapter or self._model,  # gateways of a fleet refuse a request without
            "token_ids": list(prompt_ids),
            "stream": True,
            "stream_options": {"include_usage": True},
            "reasoning_ended": True,  # else a guide waits for the end of a thought
            "sampling_params": _sampling(options, left, self._ids),
        }
        if options.request_id:  # of which several requests may be made
            fields["request_id"] = f"{options.request_id}-{token_hex(4)}"
        if (salt := salt_of(options)) is not None:
            fields["cache_salt"] = salt
        if self._takes_priorities:
            fields["priority"] = round((0.5 - options.priority) * 100)  # the lowest goes first
        return fields

    def reader(self, options: GenerateOptions, left: int) -> IdEvents:
        return IdEvents(options, left, lambda event, _: _part(event, options), self._ids)

    def _probe(self, **sampling: Any) -> dict[str, Any]:
        prompt = list(self._ids.probe)
        return {"token_ids": prompt, "sampling_params": {"detokenize": False, **sampling}}


def _sampling(options: GenerateOptions, left: int, ids: ModelIds) -> dict[str, Any]:
    fields = sampling_of(options, ids) | {
        "max_tokens": left,
        "seed": options.seed,
        "ignore_eos": True,
        "detokenize": False,
        "skip_special_tokens": False,
        "logprobs": options.logprobs,
        "logit_bias": biases_of(options, BAN, ids) or None,
    }
    if options.guide is not None:
        fields["structured_outputs"] = _structured(options.guide)
    return fields


def _structured(guide: Guide) -> dict[str, str]:
    match guide.kind:
        case "json_schema":
            return {"json": guide.source}
        case "regex":
            return {"regex": guide.source}
        case "lark":
            return {"grammar": grammar(guide)}


def _part(event: Mapping[str, Any], options: GenerateOptions) -> Part:
    if not event["choices"]:  # behind the last ids
        details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
        return Part(cached_tokens=details.get("cached_tokens"), whole=True)
    (choice,) = event["choices"]
    logprobs = []
    if options.logprobs is not None and choice.get("logprobs"):
        for entry in choice["logprobs"]["content"]:
            top = [(other["token_id"], other["logprob"]) for other in entry["top_logprobs"]]
            logprobs.append(spelled_logprob(entry["token_id"], entry["logprob"], top, options))
    return Part(choice["token_ids"] or (), logprobs, end=choice["finish_reason"])
