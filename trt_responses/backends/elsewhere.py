"""Engines that the settings name by a URL."""

from __future__ import annotations

from typing import NamedTuple

from trt_responses.settings import Settings


class Elsewhere(NamedTuple):
    """An engine that another server serves, or another package brings."""

    kind: str
    place: str
    """host:port/model, or what the package makes of it"""


def elsewhere_in(settings: Settings) -> Elsewhere | None:
    """The engine of another server or package, if the settings name one."""
    match (settings.engine or "").partition("://"):
        case (kind, _, place) if place:
            return Elsewhere(kind, place)
    return None
