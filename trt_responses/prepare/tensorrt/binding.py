"""TensorRT's Python binding, whichever package brings it: RTX, or the enterprise one.

Knows the packages' names and what our builder asks of them; builds nothing. Nothing of them is
imported before `binding()` is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.plans import REMEDY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from trt_responses.prepare.chain import Flavour

MODULES: tuple[tuple[Flavour, str], ...] = (
    ("rtx", "tensorrt_rtx_bindings"),
    ("enterprise", "tensorrt_bindings"),
)
"""In the order of preference: only RTX compiles for a GPU that is not there."""
USED: Mapping[str, tuple[str, ...]] = {
    "Builder": (
        "create_network",
        "create_builder_config",
        "create_optimization_profile",
        "build_serialized_network",
    ),
    "ComputeCapability": (),
    "DataType": ("FLOAT", "HALF", "BF16", "INT8", "INT64", "FP4", "E8M0"),
    "IAttention": ("decomposable",),
    "IAttentionInputLayer": ("attention",),
    "IBuilderConfig": (
        "add_optimization_profile",
        "set_compute_capability",
        "num_compute_capabilities",
    ),
    "IHostMemory": ("nbytes",),
    "ILayer": ("get_input", "get_output", "num_inputs", "set_input", "type"),
    "ILogger": ("log", "ERROR", "INTERNAL_ERROR"),
    "INetworkDefinition": (
        "add_constant",
        "add_dequantize",
        "get_input",
        "get_layer",
        "get_output",
        "num_inputs",
        "num_layers",
        "num_outputs",
        "remove_tensor",
    ),
    "IOptimizationProfile": ("set_shape",),
    "ITensor": ("dtype", "name", "shape"),
    "LayerType": ("ATTENTION_INPUT",),
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),
    "OnnxParser": ("parse_from_file", "num_errors", "get_error"),
    "Weights": (),
}
"""Every name that the builder asks of the binding; a test compares them with both packages."""
RTX_ONLY = ("ComputeCapability", "num_compute_capabilities", "set_compute_capability")
"""Without these there are no targets: the enterprise builder compiles for the GPU at hand."""


class Binding(NamedTuple):
    flavour: Flavour
    version: str
    module: ModuleType


def binding(modules: Sequence[tuple[Flavour, str]] = MODULES) -> Binding:
    """The first of them that is installed, or one sentence that says how to get it."""
    for flavour, name in modules:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError) as error:
            raise PrepareError(
                f"TensorRT: {name} was found and cannot be loaded ({error}); {REMEDY}."
            ) from None
        return Binding(flavour, str(module.__version__), module)
    raise PrepareError(f"TensorRT: found no binding of it, expected one; {REMEDY}.")
