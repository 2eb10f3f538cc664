"""Who runs code: the user that runs the tests, and an ordinary one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.support.attacks import Places
from tests.support.boxed import Outsider, outsider

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["server's user", "nobody"])
def user(request: pytest.FixtureRequest) -> Outsider | None:
    """An outsider, or nothing for the user that runs the tests."""
    if request.param != "nobody":
        return None
    found = outsider()
    if found is None:
        pytest.skip("the tests cannot become another user, or it has no interpreter to run")
    return found


@pytest.fixture
def places(user: Outsider | None) -> Iterator[Places]:
    """They do not stand in pytest's own directory, which every pytest that starts shuts to
    outsiders."""
    with TemporaryDirectory() as made:
        yield Places(Path(made), None if user is None else user.uid)
