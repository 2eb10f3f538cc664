"""The experts' weights read back through a GPU: the identity times them, by each format.

For `gpu_check` only. A plan's codes are laid out anew inside it, so that only a GPU can show that
nibbles, blocks and scales are read as they were meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from scripts.gpu_plan import LoadedPlan
from trt_responses.engines.tensorrt.cuda import Cuda
from trt_responses.prepare.checkpoint.safetensors import narrow, widen
from trt_responses.prepare.graph.weights import dense, input_name
from trt_responses.prepare.tensorrt.job import CompileJob
from trt_responses.prepare.tensorrt.targets import families

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.gpu_steps import Here
    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.graph.onnx_file import Element
    from trt_responses.prepare.shelf.chain import Format

ONNX_TYPE: dict[Element, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


def read_through(here: Here, source: Checkpoint, kind: Format, projection: str) -> float:
    """The largest difference of a weight from what the checkpoint says; 0 is what is expected."""
    (family,) = families((here.target,), packed=True, wanted=kind)
    expected = dense(source, 0, projection, "float32")
    name = f"{kind}-{projection}"
    graph = product(here.folder / f"{name}.onnx", family.element, projection, expected.shape)
    plan = here.folder / f"{name}.plan"
    here.compiler.compiled(
        CompileJob(
            checkpoint=str(source.directory),
            graph=str(graph),
            plan=str(plan),
            family=family,
            slots=1,
            chunk=1,
            length=1,
        )
    )
    loaded = LoadedPlan(here.trt, Cuda(here.cuda), plan)
    experts, _, inputs = expected.shape
    identity = np.tile(np.eye(inputs, dtype=np.float32), (experts, 1, 1))
    loaded.put("hidden", narrow(identity) if family.element == "bfloat16" else identity)
    loaded.run()
    found = loaded.get("y").transpose(0, 2, 1).astype(np.float32)
    return float(np.abs(found - widen(expected)).max())


def product(path: Path, element: Element, projection: str, shape: tuple[int, ...]) -> Path:
    """y = x · Wᵀ for each expert, with W under the name that the compiler fills."""
    experts, outputs, inputs = shape
    kind, name = ONNX_TYPE[element], input_name(0, projection)
    nodes = [
        helper.make_node("Transpose", [name], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["hidden", "turned"], ["found"]),
        helper.make_node("Cast", ["found"], ["y"], to=TensorProto.FLOAT),
    ]
    given = [
        helper.make_tensor_value_info("hidden", kind, [experts, inputs, inputs]),
        helper.make_tensor_value_info(name, kind, list(shape)),
    ]
    found = helper.make_tensor_value_info("y", TensorProto.FLOAT, [experts, inputs, outputs])
    graph = helper.make_graph(nodes, "product", given, [found])
    opset = [helper.make_opsetid("", 24)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=11), path)
    return path
