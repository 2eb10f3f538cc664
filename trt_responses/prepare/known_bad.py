"""The table of releases with known faults, `known_bad.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_suffix(".toml")


class KnownBad(NamedTuple):
    """An installed release with a fault: its effect is `answers`, `recovery` or `speed`."""

    package: str
    release: str
    effect: str
    what: str

    def sentence(self) -> str:
        return f"{self.package} {self.release}: {self.what}"


def known_bad(installed: Mapping[str, str], gpus: int) -> Iterator[KnownBad]:
    """The rows that apply to these releases on a machine with so many GPUs."""
    for row in tomllib.loads(TABLE.read_text("utf-8"))["known"]:
        release = installed.get(row["package"], "").partition("+")[0]
        if release in row["releases"] and (gpus > 1 or not row.get("several_gpus")):
            yield KnownBad(row["package"], release, row["effect"], row["what"])
