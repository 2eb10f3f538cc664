"""From a checkpoint to an answer in the openai client, all but the package itself.

Budget: 8 s on one core.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scripts.tiny_adapter import write_adapter
from tests.support.double.environment import ANSWER, VERSION, environment
from tests.support.double.lab import GPU_HOST, Lab, tiny_checkpoint
from tests.support.double.llm import Double
from tests.support.double.results import Script
from tests.support.gather import generated
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.cli.engines.adapters import KINDS
from trt_responses.doctor.server import self_test
from trt_responses.engine import GenerateOptions
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.errors import StartupError
from trt_responses.fleet.engine_process import engine_of, trtllm_starter
from trt_responses.prepare.hardware import package_version
from trt_responses.prepare.shelf import adapter_changes
from trt_responses.prepare.shelf.card import architecture_of
from trt_responses.prepare.shelf.shelf import Selection
from trt_responses.prepare.trtllm.build import GpuHost, prepare
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


def test_the_package_may_live_in_another_environment(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    python = environment(tmp_path / "theirs")
    assert package_version(python) == VERSION
    settings = Settings(trtllm_python=python, engines_dir=tmp_path / "engines")
    host = GpuHost(lambda: GPU_HOST, trtllm_starter(settings))
    prepared = prepare(
        tiny_checkpoint(tmp_path / "gpt-oss-tiny"),
        settings.engines_dir,
        "tiny",
        Lab(vocabulary).tools,
        TrtLlmOptions(profile="latency", context_tokens=4096),
        host,
    )
    assert prepared.card.status == "verified"
    source = write_adapter(tmp_path / "source", architecture_of(prepared.card))
    adapter_changes.add(settings.engines_dir, "tiny", "style", source, KINDS)
    selection = Selection(prepared.directory, prepared.card, "")

    async def run() -> list[int]:
        engine = engine_of(selection, settings)
        await engine.start()
        try:
            assert engine.limits().adapters == ("style",)
            options = GenerateOptions(8, (CONTROL.return_,), adapter="style")
            return (await generated(engine, [1, 2, 3], options)).token_ids
        finally:
            await engine.stop(5)

    assert asyncio.run(run()) == [*ANSWER, CONTROL.return_]
    here = settings.model_copy(update={"engine_process": "never"})
    with pytest.raises(StartupError, match="names another interpreter"):
        engine_of(selection, here)


def test_an_environment_without_the_package_has_no_version_and_stops_the_start(
    tmp_path: Path,
) -> None:
    python = environment(tmp_path / "theirs")
    for file in python.parents[1].glob("lib/python*/site-packages/tensorrt_llm*"):
        file.rename(tmp_path / file.name)
    assert package_version(python) is None
    assert package_version(tmp_path / "nothing") is None
    start = trtllm_starter(Settings(trtllm_python=python))
    with pytest.raises(StartupError, match="tensorrt_llm cannot be imported"):
        asyncio.run(
            start(
                tmp_path, {"max_seq_len": 64, "max_batch_size": 1, "max_num_tokens": 64}, {}, None
            ).start()
        )
