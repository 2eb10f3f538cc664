"""The names by which clients ask: of the model, of its versions, of its adapters.

Budget: 0.1 s on one core.
"""

from __future__ import annotations

import pytest

from tests.support.scripted.engine import ScriptedEngine
from trt_responses.errors import NotFound
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.features.rollout.names import VersionNames


def loaded(number: int, *adapters: str) -> Loaded:
    engine = ScriptedEngine([], adapters=adapters)
    return Loaded(Version("demo", "scripted", number, f"{number:012x}"), engine)


NAMES = VersionNames("demo", ("gpt:5",), loaded=lambda: (loaded(1, "old"), loaded(2, "old", "new")))


@pytest.mark.parametrize(
    ("asked", "base", "adapter"),
    [
        ("demo", "demo", None),
        ("gpt:5", "gpt:5", None),
        ("demo@2", "demo@2", None),
        ("demo:new", "demo", "new"),
        ("gpt:5:old", "gpt:5", "old"),
        ("demo@1:old", "demo@1", "old"),
        ("demo@000000000002:new", "demo@000000000002", "new"),
    ],
)
def test_a_name_is_a_models_and_may_be_an_adapters(
    asked: str, base: str, adapter: str | None
) -> None:
    NAMES.check(asked)
    assert NAMES.split(asked) == NAMES.wanted(asked) == (base, adapter)


@pytest.mark.parametrize("asked", ["demo:", "demo:other", "demo@1:new", "gpt:5:", "demo:new:new"])
def test_an_unknown_adapter_is_never_answered_by_the_model_itself(asked: str) -> None:
    """Also of a request that another server has checked."""
    for judged in (NAMES.check, NAMES.wanted):
        with pytest.raises(NotFound, match="does not exist"):
            judged(asked)


def test_a_version_that_is_gone_is_answered_by_another_and_an_unknown_model_is_refused() -> None:
    assert NAMES.wanted("demo@7") == ("demo@7", None)
    for name in ("demo@7", "other", "other:new"):
        with pytest.raises(NotFound):
            NAMES.check(name)
    NAMES.check("")
    assert NAMES.wanted("") == (NAMES.served, None), "an absent model is the served one"


def test_the_adapters_of_all_versions_are_listed_once() -> None:
    assert NAMES.adapters == ("demo:old", "demo:new")
