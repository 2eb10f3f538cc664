"""The line before the slots: who begins next, and when an adapter's turn ends.

Budget: 1 s on one core.
"""

from __future__ import annotations

from trt_responses.engine import Chunk, GenerateOptions, Guide
from trt_responses.engines.llamacpp.body import resumed, words
from trt_responses.engines.llamacpp.line import TURN_IDS, Line
from trt_responses.engines.llamacpp.request import Request


def request(adapter: str | None = None, *, given: int = 0, guided: bool = False) -> Request:
    guide = Guide("regex", "a") if guided else None
    options = GenerateOptions(100, (), adapter=adapter, guide=guide)

    made = Request(
        (1,),
        options,
        words((1,), options, 100, 0, adapters=("a", "b")),
        Quiet(),
        on_over=lambda request: None,
        on_begun=lambda request: None,
        on_broken=lambda request, reason: None,
    )
    made.ids += range(given)
    return made


class Quiet:
    def push(self, chunk: Chunk, /) -> None: ...


def begun(line: Line, *, idle: bool = True) -> list[Request]:
    """Those that begin now, as long as there are slots for all."""
    found: list[Request] = []
    while (first := line.first(idle=idle and not found)) is not None:
        line.take()
        found.append(first)
    return found


def test_without_adapters_it_goes_by_priority_and_then_by_arrival() -> None:
    line, plain, late, urgent = Line(), request(), request(), request()
    for each, priority in ((plain, 0.5), (urgent, 1.0), (late, 0.5)):
        line.put(each, priority)
    assert not line.is_contended
    assert begun(line) == [urgent, plain, late]
    assert begun(line) == []


def test_who_wants_another_adapter_waits_until_none_runs_and_then_all_of_it_begin() -> None:
    line, base, one, two = Line(), request(), request("a"), request("a")
    for each in (base, one, two):
        line.put(each, 0.5)
    assert begun(line) == [base]
    assert line.is_contended
    assert begun(line, idle=False) == []
    assert begun(line) == [one, two]
    assert line.adapter == "a"


def test_a_turn_that_ends_stops_whom_it_may_and_takes_nobody_more() -> None:
    line, other, late = Line(), request("a"), request()
    running = [
        request(given=TURN_IDS),
        request(given=TURN_IDS - 1),  # its prompt may have been read for these
        request(given=TURN_IDS, guided=True),  # a guide cannot be entered half-way
        request(given=0),
    ]
    line.put(other, 0.5)
    assert line.end_turn(running) == running[:1]
    line.put(running[0], 1.0)
    line.put(late, 0.5)
    assert begun(line, idle=False) == []
    assert begun(line) == [other]
    assert begun(line) == [running[0], late]


def test_turns_go_round_however_many_come() -> None:
    line, order = Line(), []
    for _ in range(7):
        for adapter in (None, "a", "b"):
            line.put(request(adapter), 0.5)
        assert begun(line)
        order.append(line.adapter)
        line.end_turn([])
    assert order == [None, "a", "b", None, "a", "b", None]


def test_a_body_says_every_adapter_on_or_off() -> None:
    """One that says none is answered from what another one left in the slot's cache."""
    for adapter, scales in ((None, [0.0, 0.0]), ("a", [1.0, 0.0]), ("b", [0.0, 1.0])):
        options = GenerateOptions(1, (), adapter=adapter)
        said = words((1,), options, 1, 0, adapters=("a", "b"))["lora"]
        assert said == [{"id": n, "scale": scale} for n, scale in enumerate(scales)]
        whole = words((1,), options, 9, 0, adapters=("a", "b"))
        assert resumed(whole, [5])["lora"] == said
    assert "lora" not in words((1,), GenerateOptions(1, ()), 1, 0)
