"""Fixtures that every kind of test uses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.tokens.vocabulary import Vocabulary

pytest.register_assert_rewrite("tests.support")

# The same examples in each run, however busy the machine is.
settings.register_profile(
    "everywhere",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("everywhere")
providers._get_local_constants = lambda: providers._local_constants
"""Without this, constants of those modules that happen to be imported go into the examples."""


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return vocabularies.load()


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A client may set the level of the log, which is the process's: the next test has its own."""
    log = logging.getLogger("trt_responses")
    before = log.level
    yield
    log.setLevel(before)
