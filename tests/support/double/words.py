"""The values that calls take: their fields are the contract's, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.support.double import contract as names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from inspect import Signature

    from tests.support.double.contract import Entry


class Words:
    """A keyword-only dataclass with slots and the contract's fields."""

    known: ClassVar[Mapping[str, Entry]] = {}
    __signature__: ClassVar[Signature]

    def __init__(self, **given: object) -> None:
        for name in given:
            if name not in self.known:
                raise TypeError(f"{type(self).__name__}: unexpected keyword argument {name!r}")
        names.check_all(given, self.known)
        for name, entry in self.known.items():
            object.__setattr__(self, name, given.get(name, entry.get("default")))

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.known:
            raise AttributeError(f"{type(self).__name__} has no slot {name!r}")
        object.__setattr__(self, name, value)


class SamplingParams(Words):
    end_id: int | None
    pad_id: int | None
    max_tokens: int
    stop_token_ids: list[int] | None
    include_stop_str_in_output: bool
    detokenize: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    seed: int | None
    logprobs: int | None
    bad_token_ids: list[int] | None
    guided_decoding: GuidedDecodingParams | None
    return_perf_metrics: bool

    def __init__(self, **given: object) -> None:
        super().__init__(**given)
        for name, lowest in (("top_k", 0), ("temperature", 0)):
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ValueError(f"require {name} >= {lowest}, got {name}={value}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={self.top_p}")

    @property
    def is_greedy(self) -> bool:
        nothing = self.temperature is None and self.top_p is None and self.top_k is None
        return nothing or self.temperature == 0 or self.top_k == 1


class GuidedDecodingParams(Words):
    json: str | None
    regex: str | None

    def __init__(self, **given: object) -> None:
        super().__init__(**given)
        if sum(bool(getattr(self, name)) for name in self.known) > 1:
            raise ValueError("Only one guide can be used at a time.")


class SchedulingParams(Words):
    attention_dp_rank: int | None
    attention_dp_relax: bool | None


class LoRARequest(Words):
    lora_name: str
    lora_int_id: int
    lora_path: str

    def __init__(self, **given: object) -> None:
        super().__init__(**given)
        if not Path(self.lora_path).exists():
            raise ValueError(f"lora_path ({self.lora_path}) does not exist.")


def words_class(base: type[Words], fields: Mapping[str, Entry]) -> type[Words]:
    made = type(base.__name__, (base,), {"known": fields})
    made.__signature__ = names.keyword_only(fields)  # type: ignore[attr-defined]  # one per version
    return made
