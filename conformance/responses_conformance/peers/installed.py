"""Other servers' packages, each in an environment of its own under the user's cache, made by pip.

What pip cannot have here is `Absent`, with pip's reason. Nothing of them is in this repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VLLM, SMG = "vllm==0.33.0", "smg==1.13.0"
CORE = ("pyzmq==27.3.0", "msgspec==0.22.0")
"""What the mock of vLLM's engine core needs."""
SMG_NEEDS = ("setproctitle==1.3.8",)
VLLM_ALONE = (VLLM, "compressed-tensors==0.17.0", "xgrammar==0.2.8", "apache-tvm-ffi==0.1.11")
VLLM_NEEDS = (
    *("torch==2.13.0", "transformers>=5.16.1,<5.21", "oss-harmony", "mistral_common[image]"),
    *("lm-format-enforcer==0.11.3", "outlines_core==0.2.14", "lark==1.2.2", "depyf==0.20.0"),
    *("model-hosting-container-standards<1", "prometheus-fastapi-instrumentator", "mcp<3"),
    *("anthropic", "aiohttp", "blake3", "cachetools", "cbor2", "cloudpickle", "einops", "ijson"),
    *("msgspec", "opencv-python-headless", "partial-json-parser", "pillow", "protobuf", "psutil"),
    *(
        "py-cpuinfo",
        "pybase64",
        "python-json-logger",
        "pyzmq",
        "regex",
        "requests",
        "sentencepiece",
    ),
    *("setproctitle", "tiktoken", "watchfiles"),
)
"""What the import of vLLM's server needs: its own list holds kernels for GPUs."""

VLLM_SERVES = ("openai", "fastapi[standard]", "uvloop", "llguidance", "orjson")
"""What `vllm serve` needs beside."""
GPT_OSS = "gpt-oss==0.0.9"
LLAMA_CPP = "xllamacpp==2026.10.11549"
GGUF = "CONFORMANCE_GGUF"
"""The variable that names a model with gpt-oss's vocabulary, which llama.cpp needs."""
GPT_OSS_NEEDS = (
    *(
        "openai-harmony==0.0.8",
        "tiktoken",
        "aiohttp",
        "chz",
        "docker",
        "fastapi",
        "html2text",
        "lxml",
    ),
    *("pydantic", "structlog", "tenacity", "uvicorn", "requests", "termcolor", "jupyter-client"),
)
RUST_FRONT_END = "vllm/vllm-rs"
"""The program in vLLM's wheel."""
PIP_S = 600


class Absent(ImportError):
    """A server cannot be had here; the message says why."""


def cache() -> Path:
    """Where environments and models of other servers are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "responses-conformance"


def core_python() -> Path:
    """A Python that can run the mock of vLLM's engine core."""
    return _environment("core", CORE)


def smg_python() -> Path:
    """A Python that has SMG; its other requirements are for other ways to an engine."""
    return _environment("smg", SMG_NEEDS, alone=(SMG,))


def vllm_python() -> Path:
    """A Python that has `vllm serve` without kernels for GPUs (2 GB)."""
    return _environment("vllm", (*VLLM_NEEDS, *VLLM_SERVES), alone=VLLM_ALONE)


def gpt_oss_python() -> tuple[Path, Path]:
    """A Python for OpenAI's reference server, and the folder of its sources: the package asks for
    Python 3.12, which its server does not need."""
    folder = cache() / GPT_OSS
    if not folder.exists():
        _pip(
            *(Path(sys.executable), "install", "--target", str(folder), "--no-deps"),
            *("--ignore-requires-python", GPT_OSS),
        )
    return _environment("gpt-oss", GPT_OSS_NEEDS), folder


def llama_cpp_python() -> tuple[Path, Path]:
    """A Python that has llama.cpp's server, and a model for it."""
    if not (model := os.environ.get(GGUF)):
        raise Absent(f"set {GGUF} to a GGUF file with gpt-oss's vocabulary, such as the demo's")
    return _environment("llama.cpp", (LLAMA_CPP,)), Path(model)


def vllm_rs() -> Path:
    """vLLM's Rust front end: one program in a wheel, of which nothing else is unpacked."""
    program = cache() / VLLM / Path(RUST_FRONT_END).name
    if not program.exists():
        with tempfile.TemporaryDirectory() as folder:
            _pip(Path(sys.executable), "download", "--no-deps", "--dest", folder, VLLM)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                if RUST_FRONT_END not in archive.namelist():
                    raise Absent(f"{wheel.name} has no {RUST_FRONT_END}")
                unpacked = Path(archive.extract(RUST_FRONT_END, folder))
            unpacked.chmod(0o755)
            program.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(unpacked, program)
    return program


@contextmanager
def importable(module: str, alone: tuple[str, ...], needs: tuple[str, ...] = ()) -> Iterator[None]:
    """Let this process import a module, behind its own packages; and for as long as this lasts the
    processes that the module starts. `alone`: packages without what they require."""
    if find_spec(module) is not None:
        yield
        return
    folder, before = cache() / "-".join(alone), os.environ.get("PYTHONPATH", "")
    ready = folder / "ready"
    if not ready.exists():
        python, into = Path(sys.executable), ("--upgrade", "--target", str(folder))
        if needs:
            _pip(python, "install", *into, *needs)
        _pip(python, "install", *into, "--no-deps", *alone)
        ready.touch()
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(folder))))
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before


def _environment(name: str, needs: tuple[str, ...], alone: tuple[str, ...] = ()) -> Path:
    """The Python of an environment with these packages; `alone`: without what they require."""
    digest = sha256("\n".join((*alone, *needs)).encode()).hexdigest()[:12]
    folder = cache() / f"{name}-{digest}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        venv.create(folder, clear=True, with_pip=True)
        if alone:
            _pip(python, "install", "--no-deps", *alone)
        _pip(python, "install", *needs)
        ready.touch()
    return python


def _pip(python: Path, *arguments: str) -> None:
    """Run pip with the index that is configured here."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_S, check=False)
    except subprocess.TimeoutExpired:
        raise Absent(f"pip had not ended after {PIP_S} s") from None
    if done.returncode:
        faults = [x for x in done.stderr.splitlines() if x.startswith("ERROR")]
        fault = (faults or [done.stderr.strip() or "it failed"])[-1]
        raise Absent(f"pip: {fault.removeprefix('ERROR: ')}")
