"""A test uses what the code offers; where it goes around that, it says why."""

from __future__ import annotations

import pytest

from tests.support.bypasses import bypasses, bypasses_in
from tests.support.imports import ROOT, modules


@pytest.mark.xdist_group("sources")  # each file is read once
def test_every_private_name_patch_and_sleep_has_a_reason() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.name} needs a comment `# {one.kind}: REASON`"
        for path in modules("tests").values()
        for one in bypasses_in(path)
        if not one.has_reason
    ]
    assert faults == []


# --- the check refuses ----------------------------------------------------------------------------


def found(source: str) -> list[tuple[str, bool]]:
    return [(one.kind, one.has_reason) for one in bypasses(source)]


@pytest.mark.parametrize(
    "source",
    [
        "store._records",
        "store._records = {}",
        "pair.store._jobs.clear()",
        "from trt_responses.engines import _away",
        "from openai.lib._models import x",
        "import openai._client",
        "getattr(store, '_records')",
    ],
)
def test_a_private_name_of_another_file_is_found(source: str) -> None:
    assert found(source) == [("private", False)]


@pytest.mark.parametrize(
    "source",
    [
        "self._records",
        "store.__class__.__name__",
        "row._replace(length=2)",
        "os._exit(1)",
        "class Own:\n    def __init__(self):\n        self._x = 1\nOwn()._x",
        "class Own:\n    def _x(self): ...\nOwn()._x()",
        "class Own:\n    _x: int\nown._x",
        "from __future__ import annotations",
    ],
)
def test_a_private_name_of_the_file_itself_is_not(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "monkeypatch.setattr('trt_responses.app.GRACE_S', 0)",
        "import trt_responses.app as app\nmonkeypatch.setattr(app, 'GRACE_S', 0)",
        "from trt_responses import app\napp.GRACE_S = 0",
        "from trt_responses import app\ndel app.GRACE_S",
        "monkeypatch.setattr(engine, 'start', None)",
        "monkeypatch.setattr(engine, '_start', None)",
        "monkeypatch.setitem(app.TABLE, 'x', None)",
        "from unittest.mock import patch",
        "from unittest import mock",
        "engine.start = started  # type: ignore[method-assign]",
    ],
)
def test_a_patch_is_found(source: str) -> None:
    assert found(source) == [("patched", False)]


@pytest.mark.parametrize(
    "source",
    [
        "monkeypatch.setenv('HOME', '/x')",
        "import sys\nmonkeypatch.setitem(sys.modules, 'grpc', None)",
        "engine.clock.mode = 'free'",
        "setattr(result, name, value)",
    ],
)
def test_what_a_process_is_given_and_an_object_lets_be_set_is_no_patch(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "from time import sleep\nsleep(1)",
        "import asyncio as a\nasync def f():\n    await a.sleep(0)",
        "import anyio\nasync def f():\n    await anyio.sleep(0)",
    ],
)
def test_a_sleep_is_found(source: str) -> None:
    assert found(source) == [("slept", False)]


def test_a_clock_that_a_test_moves_does_not_sleep() -> None:
    assert found("async def f():\n    await ticks.sleep(1)") == []


@pytest.mark.parametrize(
    ("source", "has_reason"),
    [
        ("store._records  # private: a `get` would change it", True),
        ("# private: a `get` would change it\nstore._records", True),
        ("call(\n    store._records,  # private: a `get` would change it\n)", True),
        ("# private: a `get` would change it\n\nstore._records", False),
        ("store._records  # private:", False),
        ("store._records  # patched: not this", False),
        ("store._records  # noqa: SLF001", False),
    ],
)
def test_a_reason_stands_on_the_line_or_above_it_and_names_the_kind(
    source: str, has_reason: bool
) -> None:
    assert found(source) == [("private", has_reason)]
