"""The audit file: who changed which key, one JSON object a line, only ever appended to.

Knows names and digests' first digits; knows no key.
"""

from __future__ import annotations

import errno
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
        # A path may hold bytes that are no UTF-8, which orjson refuses.
        line = json.dumps({"at": utc_now().isoformat(), "act": act, **facts}).encode() + b"\n"
        make_private(self.path.parent)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)


def audit_of(settings: Settings) -> Audit:
    """The audit file of a server."""
    return Audit(settings.data_dir / "audit.jsonl")
