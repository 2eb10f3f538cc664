"""The extras of the package: `all` holds every one that a machine without a GPU can use."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution

from packaging.requirements import Requirement

from tests.support.imports import ROOT

EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
]["optional-dependencies"]
APART = {"all", "trtllm", "demo-train"}
"""`all` itself, what needs a GPU and another index, and what only trains."""


def test_all_takes_up_every_extra_but_those_for_gpus_and_training() -> None:
    (one,) = EXTRAS["all"]
    taken = re.fullmatch(r"trt-responses\[([a-z,-]+)\]", one)
    assert taken is not None
    assert set(EXTRAS) - APART <= set(taken[1].split(","))
    assert not APART & set(taken[1].split(","))


def test_the_readme_names_every_extra() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in set(EXTRAS) - {"demo-train"}:
        assert f"`{name}`" in readme, name


def test_nothing_that_the_tools_bring_is_under_the_gpl() -> None:
    """Neither what an extra names nor what that needs; the LGPL is named by its first letter."""
    waiting = [Requirement(one).name for extra in ("browser", "mcp") for one in EXTRAS[extra]]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop().lower()
        if name in seen:
            continue
        seen.add(name)
        there = distribution(name)
        named = ("License-Expression", "License")
        said = [there.metadata[key] for key in named if key in there.metadata]
        said += [c for c in there.metadata.get_all("Classifier") or [] if c.startswith("License")]
        short = " ".join(line.split("\n")[0] for line in said)
        assert short, name
        assert not re.search(r"\bA?GPL|Affero|GNU General", short), (name, short)
        needs = map(Requirement, there.requires or ())
        waiting += [n.name for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    assert len(seen) > 10
