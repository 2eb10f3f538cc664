"""Fixtures that every kind of test uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from trt_responses.tokens.vocabulary import Vocabulary

pytest.register_assert_rewrite("tests.support")


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return vocabularies.load()
