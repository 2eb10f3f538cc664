"""Cards of engines that were never prepared, with files that they name."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

from scripts.checkpoints import TINY
from tests.support.scripted.engine import ScriptedEngine
from tests.support.served import ANSWER, script
from trt_responses.app import create_app
from trt_responses.prepare.files import MODEL, engine_file, sha256_of
from trt_responses.prepare.machine import library_versions
from trt_responses.prepare.shelf.card import SCHEMA, Card, Limits, Source, SourceFile, write_card
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fastapi import FastAPI

    from trt_responses.engine import GuideKind

SHA = "0" * 64
VERSION = "0123456789ab"


def card_of(directory: Path) -> Card:
    """The card of an engine of llama.cpp whose model file exists."""
    model = directory / MODEL
    return Card(
        schema=SCHEMA,
        kind="llamacpp",
        status="verified",
        name=directory.parent.name,
        version=directory.name,
        source=Source("gpt-oss-20b", "hf", (SourceFile("config.json", 900, SHA),)),
        architecture=TINY,
        weight_type="bf16",
        libraries={"xllamacpp": "1.0", "gguf": "0.19.0"},
        limits=Limits(131_072, 7),
        files=(engine_file(model, sha256_of(model)),),
        built_at="2026-11-21T00:00:00+00:00",
        seconds={"convert": 1.5, "verify": 2},
        greedy_ids=(1, 2),
        hardware={},
    )


def carded(
    engines_dir: Path,
    name: str = "mine",
    *,
    version: str = VERSION,
    memory_bytes: int = 7,
    **changes: object,
) -> tuple[Card, Path]:
    """A card that was written, and its directory."""
    directory = engines_dir / name / version
    directory.mkdir(parents=True)
    (directory / MODEL).write_bytes(b"weights")
    card = replace(card_of(directory), limits=Limits(131_072, memory_bytes))
    card = replace(card, **changes)  # type: ignore[arg-type]  # each its own field
    write_card(directory, card)
    return card, directory


def app_of_a_card(
    engines_dir: Path,
    *written: str,
    guides: Mapping[GuideKind, frozenset[int]] | None = None,
    **changes: Any,
) -> tuple[FastAPI, ScriptedEngine]:
    """An app that serves a prepared engine with such a card; its engine is a scripted one, which
    writes these texts in turns."""
    carded(engines_dir, libraries=dict(library_versions()), **changes)
    turns = cycle(written or (ANSWER,))
    engine = ScriptedEngine(lambda prompt_ids, options: script(next(turns)), guides=guides)
    settings = Settings(engines_dir=engines_dir, store="memory://", engine_process="never")
    return create_app(settings, engine_of=lambda selection, settings: engine), engine
