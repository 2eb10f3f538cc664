"""From a checkpoint to an answer in the openai client, all but the package itself.

Budget: 4 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.double.lab import Lab, tiny_checkpoint
from tests.support.double.llm import Double
from tests.support.double.results import Script
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.doctor.server import self_test
from trt_responses.engine.trtllm.engine import TrtLlmEngine
from trt_responses.prepare.trtllm.plan import TrtLlmOptions, served
from trt_responses.settings import Settings
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.double.words import SamplingParams
    from trt_responses.doctor import Check
    from trt_responses.tokens.vocabulary import Vocabulary


def test_what_was_prepared_is_served_to_the_openai_client(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "gpt-oss-tiny")
    wish = TrtLlmOptions(profile="latency", context_tokens=4096)
    prepared = Lab(vocabulary).prepare(checkpoint, tmp_path / "engines", "tiny", wish)
    text = "<|channel|>final<|message|>The capital of France is Paris, as it has long been."
    ids = vocabulary.encoding.encode(text, allowed_special="all")
    steps = (tuple(ids[:10]), (), (*ids[10:], CONTROL.return_))

    def says(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        return Script(((9, CONTROL.return_),) if params.guided_decoding else steps)

    async def run() -> Check:
        given = served(prepared.directory, prepared.card)
        engine = TrtLlmEngine(
            given.checkpoint,
            given.arguments,
            variables=given.variables,
            package=Double(says).package,
            environment={},
        )
        app = create_app(Settings(model="gpt-oss-tiny", store="memory://"), engine=engine)
        async with serving(app) as address:
            return await asyncio.to_thread(self_test, address.host, address.port, "none")

    answered = asyncio.run(run())
    assert answered.state == "ok"
    assert f"completed, {len(ids) + 1} tokens" in answered.found
