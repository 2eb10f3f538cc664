"""Which engine is served: here, of an engine that another server serves."""

from __future__ import annotations

import asyncio

import pytest

from trt_responses.backends.engines import engine_of
from trt_responses.engines.grpc.engine import GrpcEngine
from trt_responses.engines.triton.engine import TritonEngine
from trt_responses.errors import ApiError
from trt_responses.features.rollout.bodies import LoadRequest
from trt_responses.features.rollout.exchange import Exchange
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given, served_engine
from trt_responses.setup.installed import install_all
from trt_responses.setup.server import Server

PLACE = "engines:50051/openai/gpt-oss"


@pytest.mark.parametrize(("kind", "engine"), [("grpc", GrpcEngine), ("triton", TritonEngine)])
def test_an_engine_of_another_server_needs_none_on_the_shelf(
    kind: str, engine: type[GrpcEngine] | type[TritonEngine]
) -> None:
    found = served_engine(Settings(engine=f"{kind}://{PLACE}"), Given(), engine_of)
    assert isinstance(found.new_engine(), engine)
    assert found.model == "openai/gpt-oss"
    assert found.kind == kind


@pytest.mark.parametrize(("kind", "why"), [("grpc", "start its server"), ("triton", "a Triton's")])
def test_versions_of_another_servers_engine_are_exchanged_there(kind: str, why: str) -> None:
    settings = Settings(engine=f"{kind}://{PLACE}", store="memory")
    server = Server(settings, served_engine(settings, Given(), engine_of), tools=[])
    install_all(server)
    server.build()
    load = server.of(Exchange).load("openai/gpt-oss", LoadRequest())
    with pytest.raises(ApiError, match=why):
        asyncio.run(load)
