"""The model as `/v2` names it, and the numbers of its versions.

Knows no request: endpoints ask it what a path means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.apis.kserve import bodies as k
from trt_responses.errors import InvalidRequest, NotFound
from trt_responses.features.rollout.loaded import number_in

if TYPE_CHECKING:
    import re

    from trt_responses.features.rollout.loaded import Version
    from trt_responses.features.rollout.versions import Versions


class ServedModel:
    """The one model of this server, by its name and its versions' numbers."""

    def __init__(self, name: str, versions: Versions) -> None:
        self.name = name
        self._versions = versions

    def check(self, found: re.Match[str]) -> None:
        """Refuse a path that names another model, or a version that is not loaded."""
        if found["model"] != self.name:
            name = found["model"]
            raise InvalidRequest(f"Request for unknown model: '{name:.100}' is not found")
        if found["version"] not in (None, *self.numbers()):
            raise NotFound(
                f"Request for unknown model: '{self.name}' version {found['version']:.20} is "
                "not found"
            )

    def numbers(self) -> list[str]:
        """The numbers of the versions that are loaded, the promoted one first."""
        return [number(version) for version in self._versions.live()]

    def maker(self, response_id: str) -> str:
        """The number of the version that makes a response."""
        return str(number_in(response_id) or k.UNNUMBERED)

    def model_name(self, number: str | None) -> str:
        """The model's name for a run: with its version, if `number` names a live one."""
        versions = self._versions.live()
        return next((v.label for v in versions if str(v.number) == number), self.name)


def number(version: Version) -> str:
    """A version's number as `/v2` writes it."""
    return str(version.number or k.UNNUMBERED)
