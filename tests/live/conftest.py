"""What the live tests run on; without it they are skipped, and say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.needs import CHECKPOINT, missing


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    if why := missing():
        pytest.skip(why)
    return Path(os.environ[CHECKPOINT])
