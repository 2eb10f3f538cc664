"""What the tests of this engine leave to no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trt_responses.engines.tensorrt.guides import tokeniser

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def let_go_of_the_tokeniser() -> Iterator[None]:
    """llguidance's takes 80 MB."""
    yield
    tokeniser.cache_clear()
