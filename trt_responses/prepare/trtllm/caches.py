"""The caches of TensorRT-LLM between starts: one directory per version, GPU and set of arguments.
TensorRT-LLM loads a cache of another combination silently and runs slower; the directories prevent
that. Works on directories; starts no engine.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from trt_responses.frozen import dataclass

ROOM = "cache"
STALE = "stale-"
KEY_LETTERS = 8


@dataclass(frozen=True, slots=True)
class Caches:
    """The directory of one combination; `variables` direct the libraries to it."""

    directory: Path

    def variables(self) -> dict[str, str]:
        place = self.directory.absolute()
        return {
            "TLLM_AUTOTUNER_CACHE_PATH": str(place / "autotuner.json"),
            "TRITON_CACHE_DIR": str(place / "triton"),
            "FLASHINFER_WORKSPACE_BASE": str(place / "flashinfer"),
        }

    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())


def caches_of(engine: Path, package: str, sm: str, arguments: Mapping[str, object]) -> Caches:
    """The caches of this version on this GPU with these arguments."""
    text = json.dumps(arguments, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()[:KEY_LETTERS]
    return Caches(engine / ROOM / f"{package}-sm{sm}-{digest}")


def set_aside(caches: Caches) -> None:
    """Rename every other cache in the engine's directory, so that no library loads it."""
    for path in sorted(caches.directory.parent.glob("*")):
        if path != caches.directory and not path.name.startswith(STALE):
            _rename(path)


def renew(caches: Caches) -> None:
    """Rename this cache too, so that the next start creates a new one."""
    _rename(caches.directory)


def _rename(path: Path) -> None:
    if path.is_dir():
        aside = path.with_name(f"{STALE}{path.name}")
        if aside.exists():
            shutil.rmtree(aside)
        path.replace(aside)
