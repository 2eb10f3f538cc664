"""Compiled plans: the release that compiled each, and whether the installed library runs it.
Reads a plan's head and the versions of installed packages; loads no library and needs no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.hardware import installed_version
from trt_responses.prepare.shelf.card import Card
from trt_responses.prepare.shelf.chain import Flavour

LIBRARY: Mapping[Flavour, str] = {
    "rtx": "tensorrt_rtx_cu13_libs",
    "enterprise": "tensorrt_cu13_libs",
}
"""The distribution whose version is in a plan's head. No other version runs the plan."""
REMEDY = "install the extra: pip install 'trt-responses[tensorrt]'"
MAGIC = b"vtrt"
VERSION_AT = slice(24, 28)
"""The place of the version in a plan, measured on 1.7.1.116, which writes 1, 7, 1, 116 there."""
HEAD_BYTES = VERSION_AT.stop


def release_in(path: Path) -> str:
    """The release that compiled a plan, such as `1.7.1.116`, from its head."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES or head[:4] != MAGIC:
        raise refusal(path.name, f"a head of {head[:4]!r}", f"{MAGIC!r}, a plan of TensorRT-RTX")
    return ".".join(map(str, head[VERSION_AT]))


def chain_difference(card: Card, directory: Path) -> str | None:
    """The first plan that the installed library cannot run, with the remedy; None if all can."""
    if card.chain is None or not card.chain.compiled:
        return None
    flavour = card.chain.flavour
    assert flavour != "none"
    installed = installed_version(LIBRARY[flavour])
    if installed is None:
        return f"libraries: {LIBRARY[flavour]} is not installed; {REMEDY}."
    for name in (file.name for file in card.files if file.name.endswith(".plan")):
        try:
            found = release_in(directory / name)
        except (OSError, PrepareError) as error:
            return f"{name}: found no plan ({error}), expected one; prepare the engine again."
        if found != installed:
            return (
                f"{name}: compiled by TensorRT {found}, installed is {installed}, and no release "
                f"runs the plans of another; prepare the engine again, or "
                f"pip install {LIBRARY[flavour]}=={found}."
            )
    return None
