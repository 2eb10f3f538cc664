"""The body of a request to llama.cpp's native `/completion`.

All sampling options are explicit, because the server's defaults (top_k 40, top_p 0.95, min_p 0.05)
must never apply. No connection here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.engines.grammar import grammar
from trt_responses.engines.llamacpp.whole_characters import whole_characters
from trt_responses.frozen import dataclass
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.engine import GenerateOptions, GuideKind
    from trt_responses.engines.slots import Slot

END_OF_TEXT = CONTROL.endoftext
STOPS_BY_ITSELF = frozenset({END_OF_TEXT, CONTROL.return_, CONTROL.call})
"""The ids at which llama.cpp always stops: `<|endoftext|>`, `<|return|>` and `<|call|>`."""
CONTROL_IDS = range(FIRST_CONTROL_ID, VOCABULARY_SIZE)


@dataclass(frozen=True, slots=True)
class Marks:
    """A model's special ids for llama.cpp; the defaults are gpt-oss's."""

    controls: Sequence[int] = CONTROL_IDS
    stops: frozenset[int] = STOPS_BY_ITSELF
    """The ids at which llama.cpp always stops."""
    guide_ends: frozenset[int] = frozenset({END_OF_TEXT})
    """The ids with which llguidance ends a guide."""

    @property
    def guides(self) -> Mapping[GuideKind, frozenset[int]]:
        return dict.fromkeys(("json_schema", "regex", "lark"), self.guide_ends)

    @property
    def banned_in_guides(self) -> tuple[int, ...]:
        """Control ids to ban under a guide, where one could pass as the content of a string."""
        return tuple(n for n in self.controls if n not in self.guide_ends)


HARMONY = Marks()

SAMPLERS = ("penalties", "temperature", "top_k", "top_p", "min_p")
GREEDY_SAMPLERS = ("penalties", "top_k")
LAST_EVENT_FIELDS = ("tokens", "stop_type", "tokens_predicted")
OWN_SEED = 0xFFFF_FFFF
"""The seed with which llama.cpp chooses one itself; it is never sent."""


Words = dict[str, object]


def words(
    prompt_ids: Sequence[int],
    options: GenerateOptions,
    left: int,
    seed: int,
    spelled: Callable[[str], str] = str,
    banned_in_guides: Sequence[int] = HARMONY.banned_in_guides,
    adapters: Sequence[str] = (),
) -> Words:
    """All fields of the body except the slot, which is assigned later. Raises if the guide is
    unsupported.

    Each of the child's adapters is listed, on or off: a body without them would use the cache that
    another adapter left in the slot.
    """
    greedy = options.temperature <= 0
    penalised = options.presence_penalty != 0 or options.frequency_penalty != 0
    penalised = penalised or options.repetition_penalty != 1
    own = () if options.guide is None else banned_in_guides
    banned = dict.fromkeys((*own, *options.banned_ids))
    fields: Words = {
        "prompt": list(prompt_ids),
        "n_predict": left,
        "stream": True,
        "return_tokens": True,
        "return_progress": True,
        "response_fields": LAST_EVENT_FIELDS,
        "samplers": GREEDY_SAMPLERS if greedy else SAMPLERS,
        "temperature": options.temperature,
        "top_k": 1 if greedy else options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "repeat_penalty": options.repetition_penalty,
        "repeat_last_n": len(prompt_ids) + left if penalised else 0,
        "seed": seed % OWN_SEED,
        "n_probs": 0 if options.logprobs is None else max(1, options.logprobs),
        "logit_bias": [*options.logit_bias, *((token_id, False) for token_id in banned)],
        "ignore_eos": False,
        "stop": (),
        "grammar": ""
        if options.guide is None
        else spelled(grammar(whole_characters(options.guide))),
    }
    if adapters:
        fields["lora"] = [
            {"id": number, "scale": float(name == options.adapter)}
            for number, name in enumerate(adapters)
        ]
    return fields


def resumed(words: Words, ids: Sequence[int]) -> Words:
    """The same request for another child, continued after these ids."""
    prompt, left, seed = words["prompt"], words["n_predict"], words["seed"]
    assert isinstance(prompt, list)
    assert isinstance(left, int)
    assert isinstance(seed, int)
    return {
        **words,
        "prompt": [*prompt, *ids],
        "n_predict": left - len(ids),
        "seed": (seed + len(ids)) % OWN_SEED,  # else it would draw the same numbers again
    }


def body(words: Words, slot: Slot) -> bytes:
    """The body for a slot."""
    return orjson.dumps({**words, "id_slot": slot.number, "cache_prompt": slot.reusable})
