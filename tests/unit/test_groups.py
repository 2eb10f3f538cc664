"""A group of tests stays in one process, so that what its fixtures make is made once."""

from __future__ import annotations

import pytest

GROUP = "a group"


@pytest.mark.xdist_group(GROUP)
def test_a_group_is_named_where_the_scheduler_reads_it(request: pytest.FixtureRequest) -> None:
    """pytest-xdist sets a private attribute, which pytest 9.2 no longer reads."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("all tests run in one process, or go to any")
    assert request.node.nodeid.endswith(f"@{GROUP}")
