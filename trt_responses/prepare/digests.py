"""The digests of a checkpoint's files, and the version of the engine that follows from them.
Works on files: opens no tensor.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from trt_responses.files import write_whole
from trt_responses.prepare.checkpoint.open import WeightSource
from trt_responses.prepare.files import json_or_nothing, sha256_of
from trt_responses.prepare.phases import Phases
from trt_responses.prepare.shelf.card import Source, SourceFile

DIGESTS = "digests.json"
VERSION_LETTERS = 12


def digested(checkpoint: WeightSource, memory: Path, phases: Phases) -> Source:
    """The checkpoint's files with their digests. Skips files whose size and time are in
    `memory`."""
    known = json_or_nothing(memory)
    stamps = {path: _stamp(path) for path in checkpoint.files}
    unknown = [path for path, stamp in stamps.items() if stamp not in known]
    if unknown:
        phases.begin("validate", sum(path.stat().st_size for path in unknown))
    advance = phases.advance
    digests = {p: str(known.get(stamp) or sha256_of(p, advance)) for p, stamp in stamps.items()}
    if unknown:
        found = known | {stamps[path]: digest for path, digest in digests.items()}
        text = json.dumps(found, indent=2)
        with suppress(OSError):  # without it the next run reads the files again
            write_whole(memory, f"{text}\n")
    files = tuple(SourceFile(p.name, p.stat().st_size, digest) for p, digest in digests.items())
    return Source(checkpoint.name, checkpoint.layout, files)


def version_of(identity: str) -> str:
    """The version of an engine: a short digest of everything that its files depend on."""
    return hashlib.sha256(identity.encode()).hexdigest()[:VERSION_LETTERS]


def source_facts(source: Source) -> list[tuple[str, int, str]]:
    """The facts about a checkpoint's files that the version depends on."""
    return [(file.name, file.size_bytes, file.sha256) for file in source.files]


def known_digests(home: Path, path: Path) -> set[str]:
    """The digests under which an engine's home remembers a file: as it is now, or of any time if it
    does not exist any more."""
    known = json_or_nothing(home / DIGESTS)
    if path.exists():
        return {str(known[stamp])} if (stamp := _stamp(path)) in known else set()
    begin = f"{path.resolve()} "
    return {str(digest) for stamp, digest in known.items() if stamp.startswith(begin)}


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
