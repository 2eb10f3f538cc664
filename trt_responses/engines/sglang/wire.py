"""SGLang's native `/generate`: fields of requests, events and reports. No connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trt_responses.engine import EXTRAS, GenerateOptions, GuideKind, Limits
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

GUIDES: Mapping[GuideKind, str] = {"json_schema": "json_schema", "regex": "regex"}
"""SGLang's field for each kind of guide."""
MAX_LOGPROBS = 20
UNKNOWN_BATCH = 256
BAN = -100.0
WHOLE_VOCABULARY = -1
OPTIONS = {
    "enable_priority_scheduling": "no priorities: start SGLang with --enable-priority-scheduling",
    "incremental_streaming_output": "each event repeats all ids: start SGLang with "
    "--incremental-streaming-output",
}
"""What SGLang lacks without an option."""


class SglangWire:
    """The routes of `sglang serve`."""

    name = "SGLang"
    path = "/generate"
    health = "/health"
    known = "0.5."

    def __init__(self, ids: ModelIds = GPT_OSS) -> None:
        self._ids = ids
        self._takes_priorities = self._lowest_first = False
        self._repeats = True
        """Whether each event repeats all ids."""

    async def describe(self, look: Look) -> Found:
        info = (await look("/server_info")).fields
        models = (await look("/v1/models")).fields.get("data", [])
        if "version" not in info or not models or not isinstance(info, dict):
            raise StartupError("it is no SGLang server: /server_info has no version.")
        self._repeats = not info.get("incremental_streaming_output")
        self._takes_priorities = bool(info.get("enable_priority_scheduling"))
        self._lowest_first = bool(info.get("schedule_low_priority_values_first"))
        bases = [model for model in models if model.get("parent") is None]
        limits = Limits(
            int(bases[0]["max_model_len"]),
            int(info.get("max_running_requests") or UNKNOWN_BATCH),
            dict.fromkeys(GUIDES, frozenset(self._ids.ends)),
            MAX_LOGPROBS,
            longest_prompt=info.get("max_req_input_len"),
            adapters=tuple(model["id"] for model in models if model.get("parent") is not None),
            extras=EXTRAS,
        )
        lacks = [remedy for flag, remedy in OPTIONS.items() if not info.get(flag)]
        return Found(str(info["version"]), str(bases[0]["id"]), limits, lacks)

    def body(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Mapping[str, Any]:
        fields: dict[str, Any] = {
            "input_ids": list(prompt_ids),
            "stream": True,
            "sampling_params": _sampling(options, left, self._ids),
        }
        if options.logprobs is not None:
            fields |= {"return_logprob": True, "top_logprobs_num": options.logprobs}
        if options.adapter is not None:
            fields["lora_path"] = options.adapter
        if (salt := salt_of(options)) is not None:
            fields["extra_key"] = salt
        if self._takes_priorities:
            priority = round((options.priority - 0.5) * 100)
            fields["priority"] = -priority if self._lowest_first else priority
        return fields

    def reader(self, options: GenerateOptions, left: int) -> IdEvents:
        def read(event: Mapping[str, Any], seen: int) -> Part:
            return _part(event, options, seen if self._repeats else 0)

        return IdEvents(options, left, read, self._ids)


def _sampling(options: GenerateOptions, left: int, ids: ModelIds) -> dict[str, Any]:
    fields = sampling_of(options, ids) | {
        "max_new_tokens": left,
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }
    if fields["top_k"] <= 0:
        fields["top_k"] = WHOLE_VOCABULARY
    if banned := biases_of(options, BAN, ids):
        fields["logit_bias"] = banned
    if options.seed is not None:
        fields["sampling_seed"] = options.seed
    if options.guide is not None:
        fields[GUIDES[options.guide.kind]] = options.guide.source
    return fields


def _part(event: Mapping[str, Any], options: GenerateOptions, known: int) -> Part:
    """The part of an event, of whose ids so many are known."""
    meta = event["meta_info"]
    finish = meta.get("finish_reason")
    logprobs = []
    if options.logprobs is not None:
        chosen = meta.get("output_token_logprobs") or []
        others = meta.get("output_top_logprobs") or [()] * len(chosen)
        for (logprob, token_id, *_), entries in list(zip(chosen, others, strict=False))[known:]:
            top = [(other[1], other[0]) for other in entries or ()]
            logprobs.append(spelled_logprob(token_id, logprob, top, options))
    return Part(
        event.get("output_ids", [])[known:],
        logprobs,
        meta.get("cached_tokens"),
        None if finish is None else _end(finish),
        whole=finish is not None,
    )


def _end(finish: Mapping[str, Any]) -> str:
    """Why a request ended: SGLang's type, with the message of an abort."""
    message = finish.get("message")
    return f"{finish['type']} ({message})" if message else str(finish["type"])
