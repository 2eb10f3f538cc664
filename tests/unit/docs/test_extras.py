"""The extras of the package: `all` holds every one that a machine without a GPU can use."""

from __future__ import annotations

import re
import tomllib

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
