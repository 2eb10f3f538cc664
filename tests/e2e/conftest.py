"""Models for the embedded engine, each written once per run: a small random one, and the demo."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from scripts.gguf_model import convert
from tests.support.graphs import Graph, planned, written
from tests.support.imports import ROOT
from tests.support.tiny_gguf import write_tiny
from tests.support.tokens import vocabulary
from trt_responses.backends.dialects import dialect_facts
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.llamacpp import template_gguf
from trt_responses.prepare.llamacpp.build import prepare
from trt_responses.prepare.llamacpp.template_gguf import open_template_gguf
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.shelf import shelf
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def close_shared_browser() -> Iterator[None]:
    yield
    if browser := sys.modules.get("tests.support.browser"):
        browser.SHARED.close()


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all of a run's workers, inside what pytest clears away."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def random_gguf(shared_dir: Path) -> Path:
    """A gpt-oss of two layers with nothing to say; whichever worker is first writes it."""
    target = shared_dir / "random.gguf"
    with (shared_dir / "random.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            checkpoint = write_checkpoint(
                shared_dir / "random", Recipe(replace(TINY, layers=2), "f32")
            )
            part = target.with_suffix(".part")
            convert(open_checkpoint(checkpoint), part, vocabulary(), weight_type="q8_0")
            part.rename(target)
            shutil.rmtree(checkpoint)
    return target


@pytest.fixture(scope="session")
def engines_dir(shared_dir: Path) -> Path:
    """One prepared engine, "tiny", of a model with nothing to say."""
    folder = shared_dir / "lives"
    with (shared_dir / "lives.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            source = write_checkpoint(
                shared_dir / "lives-source", Recipe(replace(TINY, layers=1), "bf16")
            )
            tools = BuildTools(vocabulary())
            prepare(source, folder, "tiny", tools, weight_type="q8_0")
            shutil.rmtree(source)
    return folder


@pytest.fixture(scope="session")
def small_engines_dir(shared_dir: Path) -> Path:
    """The same shelf with a model of a few hundred tokens, which loads 3 s of CPU sooner than one
    with the vocabulary of gpt-oss: for tests of processes, to which its answers are all one."""
    folder = shared_dir / "small"
    with (shared_dir / "small.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            source = open_template_gguf(write_tiny(shared_dir / "small.gguf", "qwen3", seed=1))
            assert source is not None
            tools = BuildTools(vocabulary(), dialect_for=dialect_facts)
            template_gguf.prepare(source, folder, "tiny", tools)
    return folder


@pytest.fixture(scope="session")
def random_graph(shared_dir: Path) -> Graph:
    """The same model as a graph for onnxruntime, for two slots of 512 tokens."""
    return _random_graph(shared_dir, "graph", slots=2, length=512)


@pytest.fixture(scope="session")
def steered_graph(shared_dir: Path) -> Graph:
    """The same for four slots, long enough for a prompt that shows a schema."""
    return _random_graph(shared_dir, "steered-graph", slots=4, length=2560)


def _random_graph(shared_dir: Path, name: str, *, slots: int, length: int) -> Graph:
    checkpoint, folder = shared_dir / f"{name}-source", shared_dir / name
    with (shared_dir / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_there = folder.exists()
        if not is_there:
            write_checkpoint(checkpoint, Recipe(replace(TINY, layers=2), "f32"))
        graph = planned(checkpoint, folder, slots=slots, length=length)
        return graph if is_there else written(graph)


@pytest.fixture(scope="session")
def demo_engines(shared_dir: Path) -> Path:
    """The demo, prepared once per run as a user's first start does; in a process of its own, since
    it takes 270 MB for a while."""
    folder, part = shared_dir / "demo", shared_dir / "demo.part"
    with (shared_dir / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            kept = {n: v for n, v in os.environ.items() if not n.startswith(PREFIX)}
            program = (sys.executable, "-m", "trt_responses", "engine", "build")
            place = ("--engines-dir", str(part))
            subprocess.run((*program, *place), cwd=ROOT, env=kept, check=True, capture_output=True)
            part.rename(folder)
    return folder


@pytest.fixture(scope="session")
def demo_gguf(demo_engines: Path) -> Path:
    """The file of the prepared demo."""
    return shelf.find(demo_engines, shelf.DEMO) / MODEL
