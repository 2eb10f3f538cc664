"""Fixtures of the tests that drive one part at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trt_responses.harmony.dialect import harmony

if TYPE_CHECKING:
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.tokens.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def tables(vocabulary: Vocabulary) -> Tables:
    return harmony(vocabulary).tables
