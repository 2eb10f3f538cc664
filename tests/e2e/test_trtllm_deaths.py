"""An engine of TensorRT-LLM dies under 64 streams, in each way that the package's sources know.

How long each takes with the real bounds is printed by `python -m scripts.engine_deaths`. Budget:
30 s on one core, most of it processes that begin.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest

from tests.support.deaths import DEATHS, STREAMS, Death, failed_start, seen, stopped
from trt_responses.engines.remote.process import Patience
from trt_responses.engines.trtllm.liveness import Patience as Liveness

HASTY = Patience(silence_s=4.0, first_backoff_s=0.01)
PATIENT = Patience(silence_s=60.0, first_backoff_s=0.01)
"""Where a busy machine's silence is not what is asked for."""
LIVELY = Liveness(probe_every_s=1.5, first_probe_s=0.5, probe_timeout_s=1.5)
REASONS = {
    "a rank fails: KeyError": "KeyError: 'a rank has failed'",
    "a rank is killed, no error comes, calls block": "no heartbeat for 4 s",
    "a rank is frozen": "no token within 1.5 s",
}


@pytest.mark.early(30)
@pytest.mark.parametrize(
    "death",
    [death for death in DEATHS if death.name in REASONS],
    ids=["failed", "killed", "frozen"],
)
def test_a_rank_that_dies_ends_all_streams_with_a_reason_and_the_engine_comes_back(
    death: Death,
) -> None:
    reason = REASONS[death.name]
    patience = HASTY if "no heartbeat" in reason else PATIENT
    liveness = LIVELY if "no token" in reason else replace(LIVELY, probe_timeout_s=30.0)
    found = asyncio.run(seen(death, patience, liveness))
    assert found.lost_streams == STREAMS
    assert len(found.reasons) == 1
    assert reason in found.reasons.pop()
    assert found.live_statuses == {200}
    assert not found.rank_is_left


def test_a_stop_waits_for_no_rank() -> None:
    """The package's own end, and what it leaves for the interpreter's, would wait for ever."""
    seconds, reasons = asyncio.run(stopped(signal.SIGSTOP, 0.5))
    assert reasons == {"The engine has been stopped."}
    assert seconds < 60


def test_a_rank_that_dies_while_it_loads_says_its_root_cause() -> None:
    _, why = asyncio.run(failed_start("KeyError", 60))
    assert why == "TensorRT-LLM cannot start: KeyError: 'a rank has failed'"


def test_a_rank_that_dies_while_it_loads_and_says_nothing_ends_the_start_in_time() -> None:
    _, why = asyncio.run(failed_start(None, 2))
    assert why == "The engine did not load within 2 s."
