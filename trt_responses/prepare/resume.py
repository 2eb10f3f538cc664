"""Downloads one large file of the hub so that a killed process loses nothing of it.

The hub's package begins each file anew in each process. Here the part has one name and a lock, and
the finished file goes where the package looks for it. Knows the hub's cache and HTTP only.
"""

from __future__ import annotations

import fcntl
import io
import re
from typing import TYPE_CHECKING

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from trt_responses.prepare.progress import Progress

LEAST_BYTES, MOST_BYTES = 8 << 20, 50_000_000_000
"""Smaller files are not worth it, and the hub serves no larger ones over plain HTTP."""
SHA256 = re.compile("[0-9a-f]{64}")
PART = ".part"


class _Counted(io.BufferedWriter):
    """Appends to a file, and reports the bytes."""

    def __init__(self, path: Path, advance: Callable[[int], object]) -> None:
        super().__init__(io.FileIO(path, "a"))
        self._advance = advance

    def write(self, data: ReadableBuffer, /) -> int:
        written = super().write(data)
        self._advance(written)
        return written


def download_blob(url: str, blobs: Path, progress: Progress) -> None:
    """Download a file into the directory of the cache's files, unless it has the file."""
    from huggingface_hub import get_hf_file_metadata
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public

    about = get_hf_file_metadata(url)
    if about.etag is None or about.size is None or not LEAST_BYTES <= about.size < MOST_BYTES:
        return
    blobs.mkdir(parents=True, exist_ok=True)
    blob = blobs / about.etag
    path = blobs / f"{about.etag}{PART}"
    with _Counted(path, progress.advance) as part:
        fcntl.flock(part, fcntl.LOCK_EX)  # another process may download it now
        if blob.exists():
            return
        if (done := path.stat().st_size) > about.size:
            part.truncate(0)
            done = 0
        progress.phase(f"download {url.rpartition('/')[2]}", about.size)
        progress.advance(done)
        http_get(url, part, resume_size=done, headers=build_hf_headers(), expected_size=about.size)
        part.flush()
        if done and SHA256.fullmatch(about.etag) and sha256_of(path) != about.etag:
            path.unlink()
            raise PrepareError(
                f"{url}: the parts of two downloads do not fit; run the same command again."
            )
        path.replace(blob)
