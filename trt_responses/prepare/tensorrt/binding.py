"""TensorRT's Python binding, from either package: RTX, or the enterprise one.
`binding()` imports the package; nothing else here does.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.shelf.chain import Flavour
from trt_responses.prepare.shelf.plans import REMEDY

MODULES: tuple[tuple[Flavour, str], ...] = (
    ("rtx", "tensorrt_rtx_bindings"),
    ("enterprise", "tensorrt_bindings"),
)
"""The packages in the order of preference: only RTX compiles for a GPU of another machine."""


class Binding(NamedTuple):
    """A Python binding of TensorRT."""

    flavour: Flavour
    version: str
    module: ModuleType


def binding(modules: Sequence[tuple[Flavour, str]] = MODULES) -> Binding:
    """The first installed package. Raises a `PrepareError` that says how to install it."""
    for flavour, name in modules:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError) as error:
            raise PrepareError(f"TensorRT: {name} cannot be loaded ({error}); {REMEDY}.") from None
        return Binding(flavour, str(module.__version__), module)
    raise PrepareError(f"TensorRT: no Python binding is installed; {REMEDY}.")
