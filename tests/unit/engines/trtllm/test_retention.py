"""What TensorRT-LLM is told to keep in its cache, by the ids of a prompt, over the stand-in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.double.llm import Double
from tests.support.double.results import Script
from tests.support.gather import generated
from tests.support.served import ids
from trt_responses.engine import GenerateOptions
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.engines.trtllm.retention import Kept, kept_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engines.trtllm.api import Package

SYSTEM = "<|start|>system<|message|>You help.<|end|><|start|>developer<|message|>Be short.<|end|>"
ASKED = "<|start|>user<|message|>Is it cold?<|end|>"
CALLED = (
    "<|start|>assistant<|channel|>commentary to=functions.weather<|message|>{}<|call|>"
    "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>12<|end|>"
)
ANSWERED = "<|start|>assistant<|channel|>final<|message|>No.<|end|>"
BEGINS = "<|start|>assistant"
ARGUMENTS = {"max_seq_len": 4096, "max_batch_size": 4, "max_num_tokens": 4096}


@pytest.mark.parametrize(
    ("text", "calling"),
    [
        (ASKED + BEGINS, False),
        (ASKED + CALLED + BEGINS, True),
        (ASKED + CALLED + ANSWERED + ASKED + BEGINS, False),
    ],
)
def test_the_instructions_and_a_running_call_are_found_in_the_ids(text: str, calling: bool) -> None:
    assert kept_of(ids(SYSTEM + text)) == Kept(len(ids(SYSTEM)), calling=calling)


def test_a_prompt_without_a_user_has_nothing_to_keep() -> None:
    assert kept_of(ids(BEGINS)) == kept_of([]) == Kept(0, calling=False)


@dataclass
class Retained:
    """Stands for `KvCacheRetentionConfig`."""

    token_range_retention_configs: Sequence[Any]
    decode_retention_priority: int
    decode_duration_ms: timedelta | None

    @staticmethod
    def TokenRangeRetentionConfig(  # theirs
        token_start: int, token_end: int | None, priority: int, duration_ms: timedelta | None
    ) -> tuple[int, int | None, int, timedelta | None]:
        return (token_start, token_end, priority, duration_ms)


def retained(text: str, *, known: bool = True) -> Any:
    """What the package gets with a prompt."""
    double = Double(lambda prompt, params: Script(((1,),)))

    def package() -> Package:
        config: Any = Retained if known else None
        return replace(double.package(), retention_config=config)

    async def told() -> None:
        engine = TrtLlmEngine(Path("checkpoint"), ARGUMENTS, package=package, environment={})
        await engine.start()
        await generated(engine, ids(text), GenerateOptions(4, ()))
        await engine.stop(1)

    asyncio.run(told())
    return double.requests[-1].kv_cache_retention_config


def test_the_package_is_told_what_to_keep_and_for_how_long() -> None:
    place = len(ids(SYSTEM))
    instructions = (0, place, 70, timedelta(minutes=30))
    calling = timedelta(minutes=2)
    assert retained(SYSTEM + ASKED + BEGINS) == Retained(
        [instructions, (place, None, 35, None)], 35, None
    )
    assert retained(SYSTEM + ASKED + CALLED + BEGINS) == Retained(
        [instructions, (place, None, 55, calling)], 55, calling
    )


def test_a_version_without_retention_gets_none() -> None:
    assert retained(SYSTEM + ASKED + BEGINS, known=False) is None
