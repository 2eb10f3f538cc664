"""The table of releases with known faults, `known_bad.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from trt_responses.frozen import dataclass

TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class KnownBad:
    """One row: a package, its releases and the fault."""

    package: str
    effect: Literal["answers", "recovery", "speed"]
    what: str
    releases: tuple[str, ...]
    several_gpus: bool = False
    """Whether the fault needs more than one GPU."""
    found: str = ""
    """The installed release."""

    def sentence(self) -> str:
        return f"{self.package} {self.found}: {self.what}"


@cache
def rows() -> tuple[KnownBad, ...]:
    """All rows of the table."""
    table = tomllib.loads(TABLE.read_text("utf-8"))["known"]
    return tuple(KnownBad(**{**row, "releases": tuple(row["releases"])}) for row in table)


def known_bad(installed: Mapping[str, str], gpus: int) -> list[KnownBad]:
    """The rows that apply to these releases on a machine with so many GPUs."""
    found = []
    for row in rows():
        release = installed.get(row.package, "").partition("+")[0]
        if release in row.releases and (gpus > 1 or not row.several_gpus):
            found.append(replace(row, found=release))
    return found
