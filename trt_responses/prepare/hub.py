"""Checkpoints by their name on the Hugging Face hub: from its local cache, or downloaded.
`owner/model`, `owner/model:file.gguf` or `owner/model:Q8_0`, each also with `@revision`. Downloads
go into the hub's own cache, which other programs share, and a broken one resumes where it stopped.
Uses the hub's package and its cache; opens no checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from trt_responses.prepare.checkpoint.open import HUB_MODEL, INDEX, PICKLES
from trt_responses.prepare.faults import PrepareError, WrongInput, cut
from trt_responses.prepare.files import GGUF, GGUF_PART, json_or_nothing
from trt_responses.prepare.phases import rounded
from trt_responses.prepare.progress import megabytes, shown_on
from trt_responses.prepare.resume import download_blob

WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
HUB_ID = re.compile(rf"({WORD}/{WORD})(?:/([^@:/]+\.gguf)|:([^@:/]+))?(?:@({WORD}))?")
HUB_PLACE = re.compile(r"(https://)?(huggingface\.co|hf\.co)/")
WANTED = ["*.json", "*.safetensors", "*.jinja"]
"""Patterns of the files to download. OpenAI's own layout and Metal's are in subfolders: skipped."""
CONFIG = "config.json"
PREFERRED = ("mxfp4", "q4_k_m", "q8_0")
"""Types of weights in the order in which one of several files is chosen; llama.cpp's order but for
the first, in which gpt-oss is published."""
NOT_A_MODEL = ("mmproj", "imatrix")
"""Beginnings of the names of other GGUF files."""
MOST_LISTED = 8
SLOW_BYTES_PER_S = 12.5e6
"""The rate of a line of 100 Mbit/s, for the estimated time."""
INSTALL = "pip install 'huggingface_hub>=2.4,<3'"


class HubId(NamedTuple):
    """A model on the hub, one of its files or that file's type of weights, and the revision."""

    model: str
    file: str | None = None
    revision: str = "main"

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return "/".join(filter(None, (self.model, self.file))) + revision


class Wishes(NamedTuple):
    """What the caller checks and says before the weights are downloaded."""

    accepts: Callable[[Path], object] = lambda directory: None
    """Raises a `PrepareError` for a directory whose `config.json` is of a foreign model."""
    room: Callable[[int], str] = lambda size_bytes: ""
    """A sentence about what serving weights of this size takes; raises if the machine is too
    small."""


NO_WISHES = Wishes()


def hub_id(text: str) -> HubId | None:
    """A model's id in the text that a user typed; None for an existing path or no valid id."""
    found = HUB_ID.fullmatch(HUB_PLACE.sub("", text, count=1))
    if found is None or os.path.exists(text):
        return None
    return HubId(found[1], found[2] or found[3], found[4] or "main")


def checkpoint_at(text: str, say: Callable[[str], object]) -> Path:
    """The path that a user typed, or the path of the hub's model. Downloads a missing model."""
    wanted = hub_id(text)
    return Path(os.path.expanduser(text)) if wanted is None else fetched(wanted, say)


def fetched(wanted: HubId, say: Callable[[str], object], wishes: Wishes = NO_WISHES) -> Path:
    """The path of the hub's model, which is downloaded if the cache does not have it."""
    return cached(wanted) or _download(wanted, say, wishes)


