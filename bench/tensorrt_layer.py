"""What compiling takes: one true layer of a 20b's shape, and both ends, for two families of GPUs.

`python -m bench.tensorrt_layer`. The layer's weights are random, the vocabulary's matrices zeros
(their size is what counts, and random ones take a minute to make). Writes about 8 GB to the
temporary directory (TMPDIR) and removes them. A whole 20b is 24 such layers and the two ends, and
the figures for it are sums, not a measurement.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.prepare import lines
from scripts.checkpoints import GPT_OSS_20B, hf_config, write_json
from trt_responses.prepare.checkpoint.architecture import from_hf
from trt_responses.prepare.checkpoint.expected import expected_tensors
from trt_responses.prepare.checkpoint.safetensors import Tensor, narrow, write_tensors
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.tensorrt.binding import binding
from trt_responses.prepare.tensorrt.build import Compiler, prepare
from trt_responses.prepare.tensorrt.job import CompileResult, compiled
from trt_responses.prepare.tensorrt.options import TensorRtOptions
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.prepare import Figures
    from trt_responses.prepare.checkpoint.safetensors import Array
    from trt_responses.prepare.tensorrt.job import CompileJob

TARGETS = ("sm120", "sm89")
"""4-bit experts, and exact 8-bit ones."""
LAYERS = GPT_OSS_20B.layers


@dataclass
class Watched:
    """Compiles, and remembers what each plan took."""

    results: dict[tuple[str, str], CompileResult] = field(default_factory=dict)

    def __call__(self, job: CompileJob) -> CompileResult:
        result = compiled(job)
        plan = Path(job.plan)
        self.results[plan.parent.name, plan.stem] = result
        return result


def one_layer(directory: Path) -> Path:
    """A checkpoint of one layer with random MXFP4 experts."""
    directory.mkdir()
    config = hf_config(replace(GPT_OSS_20B, layers=1), packed=True)
    write_json(directory / "config.json", config)
    expected = expected_tensors(from_hf(config))
    tensors = [
        Tensor(name, dtypes[0], shape, _reader(name, dtypes[0], shape))
        for name, (shape, dtypes) in expected.items()
    ]
    write_tensors(directory / "model.safetensors", tensors)
    return directory


def _reader(name: str, dtype: str, shape: tuple[int, ...]) -> Callable[[], Array]:
    random = np.random.default_rng(len(name))

    def read() -> Array:
        if "layers" not in name:
            return np.zeros(shape, np.uint16)
        if dtype == "U8":
            low, high = (118, 122) if name.endswith("_scales") else (0, 256)
            return random.integers(low, high, shape, np.uint8)
        return narrow(random.standard_normal(shape, np.float32) * np.float32(0.02))

    return read


def is_possible() -> bool:
    try:
        binding()
    except PrepareError:
        return False
    return True


def measured() -> dict[str, Figures]:
    with tempfile.TemporaryDirectory() as name:
        watched = Watched()
        tools = BuildTools(vocabularies.load())
        source = one_layer(Path(name) / "layer")
        options = TensorRtOptions(targets=TARGETS)
        compiler = Compiler(compiled=watched)
        prepare(source, Path(name) / "engines", "layer", tools, options, compiler=compiler)
    return {
        f"TensorRT plans of a 20b for {target}: a layer, the ends, the sum": _figures(
            {plan: result for (family, plan), result in watched.results.items() if family == target}
        )
        for target in TARGETS
    }


def _figures(plans: dict[str, CompileResult]) -> Figures:
    layer, embed, head = (plans[name] for name in ("layers_00_00", "embed", "head"))
    return {
        "layer": layer.seconds,
        "layer_bytes": layer.size_bytes,
        "layer peak_bytes": layer.peak_bytes,
        "ends": embed.seconds + head.seconds,
        "ends_bytes": embed.size_bytes + head.size_bytes,
        "ends peak_bytes": max(embed.peak_bytes, head.peak_bytes),
        "whole": LAYERS * layer.seconds + embed.seconds + head.seconds,
        "whole_bytes": LAYERS * layer.size_bytes + embed.size_bytes + head.size_bytes,
    }


def main() -> int:
    for name, figures in measured().items():
        print("\n".join(lines(name, figures)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
