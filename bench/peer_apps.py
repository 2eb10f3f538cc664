"""Other servers' own apps, where they can be imported, over an engine that plays a script.

Each is called by its public entry point, and its engine gives one id a step. None of their code is
here, and a version whose entry point differs raises what the row of `peers.py` then says.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from responses_conformance.peers.installed import (
    GPT_OSS,
    VLLM_ALONE,
    VLLM_NEEDS,
    importable,
)
from responses_conformance.peers.model import CONFIG

from bench.asks import MODEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp

    from bench.script import Script

    PeerApp = Callable[[Script], AbstractAsyncContextManager[ASGIApp]]

PACKAGES = ("gpt-oss", "vllm", "torch", "oss-harmony")
"""What is named with its version in the results, where it is installed. vLLM brings the last one,
which takes the place of `openai_harmony` under us too."""


@asynccontextmanager
async def gptoss(words: Script) -> AsyncIterator[ASGIApp]:
    """The reference server of the package `gpt-oss`, whose engine is a function."""
    from gpt_oss.responses_api.api_server import create_api_server
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    ids = iter(words.token_ids)

    def next_token(_: Sequence[int], temperature: float = 0.0, new_request: bool = False) -> int:
        nonlocal ids
        if new_request:
            ids = iter(words.token_ids)
        return next(ids)

    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    yield create_api_server(next_token, encoding)


@asynccontextmanager
async def vllm(words: Script) -> AsyncIterator[ASGIApp]:
    """The app of `vllm serve` as its server puts it together, over `VllmEngine`."""
    os.environ.setdefault(
        "VLLM_TARGET_DEVICE", "cpu"
    )  # nothing is computed, so no GPU is looked for
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    with tempfile.TemporaryDirectory() as model:
        _write_model(Path(model))
        parser = make_arg_parser(FlexibleArgumentParser())
        args = parser.parse_args(["--model", model, "--served-model-name", MODEL])
        config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
        engine = VllmEngine(words, config)
        try:
            app = build_app(args, ("generate",), config.model_config)
            await init_app_state(engine, app.state, args, ("generate",))
            yield app
        finally:
            engine.renderer.shutdown()


class VllmEngine:
    """What vLLM's server asks of an engine client, for a script: each id comes as vLLM's engine
    gives it to a stream, in an output of its own. No detokeniser has seen it: none is read here."""

    errored = False

    def __init__(self, words: Script, config: Any) -> None:
        from vllm.renderers import renderer_from_config
        from vllm.v1.engine.input_processor import InputProcessor

        self._words = words
        self.vllm_config = config
        self.model_config = config.model_config
        self.renderer = renderer_from_config(config)
        self.input_processor = InputProcessor(config, self.renderer)

    def check_admission(self, *_: object, **__: object) -> None:
        """Everyone is let in."""

    async def is_tracing_enabled(self) -> bool:
        return False

    async def do_log_stats(self) -> None:
        """There are none."""

    async def generate(
        self, prompt: Any, _: object, request_id: str, **__: object
    ) -> AsyncIterator[Any]:
        from vllm.outputs import CompletionOutput, RequestOutput

        last = len(self._words) - 1
        for place, token_id in enumerate(self._words.token_ids):
            await asyncio.sleep(0)
            output = CompletionOutput(
                index=0,
                text="",
                token_ids=[token_id],
                cumulative_logprob=None,
                logprobs=None,
                finish_reason="stop" if place == last else None,
            )
            yield RequestOutput(
                request_id=request_id,
                prompt=None,
                prompt_token_ids=prompt["prompt_token_ids"],
                prompt_logprobs=None,
                outputs=[output],
                finished=place == last,
                num_cached_tokens=0,
            )


def _write_model(directory: Path) -> None:
    """A gpt-oss without weights, for its server to find out that its model speaks Harmony; and a
    tokeniser of one word, for Harmony's ids are openai-harmony's."""
    words = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    for name, content in {
        "config.json": CONFIG,
        "tokenizer.json": {"version": "1.0", "added_tokens": [], "model": words},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }.items():
        (directory / name).write_bytes(orjson.dumps(content))


def _with_packages(
    app: PeerApp, module: str, alone: tuple[str, ...], needs: tuple[str, ...] = ()
) -> PeerApp:
    """The app, whose packages are installed for this process when they are missing."""

    @asynccontextmanager
    async def made(words: Script) -> AsyncIterator[ASGIApp]:
        with importable(module, alone, needs):
            async with app(words) as up:
                yield up

    return made


PEERS: dict[str, PeerApp] = {
    "gptoss": _with_packages(gptoss, "gpt_oss", (GPT_OSS,)),
    "vllm": _with_packages(vllm, "vllm", VLLM_ALONE, VLLM_NEEDS),
}
