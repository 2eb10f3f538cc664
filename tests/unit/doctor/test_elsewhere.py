"""The doctor's look at an engine that another server serves, over gRPC or HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from tests.support.grpc_server import echo_llm, served
from tests.support.grpc_servicers import Servicer
from tests.support.id_servers import echoing, id_server
from trt_responses.cli.main import main
from trt_responses.doctor.elsewhere import elsewhere_checks
from trt_responses.settings import Settings

if TYPE_CHECKING:
    import pytest

    from trt_responses.doctor.check import Check


def test_an_engine_that_is_there_says_what_it_can_do() -> None:
    async def look() -> list[Check]:
        async with served(Servicer(echo_llm())) as port:
            settings = Settings(engine=f"grpc://127.0.0.1:{port}/demo")
            return await asyncio.to_thread(lambda: list(elsewhere_checks(settings)))

    (check,) = asyncio.run(look())
    assert check.state == "ok"
    assert "answers: 512 ids, 2 at once, guides: none; it ignores " in check.found


def test_an_engine_that_is_not_there_is_a_fault_with_a_remedy() -> None:
    (check,) = elsewhere_checks(Settings(engine="grpc://127.0.0.1:9/demo"), start_s=0)
    assert check.state == "fault"
    assert "127.0.0.1:9/demo: it accepted no request within 0 s" in check.found
    assert "trtllm-serve MODEL --grpc" in check.remedy
    assert list(elsewhere_checks(Settings())) == []


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    (check,) = elsewhere_checks(Settings(engine="grpc://127.0.0.1:9/demo"))
    assert "'trt-responses[grpc]'" in check.found


def test_a_server_over_http_says_its_version_model_limits_and_lacks() -> None:
    async def look() -> list[Check]:
        server = echoing("vllm")
        server.priorities = False
        async with id_server(server) as port:
            settings = Settings(engine=f"vllm://127.0.0.1:{port}")
            return await asyncio.to_thread(lambda: list(elsewhere_checks(settings)))

    (check,) = asyncio.run(look())
    assert (check.name, check.state) == ("engine over vLLM", "ok")
    assert "answers (vLLM 0.33.0, model openai/gpt-oss; no priorities: start" in check.found
    assert "512 ids, 2 at once" in check.found


def test_the_command_takes_the_url_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    async def look() -> None:
        async with id_server(echoing("vllm")) as port:
            url = f"vllm://127.0.0.1:{port}"
            await asyncio.to_thread(main, ["doctor", "--engine", url, "--json"])

    asyncio.run(look())
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = {check["name"]: check["state"] for check in checks}
    assert found["engine over vLLM"] == "ok"


def test_a_server_over_http_that_is_not_there_is_a_fault_with_its_command() -> None:
    for scheme, command in (("vllm", "--enable-scale-out"), ("llama-server", "llama-server -m")):
        (check,) = elsewhere_checks(Settings(engine=f"{scheme}://127.0.0.1:9"), start_s=0)
        assert check.state == "fault"
        assert command in check.remedy


def test_each_engine_of_several_is_checked_where_another_server_has_it() -> None:
    listed = "several://a=demo,a=sglang://127.0.0.1:9,b=llama-server://127.0.0.1:9"
    checks = list(elsewhere_checks(Settings(engine=listed), start_s=0))
    assert [check.name for check in checks] == ["engine over SGLang", "engine over llama.cpp"]
    assert {check.state for check in checks} == {"fault"}
