"""The short form of `make faults`: each of its rows hurts a real server, and nothing is lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from scripts.faults.__main__ import short_acts

if TYPE_CHECKING:
    from functools import partial
    from pathlib import Path

    from scripts.faults.servers import Row

ACTS = short_acts(random.Random(1))


def name(act: partial[Row]) -> str:
    return "-".join([act.func.__name__, *(str(v) for k, v in act.keywords.items() if k == "kind")])


@pytest.mark.early(12)
@pytest.mark.parametrize("act", ACTS, ids=name)
def test_nothing_that_was_acknowledged_is_lost(act: partial[Row], tmp_path: Path) -> None:
    row = act(tmp_path)
    if row.skipped is not None:
        pytest.skip(row.skipped)
    assert row.lost == []
    assert row.tried
    assert row.acknowledged
