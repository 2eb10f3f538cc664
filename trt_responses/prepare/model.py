"""What a user means by a model, and the engine that was prepared from it before.

    NAME, NAME@3, NAME@DIGEST            a prepared engine, or its directory
    FILE.gguf, DIRECTORY                 a checkpoint of this machine
    OWNER/MODEL, OWNER/MODEL:FILE        a model of the Hugging Face hub
    grpc://…, triton://…                 another server's engine
Reads names, cards and remembered digests; prepares nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trt_responses.prepare.checkpoint.open import HUB_MODEL
from trt_responses.prepare.digests import DIGESTS, known_digests
from trt_responses.prepare.faults import PrepareError, WrongInput, shown
from trt_responses.prepare.files import GGUF, json_or_nothing
from trt_responses.prepare.hub import HubId, chosen_gguf, hub_id
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import CARD, Card, read_card
from trt_responses.prepare.shelf.versions import NUMBER, VERSION

ELSEWHERE = ("grpc://", "triton://")
PATH_BEGINS = ("/", "./", "../", "~")


def meaning(text: str, engines_dir: Path) -> str | Path | HubId:
    """The engine's name, the path of a checkpoint, or the hub's model. Raises a `WrongInput` for
    anything else. A prepared engine comes before a directory of the same name."""
    if text.startswith(ELSEWHERE) or text in (shelf.DEMO, shelf.DEMO_ONNX):
        return text
    name, mark, version = text.replace("/", "@", 1).partition("@")
    plain = not mark or VERSION.fullmatch(version) or NUMBER.fullmatch(version)
    is_name = bool(plain and shelf.NAME.fullmatch(name))
    if is_name and _is_prepared(engines_dir, name):
        return text
    path = Path(os.path.expanduser(text))
    if text and os.path.exists(path):  # also of a name that is too long for any file
        return _engine_at(path, engines_dir) or _checkpoint_at(path)
    if not text.startswith(PATH_BEGINS) and (wanted := hub_id(text)) is not None:
        return wanted
    if any(prepared_from(engines_dir, path)):  # and moved
        return path
    if is_name and not text.endswith(GGUF):
        shelf.find(engines_dir, text)  # its error names the engines
    raise WrongInput(
        f"{shown(text)} is not an engine name, nor an existing file or directory; give NAME, "
        "NAME@VERSION, a directory, a .gguf file, or OWNER/MODEL of the hub."
    )


def _is_prepared(engines_dir: Path, name: str) -> bool:
    """Whether any version of the engine is complete."""
    return any((engines_dir / name).glob(f"*/{CARD}"))


def _engine_at(path: Path, engines_dir: Path) -> str | None:
    """The engine whose directory this is, or the version."""
    whole, home = path.resolve(), engines_dir.resolve()
    if whole.parent == home and _is_prepared(engines_dir, whole.name):
        return whole.name
    if whole.parent.parent == home and VERSION.fullmatch(whole.name):
        return f"{whole.parent.name}@{whole.name}"
    return None


def _checkpoint_at(path: Path) -> Path:
    """The checkpoint; of a directory of GGUF files alone, the one to serve."""
    names = [file.name for file in path.glob(f"*{GGUF}")]
    if not names or (path / "config.json").exists():
        return path
    return path / chosen_gguf(names, HubId(str(path)))


def engine_name(text: str) -> str:
    """A valid engine name out of a model's or a file's name."""
    name = re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("._-").replace("..", ".")[:100]
    return shelf.checked_name(name or "model")


def prepared_from(engines_dir: Path, source: Path | HubId) -> Iterator[tuple[Path, Card]]:
    """Directories and cards of the engines that were prepared from this source as it is now, or as
    it was before it was moved: the promoted one of an engine first, then the newest."""
    found = []
    for entry in shelf.entries(engines_dir):
        directory = engines_dir / entry.name / entry.version
        if entry.status in ("built", "verified"):
            card = read_card(directory)
            if _is_from(directory.parent, card, source):
                found.append((entry.promoted, entry.built_at, directory, card))
    for _, _, directory, card in sorted(found, key=lambda each: each[:2], reverse=True):
        yield directory, card


def _is_from(home: Path, card: Card, source: Path | HubId) -> bool:
    files = {file.name: file.sha256 for file in card.source.files}
    if isinstance(source, HubId):
        return _is_of_hub(home, files, source)
    is_folder = os.path.isdir(source)
    if source.name not in files and not is_folder:
        return False
    folder = source if is_folder else source.parent
    return all(digest in known_digests(home, folder / name) for name, digest in files.items())


def _is_of_hub(home: Path, files: dict[str, str], wanted: HubId) -> bool:
    """Whether all files came from the hub's model, whose cache may be empty since."""
    try:
        if wanted.file is not None:
            chosen_gguf(files, wanted)
    except PrepareError:
        return False
    part = f"/{HUB_MODEL}{wanted.model.replace('/', '--')}/"
    known = json_or_nothing(home / DIGESTS)
    theirs = {str(digest) for stamp, digest in known.items() if part in stamp}
    return wanted.revision == "main" and theirs.issuperset(files.values())
