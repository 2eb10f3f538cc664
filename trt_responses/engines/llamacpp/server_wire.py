"""A llama.cpp server that somebody else started: the paths and reports beside the protocol that it
shares with the embedded engine's child. No connection.

It serves files that this project prepared: in others an id may hold a part of a character, and the
server streams no such id.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trt_responses.engine import EXTRAS, GenerateOptions, Limits
from trt_responses.engines.http_engine import Found, Look
from trt_responses.engines.llamacpp.body import HARMONY, words
from trt_responses.engines.llamacpp.events import Events
from trt_responses.errors import StartupError
from trt_responses.tokens.control import FIRST_PADDING_ID

MAX_LOGPROBS = 20
BANNED_IN_GUIDES = tuple(n for n in HARMONY.banned_in_guides if n < FIRST_PADDING_ID)


class LlamaServerWire:
    """The routes of `llama-server`. `spelled` converts a guide to the model file's spelling."""

    name = "llama.cpp"
    path = "/completion"
    health = "/health"
    known = "b"

    def __init__(self, spelled: Callable[[str], str] = str) -> None:
        self._spelled = spelled
        self._adapters: tuple[str, ...] = ()
        self._seeds = random.Random()

    async def describe(self, look: Look) -> Found:
        props = (await look("/props")).fields
        if "total_slots" not in props:
            raise StartupError("it is no llama.cpp server: /props has no total_slots.")
        adapters = (await look("/lora-adapters")).fields or []
        self._adapters = tuple(_name(str(each["path"])) for each in adapters)
        limits = Limits(
            int(props["default_generation_settings"]["n_ctx"]),
            int(props["total_slots"]),
            HARMONY.guides,
            MAX_LOGPROBS,
            adapters=self._adapters,
            extras=EXTRAS,
        )
        return Found(str(props.get("build_info", "")), _name(str(props["model_path"])), limits)

    def body(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Mapping[str, Any]:
        seed = self._seeds.getrandbits(32) if options.seed is None else options.seed
        return words(
            prompt_ids, options, left, seed, self._spelled, BANNED_IN_GUIDES, self._adapters
        )

    def reader(self, options: GenerateOptions, left: int) -> Events:
        return Events(options)


def _name(path: str) -> str:
    """A file's name without its folder and suffix."""
    return path.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")
