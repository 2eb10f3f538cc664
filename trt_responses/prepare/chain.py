"""The part of a card that says what a compiled engine and a bare graph have: the chain of files.

Knows the tensor contract in words and the releases that plans are bound to; opens a plan's head
and no more. `plan_of` gives the graph's own plan back to whoever runs it.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # decoded by its annotation
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.tensorrt.binding import LIBRARY, REMEDY, Flavour, library_version
from trt_responses.prepare.tensorrt.plan_file import release_in
from trt_responses.prepare.tensorrt.targets import Element, Format  # noqa: TC001  # likewise

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.card import Card
    from trt_responses.prepare.graph.write import Plan

GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Link:
    """One file of the chain, in the order in which they run, and the layers that are in it."""

    name: str
    first: int
    count: int
    inputs: Mapping[str, str]
    """By name, as `bfloat16 B,S,2880`: B slots, S new tokens."""
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The plans of one family of targets, in a folder of their own."""

    folder: str
    targets: tuple[str, ...]
    weights: Format
    exact: bool
    """Whether the weights in the plans are just those of the checkpoint."""
    size_bytes: int
    peak_bytes: int
    """The most memory that compiling one of them took."""


@dataclass(frozen=True, slots=True)
class Chain:
    slots: int
    length: int
    chunk: int
    top: int
    element: Element
    links: tuple[Link, ...]
    flavour: Flavour | Literal["none"] = "none"
    release: str = ""
    """Of the library that compiled the plans: no other runs them."""
    compiled: tuple[Compiled, ...] = ()

    def for_target(self, target: str) -> Compiled:
        """The family that runs on a GPU, by its compute capability as `sm120`."""
        for family in self.compiled:
            if target in family.targets:
                return family
        known = ", ".join(name for family in self.compiled for name in family.targets)
        raise PrepareError(
            f"targets: this GPU is {target}, the engine was compiled for {known or 'none'}; "
            f"prepare it again with TARGETS={target}."
        )


def plan_of(card: Card) -> Plan:
    """What the graph was written by."""
    from trt_responses.prepare.graph.write import Plan  # needs the extra

    chain = chain_of(card)
    return Plan(
        architecture=card.architecture,
        slots=chain.slots,
        length=chain.length,
        chunk=chain.chunk,
        top=chain.top,
        element=chain.element,
        groups=tuple(range(k.first, k.first + k.count) for k in chain.links if k.count),
    )


def chain_of(card: Card) -> Chain:
    if card.chain is None:
        raise refusal("card.json, chain", "none", f"one, in a card of kind {card.kind}")
    return card.chain


def chain_difference(card: Card, directory: Path) -> str | None:
    """Why the plans cannot run on what is installed; each says itself which release made it."""
    if card.chain is None or not card.chain.compiled:
        return None
    flavour = card.chain.flavour
    assert flavour != "none"
    installed = library_version(flavour)
    if installed is None:
        return f"libraries, {LIBRARY[flavour]}: it is not installed; {REMEDY}."
    for name in (file.name for file in card.files if file.name.endswith(".plan")):
        try:
            found = release_in(directory / name)
        except (OSError, PrepareError) as error:
            return f"{name}: found no plan ({error}), expected one; prepare the engine again."
        if found != installed:
            return (
                f"{name}: release {found} of TensorRT made it, installed is {installed}, and no "
                f"release runs another's plans; prepare the engine again, or "
                f"pip install {LIBRARY[flavour]}=={found}."
            )
    return None
