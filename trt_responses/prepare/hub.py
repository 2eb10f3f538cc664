"""Checkpoints by the name they have on the Hugging Face hub: found in its local cache, or fetched.

`owner/model`, `owner/model@revision`, or `owner/model/file.gguf`. Downloads go into the hub's own
cache, where other programs find them; a line that breaks is taken up again, and a later run fetches
only the files that are missing. Knows the hub's package and its cache; opens no checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.prepare.checkpoint.open import HUB_MODEL, INDEX, PICKLES
from trt_responses.prepare.faults import PrepareError, WrongInput, cut
from trt_responses.prepare.files import GGUF, GGUF_PART, json_or_nothing
from trt_responses.prepare.phases import rounded
from trt_responses.prepare.progress import megabytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
HUB_ID = re.compile(rf"({WORD}/{WORD})(?:/([^@/]+\.gguf))?(?:@({WORD}))?")
WANTED = ["*.json", "*.safetensors", "*.jinja"]
"""Patterns of the files of a model that are wanted; OpenAI's own layout and Metal's stand in
folders below it."""
CONFIG = "config.json"
SLOW_BYTES_PER_S = 12.5e6
"""The rate of a line of 100 Mbit/s, for the time that is announced."""
INSTALL = "pip install 'trt-responses[hub]'"


class HubId(NamedTuple):
    """A model on the hub, one file of it if it has several models in it, and the revision."""

    model: str
    file: str | None = None
    revision: str = "main"

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return "/".join(filter(None, (self.model, self.file))) + revision


def hub_id(text: str) -> HubId | None:
    """What a person has typed as a checkpoint, if it is no path that exists and can be an id."""
    found = HUB_ID.fullmatch(text)
    if found is None or Path(text).exists():
        return None
    return HubId(found[1], found[2], found[3] or "main")


def checkpoint_at(text: str, say: Callable[[str], object]) -> Path:
    """The path that was typed, or that of the hub's model, which is fetched if it is not there."""
    wanted = hub_id(text)
    if wanted is None:
        return Path(text).expanduser()
    return cached(wanted) or _fetched(wanted, say)


def cache_directory() -> Path:
    """The directory in which the hub's own programs keep what they fetch."""
    home = os.environ.get("HF_HOME") or Path(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def cached(wanted: HubId) -> Path | None:
    """The snapshot in the local cache, or the file in it, if it is whole."""
    model = cache_directory() / (HUB_MODEL + wanted.model.replace("/", "--"))
    try:
        revision = (model / "refs" / wanted.revision).read_text("utf-8").strip()
    except OSError:
        revision = wanted.revision
    snapshot = model / "snapshots" / revision
    if wanted.file is not None:
        return snapshot / wanted.file if _there(snapshot, _parts(wanted.file)) else None
    whole = _there(snapshot, (CONFIG,)) and _shards_there(snapshot)
    return snapshot if whole else None


def _there(snapshot: Path, names: tuple[str, ...]) -> bool:
    return all((snapshot / name).is_file() for name in names)


def _shards_there(snapshot: Path) -> bool:
    """Whether a snapshot has every shard of its index; without an index, its one file."""
    index = json_or_nothing(snapshot / INDEX).get("weight_map")
    if not isinstance(index, dict):
        return any(snapshot.glob("*.safetensors"))
    return _there(snapshot, tuple({str(name) for name in index.values()}))


def _parts(file: str) -> tuple[str, ...]:
    """The names of a file's parts, or of the file alone."""
    found = GGUF_PART.search(file)
    if found is None:
        return (file,)
    stem, count = file[: found.start()], int(found[2])
    return tuple(f"{stem}-{n:05}-of-{count:05}{GGUF}" for n in range(1, min(count, 999) + 1))


def _fetched(wanted: HubId, say: Callable[[str], object]) -> Path:
    try:
        import huggingface_hub as hub
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # exported on use
            disable_progress_bars,
            enable_progress_bars,
        )
    except ModuleNotFoundError:
        raise PrepareError(
            f"{wanted}: found nothing in {cache_directory()}, and no huggingface_hub to fetch it "
            f"with, expected either; {INSTALL}."
        ) from None
    patterns = WANTED if wanted.file is None else list(_parts(wanted.file))
    chosen: dict[str, Any] = {
        "revision": wanted.revision,
        "cache_dir": cache_directory(),
        "allow_patterns": patterns,
        "ignore_patterns": ["*/*", *(f"*{ending}" for ending in PICKLES)],
    }
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    with _told(wanted):
        api.model_info(wanted.model, revision=wanted.revision)  # else faults are not told apart
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
    """Say what is about to be fetched and how long that takes. Raises a `PrepareError` where it has
    no room."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(cache).free
    if free_bytes < missing_bytes:
        raise PrepareError(
            f"{cache}: found {megabytes(free_bytes)} free, expected {megabytes(missing_bytes)} for "
            f"{wanted}; make room, or set HF_HOME to another disk."
        )
    say(
        f"Fetching {wanted}: {megabytes(missing_bytes)} of {megabytes(whole_bytes)} into {cache}, "
        f"about {rounded(missing_bytes / SLOW_BYTES_PER_S)} on a line of 100 Mbit/s. If it is "
        "stopped, the same command goes on with the files that are missing."
    )


@contextmanager
def _told(wanted: HubId) -> Iterator[None]:
    """Turn the hub's errors into one sentence each."""
    from httpx2 import HTTPError
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise PrepareError(
            f"{wanted}: the hub wants its terms accepted on the model's page, and a token (`hf "
            "auth login`, or HF_TOKEN)."
        ) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise WrongInput(
            f"{wanted}: found no such model or revision on the hub, expected owner/model or a "
            "directory; a private one needs HF_TOKEN."
        ) from None
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled,
            HTTPError, OSError) as error:  # fmt: skip
        raise PrepareError(
            f"{wanted}: fetching broke off ({cut(error)}); the same command goes on with the files "
            "that are missing."
        ) from None
