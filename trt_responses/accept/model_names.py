"""The names by which clients ask for the model. Knows names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from trt_responses.errors import NotFound
from trt_responses.frozen import dataclass


@dataclass(frozen=True)
class ModelNames:
    """The names by which clients may ask for the one model. Answers say the served one. A folder
    may know more of them."""

    served: str
    aliases: Sequence[str] = ()
    """More names, among them the served one, or `*`: agents ask for small models of their own."""

    @cached_property
    def known(self) -> tuple[str, ...]:
        return tuple(n for n in dict.fromkeys((self.served, *self.aliases)) if n != "*")

    @property
    def further(self) -> tuple[str, ...]:
        """Names besides those that are known, as the list of models has them."""
        return ()

    def card(self, name: str) -> Mapping[str, object]:
        """What the list of models says of a name."""
        return {"root": self.served}

    def check(self, name: str) -> None:
        """Raise a `NotFound` for the name of another model, and of a version or an adapter that is
        not loaded."""
        if name and name not in self.known and "*" not in self.aliases:
            raise self.unknown(name)

    def wanted(self, model: str) -> tuple[str, str | None]:
        """The requested name without its adapter, and the adapter's name, for a request that was
        checked, perhaps by another server."""
        return model or self.served, None

    def unknown(self, model: str, *others: str) -> NotFound:
        """The error of a name that is none of these: the served one and the `others`."""
        serves = ", ".join(f"'{name}'" for name in (self.served, *others))
        return NotFound(
            f"The model '{model:.100}' does not exist: this server serves {serves}.",
            param="model",
            code="model_not_found",
        )


def answered_name(model: str, adapter: str | None) -> str:
    """The name of a model, or of one of its adapters, as answers and the list of models have it."""
    return model if adapter is None else f"{model}:{adapter}"
