"""Which engine is served: here, of an engine that another server serves."""

from __future__ import annotations

import pytest

from trt_responses.backends.engines import engine_of
from trt_responses.engines.grpc.engine import GrpcEngine
from trt_responses.engines.triton.engine import TritonEngine
from trt_responses.errors import StartupError
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given, served_engine

PLACE = "engines:50051/openai/gpt-oss"


@pytest.mark.parametrize(("kind", "engine"), [("grpc", GrpcEngine), ("triton", TritonEngine)])
def test_an_engine_of_another_server_needs_none_on_the_shelf(
    kind: str, engine: type[GrpcEngine] | type[TritonEngine]
) -> None:
    found = served_engine(Settings(**{kind: PLACE}), Given(), engine_of)
    assert isinstance(found.new_engine(), engine)
    assert found.model == "openai/gpt-oss"
    assert found.kind == kind


def test_two_other_servers_are_one_too_many() -> None:
    settings = Settings(triton=PLACE, grpc=PLACE)
    with pytest.raises(StartupError, match="leave out one of them"):
        served_engine(settings, Given(), engine_of)
