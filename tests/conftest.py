"""Fixtures that every kind of test uses."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.suites import ALL, SUITES, Suite
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


SUITE = pytest.StashKey[Suite]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suite", choices=SUITES, default=ALL, help="a part: see tests/suites.py")
    parser.addoption("--room", help="the tests of one room of the package, such as cli")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUITE] = Suite(config.getoption("suite"), config.getoption("room"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if config.stash[SUITE].has_file(collection_path) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    suite, left_out = config.stash[SUITE], []
    for item in items.copy():
        name, slow = item.name.partition("[")[0], item.get_closest_marker("slow") is not None
        if not suite.has_test(item.path, name, slow=slow):
            items.remove(item)
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Keep all modules out of the garbage collector: each full collection would walk them again."""
    gc.collect()
    gc.freeze()


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
