"""The topologies in deploy/multi-node, as data: names, sizes and commands agree. None is run.

Budget: 1 s on one core.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types

from tests.support.double import contract as names
from trt_responses.prepare.trtllm.arguments import read_arguments
from trt_responses.prepare.trtllm.profiles import arguments_for, class_named, parallel_fault

ROOT = Path(__file__).parents[3] / "deploy" / "multi-node"
TOPOLOGIES = sorted(path.name for path in ROOT.iterdir() if path.is_dir())
ENGINES = sorted(
    path for path in ROOT.glob("*/*.yaml") if path.name != "router.yaml"
)  # every file of arguments for one engine
GPT_OSS_120B = {"experts": 128, "heads": 64, "kv_heads": 8}
FROM_PROFILES = {
    "h100x2": ("balanced", "hopper", 2),
    "b200x8": ("latency", "blackwell", 8),
    "mpirun-2x8": ("throughput", "blackwell", 16),
    "slurm-2x8": ("balanced", "hopper", 16),
    "ray-2x8": ("balanced", "hopper", 16),
}
EXTRA: dict[str, dict[str, object]] = {"ray-2x8": {"orchestrator_type": "ray"}}


def script(topology: str) -> str:
    return (ROOT / topology / "run.sh").read_text("utf-8").replace("\\\n", " ")


def world(arguments: dict[str, object]) -> int:
    tensor, pipeline = arguments["tensor_parallel_size"], arguments["pipeline_parallel_size"]
    assert isinstance(tensor, int)
    assert isinstance(pipeline, int)
    return tensor * pipeline


def test_there_are_six_and_the_page_names_each_and_says_that_none_was_run() -> None:
    page = (ROOT / "README.md").read_text("utf-8")
    assert len(TOPOLOGIES) == 6
    assert set(re.findall(r"^\| `([a-z0-9-]+)`", page, flags=re.MULTILINE)) == set(TOPOLOGIES)
    assert "None of them has been run" in page
    assert all("Not run by this project" in script(topology) for topology in TOPOLOGIES)


@pytest.mark.parametrize("version", names.VERSIONS)
@pytest.mark.parametrize("path", ENGINES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_argument_is_one_the_package_takes_and_the_model_fits(
    path: Path, version: names.Version
) -> None:
    arguments = read_arguments(path)
    assert arguments == yaml.safe_load(path.read_text("utf-8"))
    names.check_all(arguments, names.checked_arguments(version))
    assert arguments["num_postprocess_workers"] == 0
    assert arguments["pipeline_parallel_size"] == 1
    assert parallel_fault(arguments, **GPT_OSS_120B) is None


@pytest.mark.parametrize("topology", FROM_PROFILES)
def test_the_arguments_are_those_that_the_commands_would_plan(topology: str) -> None:
    profile, gpu_class, gpus = FROM_PROFILES[topology]
    expected = arguments_for(profile, class_named(gpu_class), gpus, 131_072)  # type: ignore[arg-type]
    found = read_arguments(ROOT / topology / "llm_args.yaml")
    assert found == {**expected, **EXTRA.get(topology, {})}
    text = script(topology)
    assert f"--profile {profile} --gpus {gpus}" in text
    assert ("--nodes 2" in text) == (gpus == 16)
    assert ("--set orchestrator_type='\"ray\"'" in text) == (topology == "ray-2x8")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_each_script_is_a_lawful_one_that_stops_at_the_first_fault(topology: str) -> None:
    path = ROOT / topology / "run.sh"
    subprocess.run(["sh", "-n", str(path)], check=True, timeout=100)
    assert path.stat().st_mode & 0o111
    assert "set -eu\n" in path.read_text("utf-8")
    assert not re.search(r"/(work|home|root)/", path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("topology", "launcher", "count"),
    [
        ("mpirun-2x8", "mpirun", r"-n (\d+)"),
        ("slurm-2x8", "srun", r"-n (\d+)"),
    ],
)
def test_a_launcher_starts_a_worker_per_gpu_and_hands_on_the_caches(
    topology: str, launcher: str, count: str
) -> None:
    text = script(topology)
    command = next(line for line in text.splitlines() if line.strip().startswith(launcher))
    found = re.search(count, command)
    assert found
    assert int(found[1]) == world(read_arguments(ROOT / topology / "llm_args.yaml"))
    assert "trtllm-llmapi-launch" in command
    for name in ("TLLM_AUTOTUNER_CACHE_PATH", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"):
        assert f"-x {name}" in command or "--export=ALL" in command
        assert f"{name}=" in text


@pytest.mark.parametrize(
    ("topology", "launcher"), [("mpirun-2x8", "mpirun"), ("slurm-2x8", "srun")]
)
def test_a_command_that_fails_is_a_success_to_the_launcher_and_ends_the_script(
    topology: str, launcher: str, tmp_path: Path
) -> None:
    """The launcher is a stand-in, which does what TensorRT-LLM's does: it stops its leader behind a
    command that ends with 0."""
    programs = {
        launcher: 'while [ "$1" != trtllm-llmapi-launch ]; do shift; done; shift; set -e; $*; '
        f"touch {tmp_path}/stopped",
        "python3": f"echo built >>{tmp_path}/ran; exit 3",
        "trt-responses": f"echo served >>{tmp_path}/ran",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    ended = subprocess.run(
        ["sh", str(ROOT / topology / "run.sh")],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "CHECKPOINT": "/models/gpt-oss-120b",
            "CACHES": str(tmp_path),
            "HOSTS": "one:8,two:8",
        },
        check=False,
        timeout=100,
    )
    assert ended.returncode == 3
    assert (tmp_path / "stopped").exists()
    assert (tmp_path / "ran").read_text() == "built\n"


def test_slurm_and_ray_have_as_many_gpus_as_the_arguments_ask_for() -> None:
    slurm, ray = script("slurm-2x8"), script("ray-2x8")
    assert "-N 2" in slurm
    assert "--ntasks-per-node=8" in slurm
    assert "--mpi=pmix" in slurm
    assert [int(n) for n in re.findall(r"--num-gpus=(\d+)", ray)] == [8, 8]
    assert world(read_arguments(ROOT / "ray-2x8" / "llm_args.yaml")) == 16


def test_the_routers_addresses_are_those_of_the_servers_and_their_gpus_do_not_overlap() -> None:
    text = script("disaggregated")
    router = yaml.safe_load((ROOT / "disaggregated" / "router.yaml").read_text("utf-8"))
    assert router == read_arguments(ROOT / "disaggregated" / "router.yaml")
    assert "trtllm-serve disaggregated -c" in text
    assert "--server_start_timeout 3600" in text
    dtypes = {
        read_arguments(ROOT / "disaggregated" / f"{part}.yaml")["kv_cache_config"]["dtype"]  # type: ignore[index]  # it is a mapping
        for part in ("context", "generation")
    }
    assert len(dtypes) == 1
    used: list[str] = []
    for part, kind in (("context", "context_servers"), ("generation", "generation_servers")):
        arguments = read_arguments(ROOT / "disaggregated" / f"{part}.yaml")
        line = next(x for x in text.splitlines() if f"{part}.yaml" in x)
        gpus, port = re.search(r"DEVICES=([\d,]+)", line), re.search(r"--port (\d+)", line)
        assert gpus
        assert port
        used += gpus[1].split(",")
        assert len(gpus[1].split(",")) == world(arguments)
        assert router[kind] == {"num_instances": 1, "urls": [f"localhost:{port[1]}"]}
        assert arguments["cache_transceiver_config"] == {
            "backend": "DEFAULT",
            "max_tokens_in_buffer": arguments["max_seq_len"],
        }
    assert len(used) == len(set(used)) == 8
