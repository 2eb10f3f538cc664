"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import carded
from tests.support.tiny_gguf import write_tiny
from tests.support.tiny_hf import write_tiny_hf
from trt_responses import __version__
from trt_responses.cli.main import main
from trt_responses.prepare.shelf import versions

if TYPE_CHECKING:
    from pathlib import Path

Output = pytest.CaptureFixture[str]


def ends(*arguments: str) -> int:
    """The exit status, also when the parser ends by itself."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def test_the_version_is_the_packages(capsys: Output) -> None:
    assert ends("--version") == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["engine", "--help"]])
def test_help_is_given(arguments: list[str], capsys: Output) -> None:
    assert ends(*arguments) == 0
    assert "usage: trt-responses" in capsys.readouterr().out


@pytest.mark.parametrize("buffering", [-1, 1])
@pytest.mark.parametrize("typed", ["completion zsh", "serve --print-settings", "keys --help"])
def test_an_output_that_cannot_be_written_is_told_in_one_sentence(
    typed: str, buffering: int, capsys: Output
) -> None:
    with (
        suppress(OSError),  # of its end
        open("/dev/full", "w", buffering) as full,
        redirect_stdout(full),
    ):
        assert ends(*typed.split()) == 1
        assert sys.stdout is None, "else the exit of Python would write again"
    said = capsys.readouterr().err
    assert re.fullmatch("trt-responses: .*No space left on device\n", said)


def test_what_an_output_cannot_encode_is_escaped() -> None:
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), "ascii")) as narrow:
        assert ends("prove", "--help") == 0
        narrow.seek(0)
        assert "grpc://host:port/model or triton://\\u2026" in narrow.read()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_chat_needs_no_standard_stream(closed: str) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        typed = f"exec {sys.executable} -m trt_responses chat --url {url} Hello {closed}"
        done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "" if "2>" in closed else f"{url} does not answer: Connection refused.\n"
    )


@pytest.mark.parametrize(
    "arguments", [[], ["sing"], ["engine"], ["serve", "--loud"], ["engine", "show"]]
)
def test_a_wrong_command_line_ends_with_the_usage(arguments: list[str], capsys: Output) -> None:
    assert ends(*arguments) == 2
    assert "usage: trt-responses" in capsys.readouterr().err


def test_an_empty_directory_has_no_engines_and_that_is_no_fault(
    tmp_path: Path, capsys: Output
) -> None:
    for there in (tmp_path, tmp_path / "absent"):
        assert ends("engine", "list", "--engines-dir", str(there)) == 0
        assert "make engine" in capsys.readouterr().out
        assert ends("engine", "list", "--json", "--engines-dir", str(there)) == 0
        assert json.loads(capsys.readouterr().out) == []


def test_a_list_of_engines_shows_each_cell_whole_in_80_columns(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    card, _ = carded(tmp_path, number=1)
    versions.promote_first(tmp_path / card.name, [card])
    assert ends("engine", "list", "--engines-dir", str(tmp_path)) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if "@1" in one)
    cells = [card.label, "promoted", card.kind, card.weight_type, card.status]
    assert line.split()[:5] == cells
    assert line.split()[-1] == card.built_at[:10]


NO_NAMES = ["../x", "", ".", "..", "a/b", "/tmp/x", "a\nb", 'a"b', "-x"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: Output, name: str
) -> None:
    engines, source = tmp_path / "engines", tmp_path / "source"
    engines.mkdir()
    card, _ = carded(engines)
    write_tiny_hf(source)
    (engines / card.name / "lock").touch()
    before = sorted(tmp_path.rglob("*"))
    told = ["--engines-dir", str(engines)]
    for command in (
        ["export", "triton", card.name, str(tmp_path / "repository"), f"--name={name}"],
        ["engine", "build", "--checkpoint", str(source), "--kind=llamacpp", f"--name={name}"],
        ["engine", "build", "--kind=onnx", f"--name={name}"],
        ["engine", "adapter", "add", "--", card.name, name, str(source)],
        ["engine", "adapter", "remove", "--", card.name, name],
        ["engine", "remove", "--", name],
        ["engine", "show", "--", name],
    ):
        if "--" in command:
            command[command.index("--") : command.index("--")] = told
        else:
            command += told
        assert ends(*command) == 2, command
        assert repr(name)[1:-1] in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        *(["engine", "show", "absent"], ["engine", "show", "absent", "--json"]),
        *(["engine", "remove", "absent"], ["engine", "remove", "../etc"]),
        *(["engine", "verify", "absent"], ["engine", "build", "--checkpoint", "/absent"]),
        ["serve", "--engine", "absent", "--port", "0"],
    ],
)
def test_what_is_not_there_is_told_in_one_sentence(
    arguments: list[str], tmp_path: Path, capsys: Output
) -> None:
    assert ends(*arguments, "--engines-dir", str(tmp_path)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("trt-responses: ")
    assert said.err.count("\n") == 1


def test_a_gpu_without_tensorrt_llm_is_told_what_to_type(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = tmp_path / "nvidia-smi"
    gpus.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 9.0, 81559, 81000, 580.65'\n")
    gpus.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    build = ("engine", "build", "--checkpoint", str(tmp_path), "--engines-dir", str(tmp_path))
    assert ends(*build) == 1
    said = capsys.readouterr().err
    assert "nvcr.io/nvidia/tensorrt-llm/release" in said
    assert "TRT_RESPONSES_TRTLLM_PYTHON" in said
    assert "KIND=llamacpp" in said
    assert ends(*build, "--kind", "llamacpp") == 2
    assert "H100" not in capsys.readouterr().err


def test_flags_come_before_the_environment(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_PORT", "nonsense")
    monkeypatch.setenv("TRT_RESPONSES_ENGINES_DIR", "/absent")
    assert ends("serve", "--engine", "absent", "--port", "0", "--engines-dir", str(tmp_path)) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert ends("serve", "--engine", "absent", "--engines-dir", str(tmp_path)) == 2
    assert "TRT_RESPONSES_PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "environment", "named"),
    [
        (["--port", "65536"], {}, "--port: expected at most 65535 (got '65536')"),
        (["--port", "http"], {}, "--port: expected a whole number (got 'http')"),
        ([], {"SLOTS": "none"}, "TRT_RESPONSES_SLOTS: expected a whole number (got 'none')"),
        ([], {"HOST": "0.0.0.0"}, "TRT_RESPONSES_HOST 0.0.0.0: without API keys"),
        (["--host", "0.0.0.0"], {}, "--host 0.0.0.0: without API keys"),
        (["--host", "0.0.0.0"], {}, "TRT_RESPONSES_API_KEYS"),
        (["--host", "0.0.0.0"], {"API_KEYS": "nocolon"}, "TRT_RESPONSES_API_KEYS"),
        (["--host", "no.such.host.invalid"], {"INSECURE": "1"}, "no.such.host.invalid"),
    ],
)
def test_a_server_that_cannot_be_started_as_asked_says_why(
    arguments: list[str],
    environment: dict[str, str],
    named: str,
    tmp_path: Path,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"TRT_RESPONSES_{name}", value)
    command = ("serve", "--engine", "absent", "--engines-dir", str(tmp_path), "--port", "0")
    assert ends(*command, *arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith("trt-responses: ")
    assert named in said.err
    assert said.err.count("\n") == 1


def test_an_address_of_another_machine_is_a_failure_at_work(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_INSECURE", "1")
    command = ("serve", "--engine", "absent", "--engines-dir", str(tmp_path), "--port", "0")
    assert ends(*command, "--host", "203.0.113.1") == 1
    assert "cannot listen on 203.0.113.1:0" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_before_an_engine_is_loaded(
    tmp_path: Path, capsys: Output
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = ("serve", "--engine", "absent", "--engines-dir", str(tmp_path), "--port", port)
        assert ends(*command) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["tensorrt", "onnx"])
@pytest.mark.parametrize("form", ["directory", "file"])
def test_a_kind_that_takes_gpt_oss_alone_says_so_of_another_model(
    form: str, kind: str, tmp_path: Path, capsys: Output
) -> None:
    if form == "file":
        path = write_tiny(tmp_path / "qwen3.gguf", "qwen3", "qwen3")
    else:
        path = write_tiny_hf(tmp_path / "qwen3")
    place = str(tmp_path / "engines")
    assert ends("engine", "build", "--checkpoint", str(path), "--kind", kind, *at(place)) == 2
    said = capsys.readouterr().err
    assert f"{path.name} is a model with a chat template (qwen3)" in said
    assert f"--kind {kind}: this kind serves gpt-oss only" in said
    assert "--kind llamacpp" in said
    assert not (tmp_path / "engines").exists()


def test_tensorrt_llm_takes_the_directory_of_another_model_and_no_gguf_file(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi, whatever this machine has
    asked = ("engine", "build", "--kind", "trtllm", *at(str(tmp_path / "engines")))
    path = write_tiny(tmp_path / "qwen3.gguf", "qwen3", "qwen3")
    assert ends(*asked, "--checkpoint", str(path)) == 2
    said = capsys.readouterr().err
    assert "--kind trtllm: this kind reads Hugging Face directories only" in said
    directory = write_tiny_hf(tmp_path / "qwen3", {"torch_dtype": "bfloat16"})
    assert ends(*asked, "--checkpoint", str(directory)) == 3, "planned, for there is no GPU"
    said = capsys.readouterr().err
    assert "It speaks 'qwen3'" in said
    assert "only gpt-oss has been run on TensorRT-LLM itself" in said
    assert "not started here: package: TensorRT-LLM 1.2.1 or newer is not installed" in said


def test_a_type_of_weights_is_refused_where_they_stay_as_they_are(
    tmp_path: Path, capsys: Output
) -> None:
    path = write_tiny_hf(tmp_path / "qwen3")
    place = at(str(tmp_path / "engines"))
    assert ends("engine", "build", "--checkpoint", str(path), "--type", "q8_0", *place) == 2
    assert "whose weights stay as they are stored; leave out --type" in capsys.readouterr().err
    assert not (tmp_path / "engines").exists()


def test_a_family_is_said_of_no_model_of_gpt_oss(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_oss"}')
    asked = ("engine", "build", "--checkpoint", str(tmp_path), "--family", "qwen3")
    assert ends(*asked, *at(str(tmp_path / "engines"))) == 2
    assert "--family qwen3: gpt-oss models have no family" in capsys.readouterr().err


def test_no_socket_gets_the_number_of_a_standard_stream_that_is_closed() -> None:
    code = "main(['serve', '--print-settings']); assert os.open(os.devnull, os.O_RDONLY) > 2"
    code = f"import os; from trt_responses.cli.main import main; {code}"
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(closed).returncode == 0


def at(place: str) -> tuple[str, str]:
    return "--engines-dir", place
