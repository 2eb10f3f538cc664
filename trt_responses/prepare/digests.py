"""What an engine is made from: the digests of a checkpoint's files, and the version they give.

Knows files and digests; knows no tensor and no engine.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from trt_responses.files import write_whole
from trt_responses.prepare.files import json_or_nothing, sha256_of
from trt_responses.prepare.shelf.card import Source, SourceFile

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.checkpoint.open import WeightSource
    from trt_responses.prepare.phases import Phases

DIGESTS = "digests.json"
VERSION_LETTERS = 12


def digested(checkpoint: WeightSource, memory: Path, phases: Phases) -> Source:
    """The checkpoint's files with their digests; a file whose size and time are known is not read
    again."""
    known = json_or_nothing(memory)
    stamps = {path: _stamp(path) for path in checkpoint.files}
    unknown = [path for path, stamp in stamps.items() if stamp not in known]
    if unknown:
        phases.begin("validate", sum(path.stat().st_size for path in unknown))
    advance = phases.advance
    digests = {p: str(known.get(stamp) or sha256_of(p, advance)) for p, stamp in stamps.items()}
    if unknown:
        text = json.dumps({stamps[path]: digest for path, digest in digests.items()}, indent=2)
        with suppress(OSError):  # what cannot be kept is read again the next time
            write_whole(memory, f"{text}\n")
    files = tuple(SourceFile(p.name, p.stat().st_size, digest) for p, digest in digests.items())
    return Source(checkpoint.name, checkpoint.layout, files)


def version_of(identity: str) -> str:
    """A short digest of a text that holds all that decides an engine's files."""
    return hashlib.sha256(identity.encode()).hexdigest()[:VERSION_LETTERS]


def source_facts(source: Source) -> list[tuple[str, int, str]]:
    """The facts of a checkpoint that decide a version."""
    return [(file.name, file.size_bytes, file.sha256) for file in source.files]


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
