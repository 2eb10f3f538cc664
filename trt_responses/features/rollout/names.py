"""The names of the model's loaded versions and of its adapters: `name@3`, `name:adapter`,
`name@3:adapter`; an alias may stand for `name`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trt_responses.accept.model_names import ModelNames, answered_name
from trt_responses.errors import NotFound
from trt_responses.features.rollout.loaded import Loaded
from trt_responses.frozen import dataclass


@dataclass(frozen=True)
class VersionNames(ModelNames):
    """The names by which clients may ask for the one model, its versions and its adapters."""

    loaded: Callable[[], Sequence[Loaded]] = tuple
    """The versions that are loaded now, the promoted one first."""

    @property
    def of_versions(self) -> dict[str, Loaded]:
        """Each loaded version by its names, the one with its number first."""
        return {name: loaded for loaded in self.loaded() for name in loaded.version.names}

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters of all loaded versions, as models."""
        names = dict.fromkeys(name for loaded in self.loaded() for name in loaded.adapters)
        return tuple(answered_name(self.served, name) for name in names)

    @property
    def further(self) -> tuple[str, ...]:
        labels = (each.version.label for each in self.loaded() if each.version.names)
        return (*labels, *self.adapters)

    def card(self, name: str) -> Mapping[str, object]:
        """`root` says which one a name stands for, `parent` whose adapter it is, and `version`
        which build of it."""
        base, adapter = self.split(name)
        served = base if base in self.of_versions and "@" not in base else self.served
        card: dict[str, object] = {"root": answered_name(served, adapter)}
        if adapter is not None:
            card["parent"] = served
        loaded = self.loaded()
        found = self.of_versions.get(base, loaded[0] if loaded else None)
        if found is not None and (found.version.number or found.version.digest):
            card |= {"version": found.version.number, "digest": found.version.digest}
        return card

    def split(self, name: str) -> tuple[str, str | None]:
        """The requested name without its adapter, and the adapter's name. A name as a whole comes
        first, for it may have a colon in it."""
        if name in self.known or name in self.of_versions:
            return name, None
        base, _, adapter = name.rpartition(":")
        if base in self.known:
            having = [loaded for loaded in self.loaded() if adapter in loaded.adapters]
        else:
            found = self.of_versions.get(base)
            having = [found] if found is not None and adapter in found.adapters else []
        return (base, adapter) if having else (name, None)

    def check(self, name: str) -> None:
        if not name or name in self.known or "*" in self.aliases:
            return
        if self.split(name)[1] is None and name not in self.of_versions:
            raise self._unknown(name)

    def wanted(self, model: str) -> tuple[str, str | None]:
        """In place of a version that is gone any other answers, in place of an adapter nothing
        does."""
        if not model or model in self.known:
            return model or self.served, None
        base, adapter = self.split(model)
        if adapter is None and "*" not in self.aliases:
            behind = (model.removeprefix(name) for name in self.known if model.startswith(name))
            if any(rest[0] in ":@" and ":" in rest for rest in behind):
                raise self._unknown(model)
        return base, adapter

    def _unknown(self, model: str) -> NotFound:
        return self.unknown(model, *self.of_versions, *self.adapters)
