"""Downloads one large file of the hub so that a killed process loses nothing of it.

The hub's package begins each file anew in each process. Here the part has one name and a lock, and
the finished file goes where the package looks for it. Knows the hub's cache and HTTP only.
"""

from __future__ import annotations

import fcntl
import re
from typing import TYPE_CHECKING

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import sha256_of

if TYPE_CHECKING:
    from pathlib import Path

LEAST_BYTES, MOST_BYTES = 8 << 20, 50_000_000_000
"""Smaller files are not worth it, and the hub serves no larger ones over plain HTTP."""
SHA256 = re.compile("[0-9a-f]{64}")
PART = ".part"


def download_blob(url: str, blobs: Path) -> None:
    """Download a file into the directory of the cache's files, unless it is there."""
    from huggingface_hub import get_hf_file_metadata
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    about = get_hf_file_metadata(url)
    if about.etag is None or about.size is None or not LEAST_BYTES <= about.size < MOST_BYTES:
        return
    blob = blobs / about.etag
    blobs.mkdir(parents=True, exist_ok=True)
    with blob.with_name(blob.name + PART).open("ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)  # another process may download it now
        if blob.exists():
            return
        if (done := part.tell()) > about.size:
            part.truncate(0)
            done = 0
        http_get(
            url,
            part,
            resume_size=done,
            headers=build_hf_headers(),
            expected_size=about.size,
            displayed_filename=url.rpartition("/")[2],
        )
        part.flush()
        path = blob.with_name(blob.name + PART)
        if done and SHA256.fullmatch(about.etag) and sha256_of(path) != about.etag:
            path.unlink()
            raise PrepareError(
                f"{url}: the parts of two downloads do not fit; run the same command again."
            )
        path.replace(blob)
