"""`--frontends auto`: the number of front ends for a machine, an engine and a store."""

import os
from pathlib import Path

import pytest

from trt_responses.fleet.auto import Auto
from trt_responses.fleet.choice import FRONT_END_BYTES, MOST, Host, choice, this_host
from trt_responses.fleet.choice import with_front_ends as chosen
from trt_responses.fleet.settings import FleetSettings
from trt_responses.settings import Settings

PLENTY = 64 * 1024**3


@pytest.mark.parametrize(
    ("cores", "free_bytes", "engine", "store", "count"),
    [
        (1, PLENTY, "trtllm", "sqlite", 1),
        (2, PLENTY, "trtllm", "sqlite", 1),
        (4, PLENTY, "trtllm", "sqlite", 3),
        (4, PLENTY, "tensorrt", "redis", 3),
        (4, PLENTY, "grpc", "redis", 4),
        (4, PLENTY, "triton", "sqlite", 4),
        (64, PLENTY, "trtllm", "sqlite", MOST),
        (16, 2 * 2 * FRONT_END_BYTES, "trtllm", "sqlite", 2),
        (16, FRONT_END_BYTES, "trtllm", "sqlite", 1),
        (16, PLENTY, "trtllm", "memory", 1),
        (16, PLENTY, "llamacpp", "sqlite", 1),
        (16, PLENTY, "onnx", "redis", 1),
    ],
)
def test_each_front_end_has_a_core_and_its_memory(
    cores: int, free_bytes: int, engine: str, store: str, count: int
) -> None:
    assert choice(Host(cores, free_bytes, True), engine, store).frontends == count


def test_a_port_that_cannot_be_shared_gets_one_front_end() -> None:
    assert choice(Host(16, PLENTY, False), "trtllm", "sqlite").frontends == 1


def test_the_reason_names_what_bounds_the_number() -> None:
    reasons = [
        choice(Host(cores, free, True), "trtllm", "sqlite").reason
        for cores, free in ((4, PLENTY), (16, 2 * FRONT_END_BYTES), (64, PLENTY))
    ]
    for words, reason in zip(("engine", "GB", "enough"), reasons, strict=True):
        assert words in reason


@pytest.mark.parametrize(
    ("engine", "many"),
    [
        ("vllm://127.0.0.1:1/gpt", True),
        ("several://a=sglang+https://127.0.0.1:1,a=grpc://127.0.0.1:1/x", True),
        ("several://a=vllm://127.0.0.1:1,b=script://auto", False),
    ],
)
def test_engines_of_other_servers_leave_all_cores_to_front_ends(
    engine: str, many: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen(Settings(engine=engine, frontends="auto"), PLENTY)
    assert ("computes on the same cores" not in capsys.readouterr().err) is many


def test_a_container_has_the_whole_cores_of_its_quota(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    usable = len(os.sched_getaffinity(0))
    for quota, cores in (("50000 100000", 1), ("100000 100000", 1), ("max 100000", usable)):
        (tmp_path / "sys/fs/cgroup/cpu.max").write_text(f"{quota}\n")
        assert this_host(PLENTY, tmp_path).cores == cores


def test_a_server_counts_its_front_ends_when_it_starts(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(engine="grpc://127.0.0.1:1/model", frontends="auto")
    assert isinstance(FleetSettings.of(settings).frontends, Auto)
    served = chosen(settings, PLENTY)
    counted = FleetSettings.of(served).frontends
    assert 1 <= counted <= MOST
    assert f"front ends: {counted} (" in capsys.readouterr().err
    assert FleetSettings.of(Settings(**served.model_dump(mode="json"))).frontends == counted
