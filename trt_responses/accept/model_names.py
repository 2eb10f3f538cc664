"""The names by which clients ask: of the model, of its loaded versions, and of its adapters.

`name`, `name@3`, `name:adapter`, `name@3:adapter`; an alias may stand for `name`. Knows names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

from trt_responses.errors import NotFound
from trt_responses.frozen import dataclass


class Named(Protocol):
    """A version's names, and its kind of engine."""

    @property
    def kind(self) -> str: ...

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def label(self) -> str: ...

    @property
    def number(self) -> int | None: ...

    @property
    def digest(self) -> str: ...


class Loaded(Protocol):
    """A version of the model that is loaded."""

    @property
    def version(self) -> Named: ...

    @property
    def adapters(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class ModelNames:
    """The names by which clients may ask for the one model. Answers say the served one."""

    served: str
    aliases: Sequence[str] = ()
    answers_any: bool = False
    """Every requested name is this model's: agents ask for small models of their own."""
    loaded: Callable[[], Sequence[Loaded]] = tuple
    """The versions that are loaded now, the promoted one first."""

    @cached_property
    def known(self) -> tuple[str, ...]:
        return (self.served, *self.aliases)

    @property
    def of_versions(self) -> dict[str, Loaded]:
        """Each loaded version by its names, the one with its number first."""
        return {name: loaded for loaded in self.loaded() for name in loaded.version.names}

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters of all loaded versions, as models."""
        names = dict.fromkeys(name for loaded in self.loaded() for name in loaded.adapters)
        return tuple(map(self.answered, names))

    def answered(self, adapter: str | None) -> str:
        """The name that an answer says, of the model or of one of its adapters."""
        return answered_name(self.served, adapter)

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
        """Raise a `NotFound` for the name of another model, and of a version or an adapter that is
        not loaded."""
        if not name or name in self.known or self.answers_any:
            return
        if self.split(name)[1] is None and name not in self.of_versions:
            raise self._unknown(name)

    def wanted(self, model: str) -> tuple[str, str | None]:
        """`split`, for a request that was checked, perhaps by another server: in place of a version
        that is gone any other answers, in place of an adapter nothing does."""
        if not model or model in self.known:
            return model or self.served, None
        base, adapter = self.split(model)
        if adapter is None and not self.answers_any:
            behind = (model.removeprefix(name) for name in self.known if model.startswith(name))
            if any(rest[0] in ":@" and ":" in rest for rest in behind):
                raise self._unknown(model)
        return base, adapter

    def _unknown(self, model: str) -> NotFound:
        named = (self.served, *self.of_versions, *self.adapters)
        serves = ", ".join(f"'{name}'" for name in named)
        return NotFound(
            f"The model '{model:.100}' does not exist: this server serves {serves}.",
            param="model",
            code="model_not_found",
        )


def answered_name(model: str, adapter: str | None) -> str:
    """The name of a model, or of one of its adapters, as answers and the list of models have it."""
    return model if adapter is None else f"{model}:{adapter}"
