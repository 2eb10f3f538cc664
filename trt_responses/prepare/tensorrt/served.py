"""Whether compiled plans can run on what is installed: each says itself which release made it.

Knows cards and the heads of plans; loads no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.tensorrt.binding import LIBRARY, REMEDY, library_version
from trt_responses.prepare.tensorrt.plan_file import release_in

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.card import Card


def chain_difference(card: Card, directory: Path) -> str | None:
    """The first plan that the installed library cannot run, with the remedy; None if all can."""
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
