"""First of all: is the installed package the one that the contract describes?"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from tests.support.differences import changes, differences
from trt_responses.engines.trtllm.engine import installed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.double.contract import Version

pytestmark = pytest.mark.gpu


def test_the_packages_signatures_are_the_contracts(checkpoint: Path) -> None:
    package = installed()
    version: Version = "1.2.1" if package.version.startswith("1.2.") else "main"
    call = getattr(package.llm, "generate_async", None)
    assert differences(package, call, version) == []
    if found := changes(package, version):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("; ".join(found), stacklevel=1)
