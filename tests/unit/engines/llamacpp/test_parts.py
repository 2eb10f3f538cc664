"""What the embedded engine says and reads, and which slot and prompt it chooses: no process."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gather import Gather
from trt_responses.engine import Chunk, GenerateOptions, Guide, Logprob
from trt_responses.engines.grammar import grammar
from trt_responses.engines.llamacpp import body
from trt_responses.engines.llamacpp.blame import Blame
from trt_responses.engines.llamacpp.body import Words, words
from trt_responses.engines.llamacpp.events import Events, fault
from trt_responses.engines.llamacpp.quarantine import Charge, Quarantine
from trt_responses.engines.llamacpp.request import Request
from trt_responses.engines.slots import Slot, Slots, common_prefix
from trt_responses.errors import InvalidRequest
from trt_responses.frozen import replace
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable

FREE = GenerateOptions(10, ())


def said(options: GenerateOptions) -> Words:
    slot = Slot(3, reusable=False)
    sent: Words = orjson.loads(body.body(words((1, 2), options, 5, seed=9), slot))
    return sent


def test_the_control_ids_it_knows_are_harmonys() -> None:
    assert CONTROL.endoftext == body.END_OF_TEXT
    stops = {CONTROL.endoftext, CONTROL.return_, CONTROL.call}
    assert stops == body.STOPS_BY_ITSELF
    assert range(FIRST_CONTROL_ID, VOCABULARY_SIZE) == body.CONTROL_IDS


def test_everything_that_samples_is_said() -> None:
    assert said(GenerateOptions(10, (), 0.7, 0.9, 40, 0.1, 0.2, 0.3)) == {
        "prompt": [1, 2],
        "id_slot": 3,
        "cache_prompt": False,
        "n_predict": 5,
        "stream": True,
        "return_tokens": True,
        "return_progress": True,
        "response_fields": ["tokens", "stop_type", "tokens_predicted"],
        "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repeat_penalty": 1.0,
        "repeat_last_n": 7,
        "seed": 9,
        "n_probs": 0,
        "logit_bias": [],
        "ignore_eos": False,
        "stop": [],
        "grammar": "",
    }


def test_a_repetition_is_penalised_over_the_whole_context_and_biases_stand_before_bans() -> None:
    wish = GenerateOptions(
        10, (), repetition_penalty=1.5, logit_bias=((7, 2.0),), banned_ids=(7, 8)
    )
    sent = said(wish)
    assert (sent["repeat_penalty"], sent["repeat_last_n"]) == (1.5, 7)
    assert sent["logit_bias"] == [[7, 2.0], [7, False], [8, False]]


def test_no_default_of_the_servers_shows() -> None:
    plain = said(FREE)
    assert (plain["temperature"], plain["top_p"], plain["min_p"], plain["top_k"]) == (1, 1, 0, 0)


def test_temperature_0_takes_the_likeliest() -> None:
    sent = said(GenerateOptions(10, (), temperature=0.0))
    assert (sent["samplers"], sent["top_k"]) == (["penalties", "top_k"], 1)


def test_a_seed_is_never_the_one_that_means_any() -> None:
    assert words((1,), FREE, 1, seed=0xFFFF_FFFF)["seed"] == 0
    assert words((1,), FREE, 1, seed=-1)["seed"] != 0xFFFF_FFFF


def test_a_guide_is_spelled_as_the_model_file_spells() -> None:
    options = GenerateOptions(1, (), guide=Guide("json_schema", '{"const":"x"}'))
    told = words((1,), options, 1, 0, lambda text: text.replace('"x"', '"y"'))
    assert '"const":"y"' in str(told["grammar"])


def test_control_ids_are_banned_inside_a_guide_but_for_its_end() -> None:
    sent = said(GenerateOptions(10, (), guide=Guide("regex", "a"), banned_ids=(7,)))
    banned = {token_id for token_id, bias in sent["logit_bias"] if bias is False}  # type: ignore[attr-defined]
    assert banned == {7, *range(FIRST_CONTROL_ID, VOCABULARY_SIZE)} - {CONTROL.endoftext}


@pytest.mark.parametrize(
    ("pattern", "lark"), [("a/b", r"/a\/b/"), (r"a\/b", r"/a\/b/"), (r"\\/", r"/\\\//")]
)
def test_a_pattern_stays_between_its_slashes(pattern: str, lark: str) -> None:
    assert grammar(Guide("regex", pattern)) == "%llguidance {}\nstart: " + lark


def event(**fields: object) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def tokens(*ids: int, start: int = 0) -> bytes:
    return b"".join(
        event(tokens=[token_id], tokens_predicted=start + n)
        for n, token_id in enumerate(ids, start=1)
    )


PROGRESS = event(tokens=[0], tokens_predicted=0, prompt_progress={"cache": 4})


def read(parts: Iterable[bytes], options: GenerateOptions = FREE) -> list[Chunk]:
    events = Events(options)
    chunks: list[Chunk] = []
    for part in parts:
        chunk = events.feed(part)
        if chunk is not None:
            chunks.append(chunk)
            if chunk.finish is not None:
                break
    return chunks


def test_what_comes_together_is_one_chunk_and_the_cached_count_is_on_the_first() -> None:
    end = event(tokens=[], stop_type="limit", tokens_predicted=3)
    assert read([PROGRESS, tokens(5, 6), tokens(7, start=2) + end]) == [
        Chunk([5, 6], [], 4),
        Chunk([7], [], None, "length"),
    ]


@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    stream = PROGRESS + tokens(5, 6, 7) + event(tokens=[], stop_type="limit", tokens_predicted=3)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = read(stream[one:other] for one, other in itertools.pairwise(edges))
    assert [token_id for chunk in chunks for token_id in chunk.token_ids] == [5, 6, 7]
    assert [chunk.cached_tokens for chunk in chunks if chunk.token_ids][:1] == [4]
    assert [chunk.finish for chunk in chunks if chunk.finish] == ["length"]


def test_ids_after_a_stop_id_are_discarded_with_their_logprobs() -> None:
    entry = {"id": 6, "logprob": -1.0, "top_logprobs": [{"id": 9, "logprob": -0.5}]}
    both = [entry, {**entry, "id": 5}]
    stop = event(tokens=[6, 5], tokens_predicted=2, completion_probabilities=both)
    wish = GenerateOptions(10, (6,), logprobs=1)
    assert read([stop + tokens(7, 8, start=2)], wish) == [
        Chunk([6], [Logprob(6, -1.0, ((9, -0.5),))], None, "stop", 6)
    ]


@pytest.mark.parametrize("stop_id", [CONTROL.return_, CONTROL.call, CONTROL.endoftext])
def test_an_id_at_which_llama_cpp_stops_is_named_unasked(stop_id: int) -> None:
    assert read([tokens(5, stop_id)])[-1].stop_id == stop_id


def test_an_id_that_was_withheld_is_an_error_and_never_a_gap() -> None:
    told = read([tokens(5), tokens(6, start=3)])[-1]
    assert told.finish == "error"
    assert "withheld" in (told.error or "")


def test_an_error_event_ends_the_request() -> None:
    told = read([event(error={"message": "no memory"})])[-1]
    assert (told.finish, told.error) == ("error", "no memory")


def test_a_refusal_is_one_sentence_whatever_its_body() -> None:
    assert "too long" in fault(b'{"error":{"message":"too long"}}', 400)
    assert "status 500" in fault(b"<html>", 500)
    assert "status 500" in fault(b"[]", 500)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_the_common_prefix_is_what_a_loop_finds(same: int, one: int, other: int) -> None:
    draw = random.Random(same)
    start = [draw.randrange(9) for _ in range(same)]
    assert common_prefix(start + [10] * one, start + [11] * other) == same
    assert common_prefix(start, start + [11] * other) == same


def test_a_continuation_finds_its_slot_and_a_new_prompt_the_oldest() -> None:
    slots = Slots(2)
    first, second = slots.take([1, 2, 3, 4], None), slots.take([9, 9, 9, 9], None)
    assert not slots
    slots.give_back(first, [5, 6])
    slots.give_back(second, [])
    again = slots.take([9, 9, 9, 9, 1], None)
    assert again is second
    slots.give_back(again, [])
    assert slots.take([1, 2, 3, 4, 5, 6, 7], None) is first
    slots.give_back(first, [])
    assert slots.take([7, 7, 7], None) is second


def test_a_short_common_start_is_no_reason_to_lose_a_long_conversation() -> None:
    slots = Slots(2)
    slots.give_back(slots.take([1, 2, *range(100, 200)], None), [])
    assert slots.take([1, 2, *range(300, 400)], None).number == 1


def test_of_slots_that_know_as_much_the_latest_used_is_taken() -> None:
    slots = Slots(3)
    taken = [slots.take([1, 2, 3], None) for _ in range(3)]
    for slot in (taken[2], taken[0], taken[1]):
        slots.give_back(slot, [])
    assert slots.take([1, 2, 3], None) is taken[1]


def test_another_owner_may_not_use_the_cache() -> None:
    slots = Slots(1)
    reusable = []
    for owner in ("a", "a", "b", None, "b", "b"):
        slot = slots.take([1, 2, 3], owner)
        reusable.append(slot.reusable)
        slots.give_back(slot, [])
    assert reusable == [False, True, False, False, False, True]


def prompts(quarantine: Quarantine, count: int) -> list[Charge]:
    return [quarantine.charge([n], None) for n in range(count)]


def test_two_deaths_quarantine_a_prompt_and_an_answer_acquits_it() -> None:
    quarantine = Quarantine()
    one, two = prompts(quarantine, 2)
    for charge in (one, two, two):
        quarantine.blame(charge)
    assert quarantine.refusal(one) is None
    refusal = quarantine.refusal(two)
    assert refusal is not None
    assert refusal.code == "prompt_quarantined"
    assert two.digest in refusal.message
    quarantine.acquit(one)
    quarantine.blame(one)
    assert quarantine.refusal(one) is None


def test_the_quarantine_forgets_the_oldest() -> None:
    quarantine = Quarantine(deaths=1, kept=2)
    first, *others = prompts(quarantine, 3)
    for charge in (first, *others):
        quarantine.blame(charge)
    assert quarantine.refusal(first) is None
    assert all(quarantine.refusal(charge) for charge in others)


def test_a_guide_is_charged_whatever_the_prompt_until_it_has_given_an_id() -> None:
    quarantine, guide = Quarantine(), Guide("regex", "a")
    assert quarantine.charge([1], guide) == quarantine.charge([2], guide)
    assert quarantine.charge([1], guide) != quarantine.charge([1], Guide("json_schema", "a"))
    for _ in range(2):
        quarantine.blame(quarantine.charge([1], guide))
    refusal = quarantine.refusal(quarantine.charge([2], guide))
    assert refusal is not None
    assert (refusal.code, refusal.param) == ("guide_quarantined", None)
    quarantine.prove(guide)
    assert quarantine.charge([1], guide) == quarantine.charge([1], None)


class Asked(Gather):
    """One request that no child works on yet."""

    def __init__(self, owner: str | None = None, guide: Guide | None = None, *ids: int) -> None:
        super().__init__()
        options = GenerateOptions(10, (), cache_salt=owner, guide=guide)
        prompt = ids or (id(self),)
        self.request = Request(
            prompt,
            options,
            words(prompt, options, 10, 0),
            self,
            on_over=lambda request: None,
            on_begun=lambda request: None,
            on_broken=lambda request, reason: None,
        )

    def spoke(self) -> Asked:
        self.request.silent = False
        self.request.ids.append(1)
        return self


def judged(blame: Blame, *asked: Asked) -> tuple[bool, list[bool]]:
    """Whether the engine is excused, and which requests go on."""
    requests = [each.request for each in asked]
    excused = blame.judge(requests)
    return excused, [blame.why_not(request) is None for request in requests]


GUIDE = Guide("regex", "a")


def test_the_silent_are_blamed_and_those_that_spoke_go_on_for_ever() -> None:
    blame, free, silent = Blame(), Asked("one").spoke(), Asked("two")
    assert judged(blame, free, silent) == (False, [True, True])
    assert judged(blame, free, silent) == (True, [True, False])
    assert judged(blame, free, Asked("two")) == (True, [True, True])


def test_a_guide_that_spoke_is_blamed_when_nobody_is_silent_and_cannot_go_on() -> None:
    blame, free, guided = Blame(), Asked("one").spoke(), Asked("two", GUIDE).spoke()
    assert judged(blame, free, guided) == (False, [True, False])
    why = blame.refusal([5], replace(FREE, guide=GUIDE))
    assert why is None
    judged(blame, Asked("two", GUIDE))
    assert blame.refusal([5], replace(FREE, guide=GUIDE)) is not None
    assert blame.refusal([5], FREE) is None


def test_each_owner_excuses_no_first_death_and_every_other_until_an_answer() -> None:
    blame = Blame()
    owners = ("a", "a", "b", "a", "b")
    assert [judged(blame, Asked(owner))[0] for owner in owners] == [False, True, False, True, True]
    blame.answered(Asked("c").request)
    assert judged(blame, Asked("a"))[0] is False


def test_deaths_of_an_idle_engine_or_of_free_runs_in_the_middle_are_its_own() -> None:
    blame = Blame()
    for _ in range(3):
        assert judged(blame)[0] is False
        assert judged(blame, Asked("a").spoke())[0] is False


def test_who_stalled_and_is_to_blame_is_not_tried_again() -> None:
    blame, stalled, free = Blame(), Asked("one"), Asked("two").spoke()
    stalled.request.stalled = free.request.stalled = True
    assert judged(blame, stalled, free)[1] == [False, True]


def test_a_suspect_takes_its_first_step_alone() -> None:
    blame, suspect, fresh = Blame(), Asked(None, None, 7), Asked()
    assert blame.allows(suspect.request, [fresh.request])
    judged(blame, suspect)
    again = Asked(None, None, 7)
    assert not blame.allows(again.request, [fresh.request])
    assert not blame.allows(fresh.request, [again.request])
    assert blame.allows(fresh.request, [Asked().request])
    assert blame.allows(again.request, [fresh.spoke().request])
    blame.answered(again.request)
    assert blame.allows(again.request, [Asked().request])


@pytest.mark.parametrize("number", ["-9223372036854775807", "-9223372036854775808", "-9.3e18"])
@pytest.mark.parametrize(
    "schema", ['{"const":%s}', '{"enum":[1,{"a":[%s]}]}', '{"not":{"const":%s}}']
)
def test_a_number_that_kills_never_reaches_an_engine(schema: str, number: str) -> None:
    said = schema % number
    if float(number) == -(2.0**63):
        with pytest.raises(InvalidRequest, match="number"):
            grammar(Guide("json_schema", said))
    else:
        assert "9.3e18" in grammar(Guide("json_schema", said)).replace("+", "")


def test_a_schema_that_cannot_be_written_again_is_refused() -> None:
    deep = '{"items":' * 500 + "{}" + "}" * 500
    with pytest.raises(InvalidRequest, match="deep"):
        grammar(Guide("json_schema", deep))


def test_a_penalty_looks_at_the_prompt_and_all_that_may_follow() -> None:
    assert said(GenerateOptions(10, (), frequency_penalty=0.5))["repeat_last_n"] == 2 + 5


def test_another_child_goes_on_behind_what_was_pushed() -> None:
    first = words((1, 2), FREE, 10, seed=9)
    again = body.resumed(first, [3, 4, 5])
    assert (again["prompt"], again["n_predict"]) == ([1, 2, 3, 4, 5], 7)
    assert again["seed"] != first["seed"]
    assert {**again, "prompt": 0, "n_predict": 0, "seed": 0} == {
        **first,
        "prompt": 0,
        "n_predict": 0,
        "seed": 0,
    }
