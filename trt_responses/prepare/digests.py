"""What an engine is made from: the digests of a checkpoint's files, and the version they give.

Knows files and digests; knows no tensor and no engine.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from trt_responses.prepare.card import Source, SourceFile, sha256_of, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.llamacpp.gguf import WeightType

CONVERTER = 3
"""Raised when the same checkpoint would give another file; part of every version."""
VERSION_LETTERS = 12


def digested(
    checkpoint: Checkpoint,
    memory: Path,
    begin: Callable[[str, int], object],
    advance: Callable[[int], object],
) -> Source:
    """The checkpoint's files with their digests; one of known size and time is not read again."""
    known = json_or_nothing(memory)
    stamps = {path: _stamp(path) for path in checkpoint.files}
    unknown = [path for path, stamp in stamps.items() if stamp not in known]
    if unknown:
        begin("validate", sum(path.stat().st_size for path in unknown))
    digests = {p: str(known.get(stamp) or sha256_of(p, advance)) for p, stamp in stamps.items()}
    if unknown:
        text = json.dumps({stamps[path]: digest for path, digest in digests.items()}, indent=2)
        write_whole(memory, f"{text}\n")
    files = tuple(SourceFile(p.name, p.stat().st_size, digest) for p, digest in digests.items())
    return Source(checkpoint.directory.resolve().name, checkpoint.layout, files)


def version_of(source: Source, weight_type: WeightType) -> str:
    """A short digest of everything that decides the files: content, not times or places."""
    facts = {
        "source": [(file.name, file.size_bytes, file.sha256) for file in source.files],
        "layout": source.layout,
        "weight_type": weight_type,
        "converter": CONVERTER,
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:VERSION_LETTERS]


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def json_or_nothing(path: Path) -> dict[str, object]:
    """An object that may be missing or cut short; then it is as if it had never been written."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
