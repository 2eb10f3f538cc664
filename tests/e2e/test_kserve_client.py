"""Every method of Triton's own HTTP client against a real server, sync and aio."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http as sync_client
import tritonclient.http.aio as aio_client
from tritonclient.utils import InferenceServerException

from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import ANSWER, SETTINGS, ids, script
from tests.support.serving import serving
from tests.support.versions import app_with, scripted
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TEXT = "Hello there, friend."
PROMPT = ids("<|start|>user<|message|>Hello<|end|><|start|>assistant")


class Triton:
    """One of the two clients. The sync one has a thread of its own, which gevent asks for."""

    def __init__(self, kind: str, url: str) -> None:
        self._is_sync = kind == "sync"
        self._url = url
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.client: Any = None

    async def __aenter__(self) -> Triton:
        if self._is_sync:
            self.client = await self.threaded(sync_client.InferenceServerClient, self._url)
        else:
            self.client = aio_client.InferenceServerClient(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.call("close")
        self._thread.shutdown()

    async def threaded(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *args, **kwargs))

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        function = getattr(self.client, method)
        if self._is_sync:
            return await self.threaded(function, *args, **kwargs)
        return await function(*args, **kwargs)

    async def refused(self, method: str, *args: Any, **kwargs: Any) -> str:
        with pytest.raises(InferenceServerException) as fault:
            await self.call(method, *args, **kwargs)
        return str(fault.value)

    def text(self, text: str = "Hello", *, binary: bool = True) -> Any:
        tensor = sync_client.InferInput("text_input", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([text.encode()], dtype=np.object_), binary_data=binary)
        return tensor

    def ids(self, *, binary: bool = True) -> Any:
        tensor = sync_client.InferInput("input_ids", [len(PROMPT)], "INT32")
        tensor.set_data_from_numpy(np.array(PROMPT, dtype=np.int32), binary_data=binary)
        return tensor


@asynccontextmanager
async def triton(kind: str) -> AsyncIterator[Triton]:
    engine = ScriptedEngine(lambda *_: script(ANSWER), clock=StepClock.free())
    app = create_app(Settings(**SETTINGS), engine=engine)
    async with serving(app) as address, Triton(kind, f"{address.host}:{address.port}") as client:
        yield client


@pytest.fixture(params=["sync", "aio"])
def with_client(request: pytest.FixtureRequest) -> Callable[[Callable[[Triton], Any]], None]:
    def run(scenario: Callable[[Triton], Any]) -> None:
        async def whole() -> None:
            async with triton(request.param) as client:
                await scenario(client)

        asyncio.run(whole())

    return run


@pytest.fixture(params=["sync", "aio"])
def with_versions(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[Callable[[Triton], Any]], None]:
    """A server that serves version 1 and may load 2 and 3."""

    def run(scenario: Callable[[Triton], Any]) -> None:
        async def whole() -> None:
            app, _, _ = app_with(tmp_path, scripted, scripted)
            async with serving(app) as at, Triton(request.param, f"{at.host}:{at.port}") as client:
                await scenario(client)

        asyncio.run(whole())

    return run


def test_health_and_descriptions(with_client: Any) -> None:
    async def scenario(client: Triton) -> None:
        assert await client.call("is_server_live")
        assert await client.call("is_server_ready")
        assert await client.call("is_model_ready", "demo")
        assert await client.call("is_model_ready", "demo", "1")
        assert not await client.call("is_model_ready", "demo", "2")
        assert not await client.call("is_model_ready", "nobody")
        assert (await client.call("get_server_metadata"))["name"] == "trt_responses"
        model = await client.call("get_model_metadata", "demo")
        assert [tensor["name"] for tensor in model["inputs"]] == ["text_input", "input_ids"]
        config = await client.call("get_model_config", "demo", "1")
        assert config["model_transaction_policy"] == {"decoupled": False}
        assert (await client.call("get_model_repository_index")) == [
            {"name": "demo", "version": "1", "state": "READY"}
        ]
        assert "'nobody' is not found" in await client.refused("get_model_metadata", "nobody")
        assert "version 9" in await client.refused("get_model_config", "demo", "9")

    with_client(scenario)


@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_infer(with_client: Any, coding: str | None, binary: bool) -> None:
    async def scenario(client: Triton) -> None:
        codings = {
            "request_compression_algorithm": coding,
            "response_compression_algorithm": coding,
        }
        for tensor in (client.text(binary=binary), client.ids(binary=binary)):
            result = await client.call("infer", "demo", [tensor], request_id="7", **codings)
            assert result.as_numpy("text_output").tolist() == [TEXT.encode()]
            assert result.as_numpy("output_ids").tolist() == list(ids(ANSWER))
            assert result.as_numpy("finish_reason").tolist() == [b"stop"]
            assert result.get_response()["id"] == "7"
        asked = [
            sync_client.InferRequestedOutput("output_ids", binary_data=binary),
            sync_client.InferRequestedOutput("text_output", binary_data=not binary),
        ]
        parameters = {"max_tokens": 6, "temperature": 0.0}
        result = await client.call(
            "infer", "demo", [client.text()], "1", outputs=asked, parameters=parameters, **codings
        )
        assert result.as_numpy("output_ids").tolist() == list(ids(ANSWER)[:6])
        assert result.as_numpy("text_output").dtype == np.object_
        assert result.get_output("finish_reason") is None

    with_client(scenario)


def test_infer_in_the_background() -> None:
    async def scenario() -> None:
        async with triton("sync") as client:

            def both() -> list[Any]:
                calls = [client.client.async_infer("demo", [client.text()]) for _ in range(3)]
                return [call.get_result().as_numpy("text_output").tolist() for call in calls]

            assert await client.threaded(both) == [[TEXT.encode()]] * 3

    asyncio.run(scenario())


def test_wrong_input_is_refused_in_words(with_client: Any) -> None:
    async def scenario(client: Triton) -> None:
        other = sync_client.InferInput("prompt", [1], "BYTES")
        other.set_data_from_numpy(np.array([b"Hello"], dtype=np.object_))
        assert "unexpected inference input 'prompt'" in await client.refused(
            "infer", "demo", [other]
        )
        wide = sync_client.InferInput("input_ids", [2], "INT64")
        wide.set_data_from_numpy(np.array([1, 2], dtype=np.int64))
        assert "'INT32' is expected" in await client.refused("infer", "demo", [wide])
        assert "one of the inputs" in await client.refused(
            "infer", "demo", [client.text(), client.ids()]
        )
        assert "is not found" in await client.refused("infer", "nobody", [client.text()])
        hot = {"temperature": 9}
        assert "temperature" in await client.refused(
            "infer", "demo", [client.text()], parameters=hot
        )

    with_client(scenario)


def test_statistics(with_client: Any) -> None:
    async def scenario(client: Triton) -> None:
        await client.call("infer", "demo", [client.text()])
        for named in ((), ("demo",), ("demo", "1")):
            [stats] = (await client.call("get_inference_statistics", *named))["model_stats"]
            assert stats["inference_stats"]["success"]["count"] == 1

    with_client(scenario)


def test_the_log_is_set_and_set_back(with_client: Any) -> None:
    async def scenario(client: Triton) -> None:
        before = await client.call("get_log_settings")
        try:
            told = await client.call("update_log_settings", {"log_verbose_level": 1})
            assert told["log_verbose_level"] == 1
            told = await client.call(
                "update_log_settings", {"log_verbose_level": 0, "log_info": False}
            )
            assert (told["log_info"], told["log_warning"]) == (False, True)
        finally:
            after = await client.call(
                "update_log_settings", {k: v for k, v in before.items() if k != "log_file"}
            )
        assert after == before
        assert "cannot set the file" in await client.refused(
            "update_log_settings", {"log_file": "/tmp/log"}
        )

    with_client(scenario)


def test_what_triton_has_and_this_server_does_not(with_client: Any) -> None:
    async def scenario(client: Triton) -> None:
        for method in ("load_model", "unload_model"):
            assert "given by the program" in await client.refused(method, "demo")
        calls: tuple[tuple[Any, ...], ...] = (
            ("get_trace_settings",),
            ("update_trace_settings", "demo", {"trace_level": ["OFF"]}),
            ("get_system_shared_memory_status",),
            ("register_system_shared_memory", "region", "/key", 64),
            ("unregister_system_shared_memory",),
            ("get_cuda_shared_memory_status",),
            ("register_cuda_shared_memory", "region", b"AA==", 0, 64),
            ("unregister_cuda_shared_memory",),
        )
        for method, *arguments in calls:
            assert "no trace settings and no shared memory" in await client.refused(
                method, *arguments
            )
        metadata = await client.call("get_server_metadata")
        assert not {"trace", "system_shared_memory"} & set(metadata["extensions"])

    with_client(scenario)


def test_versions_are_loaded_and_unloaded(with_versions: Any) -> None:
    async def scenario(client: Triton) -> None:
        admin = {"headers": {"authorization": "Bearer boss"}}
        for method in ("load_model", "unload_model"):
            assert "admin" in await client.refused(method, "demo")
        chosen = {"version_policy": {"specific": {"versions": [2]}}}
        await client.call("load_model", "demo", config=json.dumps(chosen), **admin)
        index = await client.call("get_model_repository_index")
        assert {entry["version"]: entry["state"] for entry in index} == {
            "2": "READY",
            "3": "UNAVAILABLE",
            "1": "UNAVAILABLE",
        }
        assert await client.call("is_model_ready", "demo", "2")
        assert not await client.call("is_model_ready", "demo", "1")
        result = await client.call("infer", "demo", [client.text()], "2")
        assert result.get_response()["model_version"] == "2"
        assert "version 3 is not found" in await client.refused(
            "infer", "demo", [client.text()], "3"
        )
        await client.call("load_model", "demo", **admin)  # the newest
        assert (await client.call("get_model_metadata", "demo"))["versions"] == ["3"]
        refused = await client.refused("unload_model", "demo", **admin)
        assert "only a canary can be unloaded" in refused
        files = {"file:1/model.py": b"..."}
        refused = await client.refused(
            "load_model", "demo", config=json.dumps(chosen), files=files, **admin
        )
        assert "loads only prepared versions" in refused
        assert await client.call("is_model_ready", "demo", "3")

    with_versions(scenario)


def test_a_models_name_may_hold_slashes() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(lambda *_: script(ANSWER), clock=StepClock.free())
        name = "openai/gpt-oss-20b"
        app = create_app(Settings(**(SETTINGS | {"model": name})), engine=engine)
        async with serving(app) as at, Triton("aio", f"{at.host}:{at.port}") as client:
            assert await client.call("is_model_ready", name, "1")
            result = await client.call("infer", name, [client.text()])
            assert result.as_numpy("text_output").tolist() == [TEXT.encode()]

    asyncio.run(scenario())