def cache_directory() -> Path:
    """The directory of the hub's cache, as the hub's own programs choose it."""
    home = os.environ.get("HF_HOME") or Path(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(os.path.expanduser(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")))


def cached(wanted: HubId) -> Path | None:
    """The complete snapshot in the local cache, or the file in it; None without one."""
    model = _folder(wanted)
    try:
        revision = (model / "refs" / wanted.revision).read_text("utf-8").strip()
    except OSError:
        revision = wanted.revision
    snapshot = model / "snapshots" / revision
    if wanted.file is None and (snapshot / CONFIG).exists():
        return snapshot if _has_shards(snapshot) else None
    try:
        file = chosen_gguf((path.name for path in snapshot.glob(f"*{GGUF}")), wanted)
    except WrongInput:
        return None
    return snapshot / file if _has_files(snapshot, _parts(file)) else None


def _folder(wanted: HubId) -> Path:
    return cache_directory() / (HUB_MODEL + wanted.model.replace("/", "--"))


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


def chosen_gguf(names: Iterable[str], wanted: HubId) -> str:
    """The wanted GGUF file among these names, by its name or its type of weights; without either
    the single one, or the one of the first preferred type. Raises a `WrongInput` otherwise."""
    models = [name for name in names if name.endswith(GGUF) and not name.startswith(NOT_A_MODEL)]
    first = sorted(name for name in models if _parts(name)[0] == name)
    if wanted.file in first:
        return str(wanted.file)
    for part in (*PREFERRED, "") if wanted.file is None else (wanted.file.removesuffix(GGUF),):
        fit = [name for name in first if part.lower() in name.lower()]
        if len(fit) == 1:
            return fit[0]
    listed = ", ".join(first[:MOST_LISTED]) + (", …" if len(first) > MOST_LISTED else "")
    if wanted.file is not None:
        raise WrongInput(f"{wanted}: found none of {wanted.file}, expected one of {listed or '-'}.")
    raise WrongInput(f"{wanted}: name one file, {wanted.model}:FILE; there are {listed or 'none'}.")


def _download(wanted: HubId, say: Callable[[str], object], wishes: Wishes) -> Path:
    try:
        import huggingface_hub as hub
    except ModuleNotFoundError:
        raise PrepareError(
            f"{wanted} is not in {cache_directory()}, and huggingface_hub, which downloads it, is "
            f"not installed; {INSTALL}."
        ) from None
    endpoint = os.environ.get("HF_ENDPOINT")
    api = hub.HfApi(endpoint=endpoint)
    with _reported(wanted):
        about = api.model_info(wanted.model, revision=wanted.revision)  # its errors name the fault
        names = [file.rfilename for file in about.siblings or ()]
        fetch = partial(
            api.snapshot_download,
            wanted.model,
            revision=wanted.revision,
            cache_dir=cache_directory(),
            ignore_patterns=["*/*", *(f"*{ending}" for ending in PICKLES)],
        )
        file = _file(names, wanted, lambda: wishes.accepts(_config(fetch)))
        patterns = WANTED if file is None else list(_parts(file))
        with _quiet():
            listed: Any = fetch(allow_patterns=patterns, dry_run=True)
        sizes = [(each.file_size or 0, each.will_download) for each in listed]
        missing_bytes = sum(size for size, missing in sizes if missing)
        whole_bytes = sum(size for size, _ in sizes)
        _announce(wanted, whole_bytes, missing_bytes, say, wishes.room(whole_bytes))
        with _quiet(), shown_on(sys.stderr) as progress:
            for each in listed:
                if each.will_download:
                    at = hub.hf_hub_url(
                        wanted.model, each.filename, revision=each.commit_hash, endpoint=endpoint
                    )
                    download_blob(at, _folder(wanted) / "blobs", progress)
            directory = Path(fetch(allow_patterns=patterns))
    return directory if file is None else directory / file


def _file(names: list[str], wanted: HubId, check: Callable[[], object]) -> str | None:
    """The file to download; None for the whole directory, which is checked by its config first."""
    has_gguf = any(name.endswith(GGUF) for name in names)
    if wanted.file is None and CONFIG in names and any(n.endswith(".safetensors") for n in names):
        try:
            check()
        except WrongInput:
            if not has_gguf:
                raise
        else:
            return None
    if wanted.file is None and not has_gguf:
        raise PrepareError(f"{wanted}: found none of {', '.join(WANTED)}, expected some.")
    return chosen_gguf(names, wanted)


def _config(fetch: Callable[..., Any]) -> Path:
    """The directory of the model's `config.json`, which is downloaded alone."""
    with _quiet():
        return Path(fetch(allow_patterns=[CONFIG]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the bars of the hub's package."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # exported on use
        disable_progress_bars,
        enable_progress_bars,
    )

    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _announce(
    wanted: HubId, whole_bytes: int, missing_bytes: int, say: Callable[[str], object], room: str
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
        f"stops, run the same command again: it continues there.{room}"
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
            "continues there."
        ) from None
