"""The audit file: who changed which key, one JSON object a line, only ever appended to.

Knows names and digests' first digits; knows no key.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from trt_responses.features.limits.keys import utc_now
from trt_responses.files import make_private

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.settings import Settings


class Audit:
    """The audit file. Several processes may write it: each line is one append, and is on disk when
    `tell` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def tell(self, act: str, **facts: object) -> None:
        """Append one line. Raises an `OSError` when it cannot be kept."""
        noted = {"at": utc_now().isoformat(), "act": act, **facts}
        text = json.dumps(noted, ensure_ascii=False, separators=(",", ":"))
        line = text.encode(errors="replace") + b"\n"  # a path may be no UTF-8
        make_private(self.path.parent)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":  # a full disk cut the last line
                line = b"\n" + line
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        finally:
            os.close(file)


def audit_of(settings: Settings) -> Audit:
    """The audit file of a server."""
    return Audit(settings.data_dir / "audit.jsonl")
