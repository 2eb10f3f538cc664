"""Checkpoints by their name on the Hugging Face hub: from its local cache, or downloaded.
`owner/model`, `owner/model@revision`, or `owner/model/file.gguf`. Downloads go into the hub's own
cache, which other programs share. A broken download resumes, and a later run downloads the missing
files only. Uses the hub's package and its cache; opens no checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trt_responses.prepare.checkpoint.open import HUB_MODEL, INDEX, PICKLES
from trt_responses.prepare.faults import PrepareError, WrongInput, cut
from trt_responses.prepare.files import GGUF, GGUF_PART, json_or_nothing
from trt_responses.prepare.phases import rounded
from trt_responses.prepare.progress import megabytes

WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
HUB_ID = re.compile(rf"({WORD}/{WORD})(?:/([^@/]+\.gguf))?(?:@({WORD}))?")
WANTED = ["*.json", "*.safetensors", "*.jinja"]
"""Patterns of the files to download. OpenAI's own layout and Metal's are in subfolders: skipped."""
CONFIG = "config.json"
SLOW_BYTES_PER_S = 12.5e6
"""The rate of a line of 100 Mbit/s, for the estimated time."""
INSTALL = "pip install 'trt-responses[hub]'"


class HubId(NamedTuple):
    """A model on the hub, one of its files if it holds several models, and the revision."""

    model: str
    file: str | None = None
    revision: str = "main"

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return "/".join(filter(None, (self.model, self.file))) + revision


def hub_id(text: str) -> HubId | None:
    """A model's id in the text that a user typed; None for an existing path or no valid id."""
    found = HUB_ID.fullmatch(text)
    if found is None or Path(text).exists():
        return None
    return HubId(found[1], found[2], found[3] or "main")


def checkpoint_at(text: str, say: Callable[[str], object]) -> Path:
    """The path that a user typed, or the path of the hub's model. Downloads a missing model."""
    wanted = hub_id(text)
    if wanted is None:
        return Path(text).expanduser()
    return cached(wanted) or _download(wanted, say)


def cache_directory() -> Path:
    """The directory of the hub's cache, as the hub's own programs choose it."""
    home = os.environ.get("HF_HOME") or Path(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def cached(wanted: HubId) -> Path | None:
    """The complete snapshot in the local cache, or the file in it; None without one."""
    model = cache_directory() / (HUB_MODEL + wanted.model.replace("/", "--"))
    try:
        revision = (model / "refs" / wanted.revision).read_text("utf-8").strip()
    except OSError:
        revision = wanted.revision
    snapshot = model / "snapshots" / revision
    if wanted.file is not None:
        return snapshot / wanted.file if _has_files(snapshot, _parts(wanted.file)) else None
    whole = _has_files(snapshot, (CONFIG,)) and _has_shards(snapshot)
    return snapshot if whole else None


def _has_files(snapshot: Path, names: tuple[str, ...]) -> bool:
    return all((snapshot / name).is_file() for name in names)


def _has_shards(snapshot: Path) -> bool:
    """Whether a snapshot has every shard of its index; without an index, its one file."""
    index = json_or_nothing(snapshot / INDEX).get("weight_map")
    if not isinstance(index, dict):
        return any(snapshot.glob("*.safetensors"))
    return _has_files(snapshot, tuple({str(name) for name in index.values()}))


def _parts(file: str) -> tuple[str, ...]:
    """The names of a file's parts, or of the file alone."""
    found = GGUF_PART.search(file)
    if found is None:
        return (file,)
    stem, count = file[: found.start()], int(found[2])
    return tuple(f"{stem}-{n:05}-of-{count:05}{GGUF}" for n in range(1, min(count, 999) + 1))


def _download(wanted: HubId, say: Callable[[str], object]) -> Path:
    try:
        import huggingface_hub as hub
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # exported on use
            disable_progress_bars,
            enable_progress_bars,
        )
    except ModuleNotFoundError:
        raise PrepareError(
            f"{wanted} is not in {cache_directory()}, and huggingface_hub, which downloads it, is "
            f"not installed; {INSTALL}."
        ) from None
    patterns = WANTED if wanted.file is None else list(_parts(wanted.file))
    chosen: dict[str, Any] = {
        "revision": wanted.revision,
        "cache_dir": cache_directory(),
        "allow_patterns": patterns,
        "ignore_patterns": ["*/*", *(f"*{ending}" for ending in PICKLES)],
    }
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    with _reported(wanted):
        api.model_info(wanted.model, revision=wanted.revision)  # its errors name the fault
        disable_progress_bars()
        try:
            listed = api.snapshot_download(wanted.model, dry_run=True, **chosen)
        finally:
            enable_progress_bars()
        if not listed:
            raise PrepareError(f"{wanted}: found none of {', '.join(patterns)}, expected some.")
        sizes = [(file.file_size or 0, file.will_download) for file in listed]
        missing_bytes = sum(size for size, missing in sizes if missing)
        _announce(wanted, sum(size for size, _ in sizes), missing_bytes, say)
        directory = Path(api.snapshot_download(wanted.model, **chosen))
    return directory if wanted.file is None else directory / wanted.file


def _announce(
    wanted: HubId, whole_bytes: int, missing_bytes: int, say: Callable[[str], object]
) -> None:
    """Print the size and the estimated time of a download. Raises a `PrepareError` if the disk
    has too little space."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(cache).free
    if free_bytes < missing_bytes:
        raise PrepareError(
            f"Not enough disk space in {cache}: {wanted} needs {megabytes(missing_bytes)}, "
            f"{megabytes(free_bytes)} free; make room, or set HF_HOME to another disk."
        )
    say(
        f"Fetching {wanted}: {megabytes(missing_bytes)} of {megabytes(whole_bytes)} into {cache}, "
        f"about {rounded(missing_bytes / SLOW_BYTES_PER_S)} on a line of 100 Mbit/s. If it "
        "stops, run the same command again: it downloads the missing files only."
    )


@contextmanager
def _reported(wanted: HubId) -> Iterator[None]:
    """Raise the hub's errors as a `PrepareError` of one sentence."""
    from httpx2 import HTTPError
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise PrepareError(
            f"{wanted} is gated: accept its terms on the model's page, then log in with `hf auth "
            "login` or set HF_TOKEN."
        ) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise WrongInput(
            f"{wanted}: no such model or revision on the hub; give owner/model or a directory. A "
            "private model needs HF_TOKEN."
        ) from None
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled,
            HTTPError, OSError) as error:  # fmt: skip
        raise PrepareError(
            f"{wanted}: the download failed ({cut(error)}); run the same command again, it "
            "downloads the missing files only."
        ) from None
