"""The GPUs that an engine can be compiled for, with their weight formats and families.
Works on compute capabilities and formats; needs no network and no package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

from trt_responses.prepare.faults import PrepareError, WrongInput, refusal
from trt_responses.prepare.graph.onnx_file import Element
from trt_responses.prepare.shelf.chain import Format

FORMATS: tuple[Format, ...] = get_args(Format)


class Target(NamedTuple):
    """A GPU to compile for, and the formats that it runs."""

    name: str
    cards: str
    bfloat16: bool = True
    fp4: bool = False


TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        Target("sm75", "GeForce RTX 20, T4", bfloat16=False),
        Target("sm80", "A100, A30"),
        Target("sm86", "GeForce RTX 30, A40, A10"),
        Target("sm89", "GeForce RTX 40, L40, L4"),
        Target("sm120", "GeForce RTX 50, RTX PRO Blackwell", fp4=True),
        Target("sm121", "GB10 (DGX Spark)", fp4=True),
    )
}
UNSUPPORTED = {
    "sm90": "H100 and H200 are not among TensorRT-RTX's targets",
    "sm100": "B100 and B200 are not among TensorRT-RTX's targets",
    "sm103": "B300 is not among TensorRT-RTX's targets",
}
KEPT_PACKED = ("mxfp4", "int8")
"""The lossless formats below 16 bits for MXFP4 experts; they need packed experts."""


class Family(NamedTuple):
    """The targets of one engine: they share the weights' format and the element type."""

    targets: tuple[str, ...]
    weights: Format
    element: Element

    @property
    def folder(self) -> str:
        return "_".join(self.targets)


def checked_targets(names: Sequence[str]) -> tuple[str, ...]:
    """The targets in the order of `TARGETS`, without duplicates."""
    for name in names:
        if name not in TARGETS:
            why = f"; {UNSUPPORTED[name]}" if name in UNSUPPORTED else ""
            raise WrongInput(f"--targets: found {name!r}, expected {', '.join(TARGETS)}{why}.")
    if not names:
        raise refusal("--targets", "none", f"one or more of {', '.join(TARGETS)}", WrongInput)
    return tuple(name for name in TARGETS if name in names)


def check_present(targets: Sequence[str], present: str | None) -> None:
    """Check the targets of a builder that compiles for this machine's GPU only."""
    if tuple(targets) != (present,):
        raise WrongInput(
            f"--targets: found {', '.join(targets)}, expected {present or 'a GPU here'}: the "
            "enterprise TensorRT compiles only for the GPU at hand; install TensorRT-RTX: "
            "pip install 'trt-responses[tensorrt]'."
        )


def default_targets(packed: bool, present: str | None) -> tuple[str, ...]:
    """The default targets: this machine's GPU; without one, those that run 4-bit experts (or
    bfloat16 for a dense checkpoint)."""
    if present is not None and present in TARGETS:
        return (present,)
    return tuple(t.name for t in TARGETS.values() if (t.fp4 if packed else t.bfloat16))


def families(targets: Sequence[str], packed: bool, wanted: Format | None = None) -> list[Family]:
    """The families of these targets, one engine each. All share one element type, since they come
    from one graph."""
    chosen = [TARGETS[name] for name in checked_targets(targets)]
    element = _element(chosen, wanted)
    found: dict[Format, list[str]] = {}
    for target in chosen:
        found.setdefault(_format(target, packed, wanted, element), []).append(target.name)
    return [Family(tuple(names), weights, element) for weights, names in found.items()]


def _element(chosen: Sequence[Target], wanted: Format | None) -> Element:
    if wanted == "f32":
        return "float32"
    bfloat16 = [target.bfloat16 for target in chosen]
    if wanted == "bf16" and not all(bfloat16):
        raise _refused("bf16", chosen[0], "f16")
    if wanted == "f16" or not any(bfloat16):
        return "float16"
    if not all(bfloat16):
        raise WrongInput(
            f"--targets: found {chosen[0].name} among others, expected it alone: it computes in "
            "float16 and they in bfloat16; prepare it with another --name, or pass --type f16 for "
            "all."
        )
    return "bfloat16"


def _format(target: Target, packed: bool, wanted: Format | None, element: Element) -> Format:
    if wanted is None:
        if packed:
            return "mxfp4" if target.fp4 else "int8"
        return "bf16" if element == "bfloat16" else "f16"
    if wanted in KEPT_PACKED and not packed:
        raise refusal(
            f"--type {wanted}", "a checkpoint without MXFP4 experts", "one with them", WrongInput
        )
    if wanted == "mxfp4" and not target.fp4:
        raise _refused("mxfp4", target, "int8, which is exact too")
    return wanted


def _refused(wanted: str, target: Target, instead: str) -> PrepareError:
    what = {"bf16": "bfloat16", "mxfp4": "4-bit floats"}[wanted]
    return WrongInput(
        f"--type {wanted}: the target {target.name} ({target.cards}) does not support {what}; use "
        f"--type {instead}."
    )
