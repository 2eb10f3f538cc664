"""`NAME=ENGINE,NAME=ENGINE…`: the models of a server, and the engines of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from trt_responses.errors import UsageError

KIND = "several"
NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)")


class Entry(NamedTuple):
    """One engine: the name of its model, and what names the engine."""

    model: str
    place: str

    @property
    def local(self) -> bool:
        """Whether it is prepared here, and no other server's."""
        return "://" not in self.place


def entries_of(text: str) -> tuple[Entry, ...]:
    """The engines that a setting lists. Raises a `UsageError` for an entry without a name."""
    return tuple(_entry(each) for each in text.split(","))


def _entry(text: str) -> Entry:
    if (found := NAMED.fullmatch(text.strip())) is None:
        raise UsageError(
            f"{text!r:.100} does not name its model: several engines are given as NAME=ENGINE, "
            "such as gpt=grpc://host:port/model."
        )
    return Entry(found[1], found[2])


def spelled(entries: Iterable[tuple[str, str]]) -> str:
    """The setting that lists these engines."""
    return f"{KIND}://" + ",".join(f"{model}={place}" for model, place in entries)
