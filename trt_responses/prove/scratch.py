"""A copy of a prepared engine's directory, as two versions, for servers that may change it.

Large files are links, so the copy is small. The user's own engines stay as they are: no version is
promoted there and no adapter is added.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from trt_responses.prepare.shelf import versions
from trt_responses.prepare.shelf.card import CARD, Card, write_card

COPIED_BYTES = 64 << 20


def two_versions(directory: Path, card: Card, engines_dir: Path) -> None:
    """Write NAME@1 and NAME@2 of the same bytes, and promote the first."""
    home = engines_dir / card.name
    other = f"{int(card.version, 16) ^ 1:0{len(card.version)}x}"
    for version in (card.version, other):
        target = home / version
        shutil.copytree(directory, target, copy_function=_link_or_copy)
        (target / CARD).unlink()
        number = versions.new_number(home, version)
        made = replace(card, version=version, number=number)
        write_card(target, made)
        versions.promote_first(home, [made])


def _link_or_copy(source: str, target: str) -> None:
    if os.stat(source).st_size > COPIED_BYTES:
        os.symlink(os.path.realpath(source), target)
    else:
        shutil.copy2(source, target)
