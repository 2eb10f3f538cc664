"""The doctor: what it finds, as values, on a laptop, on a GPU host, and beside a running server.

Budget: 4 s on one core.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import carded
from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.serving import serving
from trt_responses import doctor
from trt_responses.app import create_app
from trt_responses.doctor import Check
from trt_responses.doctor.engines import engine_checks, vocabulary_check
from trt_responses.doctor.machine import (
    cpu_check,
    disk_check,
    memory_check,
    model_checks,
    package_checks,
    python_check,
    writable_checks,
)
from trt_responses.doctor.server import self_test, server_checks
from trt_responses.doctor.store import store_check
from trt_responses.doctor.tensorrt import gpu_check, numpy_checks, tensorrt_llm_check
from trt_responses.errors import StartupError
from trt_responses.prepare.hardware import Gpu, Hardware
from trt_responses.prepare.machine import ServingMachine
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trt_responses.tokens.vocabulary import Vocabulary

GIB = 1 << 30
H100 = Gpu("NVIDIA H100 80GB HBM3", 90, 80 * GIB, 79 * GIB, "575.57.08")
GPU_HOST = Hardware((H100,), None, "1.2.1", True, 500 * GIB)
LAPTOP = Hardware((), "nvidia-smi was not found", None, False, 50 * GIB)
HERE = ServingMachine("little", 16 * GIB, {"xllamacpp": "1.0"})


def states(found: Sequence[Check]) -> list[str]:
    return [check.state for check in found]


# --- the exit code and the forms -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "status"),
    [((), 0), (("ok", "note"), 0), (("ok", "fault", "note"), 1)],
)
def test_only_a_fault_makes_the_exit_code(found: tuple[str, ...], status: int) -> None:
    checks = [Check("name", state, "found") for state in found]  # type: ignore[arg-type]
    assert doctor.exit_status(checks) == status
    body = json.loads(doctor.as_json(checks))
    assert body["status"] == status
    assert [check["state"] for check in body["checks"]] == list(found)


def test_a_line_holds_a_check_and_its_remedy_follows() -> None:
    checks = [Check("a", "ok", "fine"), Check("long", "fault", "broken", "mend it")]
    assert doctor.lines(checks) == [
        "ok     a     fine",
        "fault  long  broken",
        "             -> mend it",
    ]


@pytest.mark.slow  # 80 MB: the libraries of all kinds of engines
def test_a_whole_look_at_this_machine_says_something_of_each_kind(
    tmp_path: Path, unused_port: int
) -> None:
    found = doctor.checks(Settings(engines_dir=tmp_path / "engines", port=unused_port))
    names = {check.name for check in found}
    assert names >= {
        *(
            "python",
            "packages",
            "processor",
            "memory",
            "disk",
            "engines dir",
            "store",
            "vocabulary",
        ),
        *("gpu", "tensorrt-llm", "embedded, gpt-oss-20b", "engines", "port"),
    }
    assert [check for check in found if check.state == "fault"] == []
    assert not (tmp_path / "engines").exists()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# --- the machine ---------------------------------------------------------------------------------


def test_an_old_python_is_a_fault() -> None:
    profile = {"PGO_PROF_USE_FLAG": "-fprofile-use"}
    assert python_check((3, 11, 0), {}).state == "ok"
    fast = profile | {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}
    assert python_check((3, 11, 0), fast).state == "ok"
    slow = python_check((3, 11, 0), profile | {"CONFIG_ARGS": "'--enable-shared'"})
    assert (slow.state, "--enable-optimizations" in slow.found) == ("note", True)
    assert python_check((3, 10, 9)).state == "fault"


def test_packages_are_those_of_the_project_and_pins_are_exact() -> None:
    (found,) = package_checks()
    assert found.state == "ok"
    assert "openai-harmony==" in found.found
    wrong = package_checks(["numpy==0.1", "no-such-package>=1", "pydantic>=2"])
    assert [(check.name, check.state) for check in wrong] == [
        ("package numpy", "fault"),
        ("package no-such-package", "fault"),
    ]
    assert "not 0.1" in wrong[0].found


def test_a_package_of_an_extra_may_be_missing() -> None:
    (found,) = package_checks(["no-such-package>=1; extra == 'trtllm'", "numpy>=2"])
    assert (found.state, found.found) == ("ok", "1 as required; pinned: ")


@pytest.mark.parametrize(
    ("info", "state", "said"),
    [
        ("flags\t\t: fpu avx2 avx512f\nflags\t\t: fpu avx2\n", "ok", "2 cores, avx2, avx512f"),
        ("Features\t: fp asimd sve\n", "ok", "1 cores, asimd, sve"),
        ("flags\t\t: fpu sse2\n", "note", "without AVX2"),
        ("", "ok", "features unknown"),
    ],
)
def test_a_processor_is_judged_by_what_the_kernels_use(info: str, state: str, said: str) -> None:
    found = cpu_check(info)
    assert found.state == state
    assert said in found.found


def test_memory_and_disk_are_faults_only_when_nothing_would_run(tmp_path: Path) -> None:
    assert states([memory_check(GIB), memory_check(GIB - 1)]) == ["ok", "fault"]
    assert states([disk_check(tmp_path, GIB), disk_check(tmp_path, GIB - 1)]) == ["ok", "fault"]


def test_a_model_that_does_not_fit_is_a_note_that_says_by_how_much() -> None:
    laptop = list(model_checks(16 * GIB, 20 * GIB))
    assert states(laptop) == ["ok", "ok", "note"]
    assert "needs 73.01 GB of memory, has 17.18 GB" in laptop[2].found
    full = list(model_checks(16 * GIB, 5 * GIB))
    assert "of disk, has 5.37 GB free" in full[1].found


def test_a_place_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    settings = Settings(engines_dir=tmp_path / "not" / "yet")
    assert "ok" in states(list(writable_checks(settings)))
    asked: list[Path] = []

    def deny(path: Path) -> bool:
        asked.append(path)
        return False

    found = next(c for c in writable_checks(settings, deny) if c.name == "engines dir")
    assert tmp_path in asked  # the nearest that is there
    assert (found.state, found.remedy) == (
        "fault",
        "set TRT_RESPONSES_ENGINES_DIR to a path that you can write",
    )


@pytest.mark.parametrize(
    ("url", "state", "said"),
    [
        (None, "ok", "SQLite: "),
        ("memory://", "ok", "lost when the server stops"),
        ("sqlite:///some/where.db", "ok", f"SQLite: {os.getcwd()}/some/where.db"),
        ("ftp:host", "fault", "got 'ftp:host'"),
        ("ftp://host", "fault", "no package brings store 'ftp'"),
    ],
)
def test_a_store_is_named_and_its_place_looked_at(url: str | None, state: str, said: str) -> None:
    found = store_check(Settings(store=url), lambda path: True)
    assert found.state == state
    assert said in found.found
    if state == "ok" and "SQLite" in said:
        assert store_check(Settings(store=url), lambda path: False).state == "fault"


def test_a_shared_store_that_does_not_listen_is_a_fault(unused_port: int) -> None:
    settings = Settings(store=f"redis://127.0.0.1:{unused_port}/0")
    assert store_check(settings).state == "fault"
    with socket.create_server(("127.0.0.1", unused_port)):
        assert store_check(settings).state == "ok"


def test_of_several_database_servers_one_must_listen(unused_port: int) -> None:
    url = f"postgresql://ann:secret@127.0.0.1:1,127.0.0.1:{unused_port}/x?target_session_attrs=any"
    found = store_check(Settings(store=url))
    assert (found.state, "secret" in found.found) == ("fault", False)
    with socket.create_server(("127.0.0.1", unused_port)):
        assert store_check(Settings(store=url)).found.endswith(f"127.0.0.1:{unused_port} listens")
    assert store_check(Settings(store="postgresql://a:b/x")).state == "fault"


# --- GPU and TensorRT-LLM ------------------------------------------------------------------------


def test_a_laptop_without_a_gpu_is_not_broken() -> None:
    found = [gpu_check(LAPTOP), tensorrt_llm_check(LAPTOP)]
    assert states(found) == ["note", "note"]
    assert "nvidia-smi was not found" in found[0].found
    assert "TensorRT-LLM 1.2.1 or newer is not installed" in found[1].found


def test_a_gpu_host_can_serve_or_is_broken() -> None:
    assert states([gpu_check(GPU_HOST), tensorrt_llm_check(GPU_HOST)]) == ["ok", "ok"]
    old = replace(GPU_HOST, gpus=(replace(H100, driver="535.1"),))
    assert "driver: found 535.1" in tensorrt_llm_check(old).found
    assert tensorrt_llm_check(old).state == "fault"
    harmful = tensorrt_llm_check(replace(GPU_HOST, package="1.3.0rc24"))
    assert (harmful.state, "loses accuracy" in harmful.found) == ("note", True)
    ampere = replace(GPU_HOST, gpus=(replace(H100, sm=80),))
    assert "compute capability 8.0" in tensorrt_llm_check(ampere).found


@pytest.mark.parametrize(
    ("asked", "installed", "count"),
    [
        (["torch<=2.9", "numpy<2"], "1.26.4", 0),
        (["torch<=2.9", "numpy<2"], "2.4.6", 1),
        (["numpy >=1.26,<3 ; python_version > '3'"], "2.4.6", 0),
        (["numpydoc<1"], "2.4.6", 0),
    ],
)
def test_numpy_must_stay_what_the_package_beside_us_asks_for(
    asked: list[str], installed: str, count: int
) -> None:
    found = list(numpy_checks(asked, installed))
    assert [check.state for check in found] == ["fault"] * count


# --- vocabulary and engines ----------------------------------------------------------------------


def test_a_vocabulary_that_cannot_be_loaded_is_a_fault_with_its_remedy() -> None:
    def broken() -> None:
        raise StartupError("unset TIKTOKEN_ENCODINGS_BASE")

    assert vocabulary_check(lambda: None).state == "ok"
    found = vocabulary_check(broken)
    assert (found.state, found.remedy) == ("fault", "unset TIKTOKEN_ENCODINGS_BASE")


def prepared(engines_dir: Path, name: str, status: str = "verified") -> Path:
    return carded(engines_dir, name, status=status, libraries={"xllamacpp": "1.0"})[1]


def test_every_engines_card_is_compared_with_this_machine(tmp_path: Path) -> None:
    prepared(tmp_path, "good")
    (prepared(tmp_path, "cut") / "model.gguf").write_bytes(b"w")
    prepared(tmp_path, "planned", "planned")
    (tmp_path / "stopped" / "ba9876543210").mkdir(parents=True)
    found = {check.name.split()[1].split("@")[0]: check for check in engine_checks(tmp_path, HERE)}
    assert {name: check.state for name, check in found.items()} == {
        "good": "ok",
        "cut": "fault",
        "planned": "note",
        "stopped": "note",
    }
    assert "found 1 bytes, expected 7" in found["cut"].found
    other = replace(HERE, libraries={"xllamacpp": "2.0"})
    assert "installed is 2.0" in next(
        c.found for c in engine_checks(tmp_path, other) if "good" in c.name
    )


def test_what_an_engine_did_nothing_with_when_it_was_prepared_is_told(tmp_path: Path) -> None:
    libraries = {"xllamacpp": "1.0"}
    carded(tmp_path, "deaf", status="verified", libraries=libraries, ignores=("min_p", "seed"))
    (found,) = engine_checks(tmp_path, HERE)
    assert found.state == "ok"
    assert found.found.endswith("; ignores min_p, seed")


def test_no_engine_is_a_note_that_says_how_to_get_one(tmp_path: Path) -> None:
    (found,) = engine_checks(tmp_path, HERE)
    assert (found.state, "make serve" in found.remedy) == ("note", True)


# --- the server ----------------------------------------------------------------------------------


def test_a_free_port_is_ok_and_a_foreign_address_is_not(unused_port: int) -> None:
    assert states(list(server_checks(Settings(port=unused_port)))) == ["ok"]
    assert states(list(server_checks(Settings(port=0)))) == ["ok"]
    elsewhere = Settings(host="192.0.2.1", port=unused_port, insecure=True)
    (found,) = server_checks(elsewhere)
    assert found.state == "fault"


def asked(script: Script, vocabulary: Vocabulary, **given: str) -> list[Check]:
    """What the doctor says of a server that answers so."""

    async def run() -> list[Check]:
        app = create_app(Settings(model="m", **given), engine=ScriptedEngine([script]))
        async with serving(app) as address:
            settings = Settings(host=address.host, port=address.port, **given)
            return await asyncio.to_thread(lambda: list(server_checks(settings)))

    return asyncio.run(run())


def reply(vocabulary: Vocabulary, text: str) -> Script:
    return Script((tuple(vocabulary.encoding.encode(text, allowed_special="all")),))


def test_a_running_server_is_asked_one_question_with_its_key(vocabulary: Vocabulary) -> None:
    script = reply(vocabulary, "<|channel|>final<|message|>Hello.<|return|>")
    found = asked(script, vocabulary, api_keys="me:secret")
    assert states(found) == ["note", "ok"]
    assert "m on 127.0.0.1" in found[1].found
    assert "completed" in found[1].found


def test_a_server_whose_engine_fails_does_not_pass(vocabulary: Vocabulary) -> None:
    found = asked(Script(((1,),), finish="length"), vocabulary)
    assert states(found) == ["note", "fault"]


def test_somebody_elses_server_does_not_pass() -> None:
    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        writer.close()

    async def run() -> Check:
        server = await asyncio.start_server(closes, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await asyncio.to_thread(self_test, "127.0.0.1", port, "none")
        finally:
            server.close()
            await server.wait_closed()

    assert asyncio.run(run()).state == "fault"
