"""What a slow front end has yet to get: nothing is lost, each request's order stays, and new
requests do not wait behind old ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trt_responses.engine import Chunk
from trt_responses.engines.remote.behind import MOST_IDS, Behind

NUMBER = st.integers(1, 3)
IDS = st.lists(st.integers(0, 9), max_size=3 * MOST_IDS).map(tuple)
CHUNK = st.tuples(IDS, st.just(()), st.none() | st.just(5)).map(lambda parts: Chunk(*parts))
ACTION = st.tuples(NUMBER, CHUNK) | st.none()
"""A chunk is kept, or some are taken."""


@given(st.lists(ACTION, max_size=20))
def test_each_request_gets_its_ids_in_order_and_the_size_ends_at_nothing(
    actions: list[tuple[int, Chunk] | None],
) -> None:
    behind, sent, got = Behind(), dict[int, list[object]](), dict[int, list[object]]()

    def note(noted: dict[int, list[object]], number: int, chunk: Chunk) -> None:
        cached = [] if chunk.cached_tokens is None else [("cached", chunk.cached_tokens)]
        noted.setdefault(number, []).extend((*cached, *chunk.token_ids))

    def take() -> None:
        for number, chunk in behind.take():
            note(got, number, chunk)

    for action in actions:
        if action is None:
            take()
        else:
            behind.add(*action)
            note(sent, *action)
    while behind:
        take()
    assert behind.size_bytes == 0
    assert {n: ids for n, ids in got.items() if ids} == {n: ids for n, ids in sent.items() if ids}


def test_a_new_request_is_first_and_no_other_has_more_than_its_part() -> None:
    behind = Behind()
    for number in range(64):
        behind.add_ids(number, range(1000))
    behind.add(99, Chunk((7,), cached_tokens=3))
    first, *others = behind.take()
    assert first == (99, Chunk((7,), cached_tokens=3))
    assert {number for number, _ in others} == set(range(64))
    assert all(len(chunk.token_ids) == MOST_IDS for _, chunk in others)


def test_an_end_comes_behind_all_ids_of_its_request() -> None:
    behind = Behind()
    behind.add_ids(1, range(MOST_IDS + 1))
    behind.add(1, Chunk((), finish="stop"))
    assert [chunk.finish for _, chunk in behind.take()] == [None]
    assert [chunk.finish for _, chunk in behind.take()] == [None, "stop"]
    assert not behind


def test_what_an_aborted_request_has_not_sent_is_forgotten() -> None:
    behind = Behind()
    behind.add_ids(1, range(100))
    behind.add(1, Chunk((1,), finish="stop"))
    behind.drop(1)
    behind.drop(2)
    assert not behind
    assert behind.size_bytes == 0
