"""`trt-responses prove` as a whole, on each kind of engine that this machine can have, and each of
its steps with a fault that it must see.

Budget: 90 s on one core, most of it the embedded engine's deaths.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.proof import adapter_of, checkpoint_of, gpu_host, grpc_host
from tests.support.proof_faults import ENGINE_FAULTS, SERVER_FAULTS, StubServer, engine
from trt_responses.cli.main import main
from trt_responses.prove.bench import Bench, Loaded, Wish
from trt_responses.prove.report import NO_GPU, document
from trt_responses.prove.run import Outcome, attempt
from trt_responses.prove.steps import GPUS, STEPS
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trt_responses.prove.server import Server

pytestmark = pytest.mark.slow  # whole servers, and 4 s for the faults
BY_NAME = {step.name: step for step in STEPS}
WITHOUT_LORA = {"lora": "no LoRA given"}
ELSEWHERE = dict.fromkeys(("build", "kill", "freeze", "swap"), "another server runs the engine")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint_of(tmp_path_factory.mktemp("prove") / "tiny")


def proven(tmp_path: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    """The report of a proof that held."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        given = ("--quick", "--engines-dir", str(tmp_path / "engines"))
        status = main(["prove", *arguments, *given, "--report", str(tmp_path / "proof")])
    report: dict[str, Any] = json.loads((tmp_path / "proof" / "proof.json").read_text())
    assert [step for step in report["steps"] if step["state"] == "failed"] == []
    assert (status, report["status"]) == (0, "held")
    return report


def skipped(report: Mapping[str, Any]) -> dict[str, str]:
    return {s["name"]: s["why"] for s in report["steps"] if s["state"] == "skipped"}


@pytest.mark.early(280)  # MB: the first of its group, while a process has little
@pytest.mark.xdist_group("embedded")
def test_the_demo_is_proven_on_the_embedded_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = proven(tmp_path, "demo")
    assert skipped(report) == WITHOUT_LORA
    assert report["rows of README"][GPUS] == NO_GPU
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["doctor", "5.0"]
    assert lines[len(STEPS)].startswith("about ")
    assert f"[{len(STEPS)}/{len(STEPS)}] drain: a stop that cuts no stream …" in lines
    assert "<script" not in (tmp_path / "proof" / "proof.html").read_text()


@pytest.mark.early(26)
def test_a_checkpoint_is_proven_on_the_double_of_tensorrt_llm(
    tmp_path: Path, checkpoint: Path
) -> None:
    adapter = adapter_of(checkpoint, tmp_path / "adapter")
    host = gpu_host(tmp_path, checkpoint)
    report = proven(tmp_path, str(checkpoint), "--lora", str(adapter), **host)
    assert skipped(report) == {}
    assert report["target"]["kind"] == "trtllm"
    assert report["rows of README"][GPUS] == "held"  # as far as the double's driver tells
    swap = next(step for step in report["steps"] if step["name"] == "swap")
    assert swap["figures"]["there"]["paused"] is not None  # memory holds one version


def test_an_engine_over_grpc_is_proven_as_far_as_it_can_be(
    tmp_path: Path, checkpoint: Path
) -> None:
    with grpc_host(checkpoint) as port:
        target = f"grpc://127.0.0.1:{port}/tiny"
        report = proven(tmp_path, target, "--reference", str(checkpoint))
    assert skipped(report) == WITHOUT_LORA | ELSEWHERE


def outcome_of(name: str, fault: str | None, checkpoint: Path, folder: Path) -> Outcome:
    """What becomes of a step on the engine and the server that are bent, or not."""
    stubs: list[StubServer] = []

    def serve(_: Bench) -> Server:
        stubs.append(StubServer(fault))
        return stubs[-1]  # type: ignore[return-value]  # it stands in for one

    wish = Wish(None, "grpc://stub:1/stub", "grpc", checkpoint, lora=checkpoint, quick=True)
    bench = Bench(
        wish,
        Settings(engines_dir=folder / "engines"),
        folder,
        load=lambda _: Loaded(engine(checkpoint, fault)),
        serve=serve,
    )
    try:
        return attempt(replace(BY_NAME[name], skip=lambda _: None), bench)
    finally:
        bench.close()


@pytest.mark.parametrize("name", [*ENGINE_FAULTS, *SERVER_FAULTS])
def test_a_step_holds_and_sees_its_fault(name: str, checkpoint: Path, tmp_path: Path) -> None:
    assert outcome_of(name, None, checkpoint, tmp_path).state == "held"
    outcome = outcome_of(name, name, checkpoint, tmp_path)
    assert outcome.state == "failed"
    assert outcome.why
    bench = Bench(Wish(None, "stub", "grpc"), Settings(), tmp_path)
    steps: Any = document(bench, [outcome])["steps"]
    found = [(step["name"], step["state"], step["why"]) for step in steps]
    assert found == [(name, "failed", outcome.why)]


def test_a_fault_of_the_machine_fails_the_doctor(tmp_path: Path) -> None:
    settings = Settings(engines_dir=tmp_path / "file" / "engines")
    (tmp_path / "file").write_text("")
    outcome = attempt(BY_NAME["doctor"], Bench(Wish(None, "demo", "llamacpp"), settings, tmp_path))
    assert (outcome.state, "cannot be written" in outcome.why) == ("failed", True)


def test_a_damaged_checkpoint_fails_the_build_and_what_needs_it_is_skipped(tmp_path: Path) -> None:
    damaged, engines = tmp_path / "damaged", tmp_path / "engines"
    damaged.mkdir()
    (damaged / "config.json").write_text("{}")
    place = ("--engines-dir", str(engines), "--report", str(tmp_path / "proof"))
    assert main(["prove", str(damaged), "--kind", "llamacpp", "--only", "stops", *place]) == 1
    build, stops = json.loads((tmp_path / "proof" / "proof.json").read_text())["steps"]
    assert (build["state"], "config.json" in build["why"]) == ("failed", True)
    assert (stops["state"], stops["why"]) == (
        "skipped",
        "no engine is prepared: see the step build",
    )


def test_every_step_has_a_fault() -> None:
    assert {*ENGINE_FAULTS, *SERVER_FAULTS, "doctor", "build"} == {*BY_NAME}
