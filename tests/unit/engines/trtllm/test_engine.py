"""The TensorRT-LLM adapter over the stand-in for its package: every trap of the contract.

What it shares with every engine is in tests/support/engine_claims. Budget: 5 s on one core.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.support.asgi import until
from tests.support.double.llm import BLOCKS, CppExecutorError, Double, RequestError, nothing_ignored
from tests.support.double.results import Fail, Hang, Script
from tests.support.gather import Gather, begin, generated
from tests.support.ticks import settled
from trt_responses.engine import Chunk, GenerateOptions, Guide, Logprob
from trt_responses.engines.ask import CANARY, PROBE_IDS
from trt_responses.engines.trtllm.arguments import SupportedArguments
from trt_responses.engines.trtllm.engine import TrtLlmEngine, installed
from trt_responses.engines.trtllm.liveness import Patience
from trt_responses.engines.trtllm.ranks import Ranks
from trt_responses.engines.trtllm.request import UNLIKELY
from trt_responses.engines.trtllm.statistics import cache_use, queued
from trt_responses.errors import (
    EngineUnavailable,
    InvalidRequest,
    NotFound,
    StartupError,
    Unsupported,
)
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from tests.support.double.contract import Version
    from tests.support.double.words import SamplingParams

PROMPT = (7, 8, 9)
RETURN, CALL, END = CONTROL.return_, CONTROL.call, CONTROL.end
ARGUMENTS: Mapping[str, object] = {
    "max_seq_len": 4096,
    "max_batch_size": 4,
    "max_num_tokens": 1024,
}
GUIDED: Mapping[str, object] = {**ARGUMENTS, "guided_decoding_backend": "xgrammar"}
YES = (99, RETURN)


def plan(
    *steps: tuple[int, ...] | Hang | Fail, version: Version = "1.2.1", cached: int = 0
) -> Double:
    """A package whose model always says this; probes and canaries are answered as they should."""
    return Double(script_of(Script(steps, cached_tokens=cached)), version)


def script_of(script: Script) -> Callable[[Sequence[int], SamplingParams], Script]:
    def say(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        guide = params.guided_decoding
        if guide is not None and CANARY.guide is not None and guide.json == CANARY.guide.source:
            return Script((YES,))
        return Script(((1,),)) if tuple(prompt_ids) == (CONTROL.start,) else script

    return say


class Time:
    """A clock that only a test moves, and a sleep that lasts until it is moved past its end."""

    def __init__(self) -> None:
        self.now_ns = 10**9
        self._sleepers: list[tuple[int, asyncio.Event]] = []

    def __call__(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self._sleepers.append((self.now_ns + int(seconds * 1e9), event))
        await event.wait()

    async def pass_s(self, seconds: float) -> None:
        await settle()
        self.now_ns += int(seconds * 1e9)
        for end_ns, event in self._sleepers:
            if end_ns <= self.now_ns:
                event.set()
        self._sleepers = [entry for entry in self._sleepers if not entry[1].is_set()]
        await settle()


async def settle() -> None:
    await settled(40)


def engine_of(
    double: Double,
    arguments: Mapping[str, object] = ARGUMENTS,
    *,
    time: Time | None = None,
    patience: Patience | None = None,
    environment: dict[str, str] | None = None,
    adapters: Mapping[str, Path] | None = None,
) -> TrtLlmEngine:
    clock = time or Time()
    return TrtLlmEngine(
        Path("checkpoint"),
        arguments,
        adapters=adapters,
        package=double.package,
        patience=patience,
        find_ignored=nothing_ignored,
        environment={} if environment is None else environment,
        sleep=clock.sleep,
        now_ns=clock,
    )


def options(
    max_tokens: int = 100,
    stop_ids: tuple[int, ...] = (RETURN, CALL),
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    penalty: float = 0.0,
    seed: int | None = None,
    logprobs: int | None = None,
    guide: Guide | None = None,
    banned_ids: tuple[int, ...] = (),
    cache_salt: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
) -> GenerateOptions:
    return GenerateOptions(
        max_tokens,
        stop_ids,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        presence_penalty=penalty,
        frequency_penalty=penalty,
        seed=seed,
        logprobs=logprobs,
        guide=guide,
        banned_ids=banned_ids,
        cache_salt=cache_salt,
        trace_headers=trace_headers or {},
        priority=0.75,
        arrival_ns=5,
        request_id="resp_1",
    )


def with_engine(
    engine: TrtLlmEngine, claim: Callable[[TrtLlmEngine], Coroutine[None, None, None]]
) -> None:
    async def run() -> None:
        await engine.start()
        try:
            await claim(engine)
        finally:
            await engine.stop(1)

    asyncio.run(run())


def told_by(
    double: Double,
    wishes: GenerateOptions | None = None,
    arguments: Mapping[str, object] = ARGUMENTS,
) -> Gather:
    """One whole request; whatever it was, the package was never misused."""
    kept: list[Gather] = []

    async def claim(engine: TrtLlmEngine) -> None:
        kept.append(await generated(engine, PROMPT, wishes or options()))

    with_engine(engine_of(double, arguments), claim)
    assert double.misuse == []
    assert not any(request.awaits_after_abort for request in double.requests)
    return kept[0]


def sent(double: Double) -> SamplingParams:
    """What the last request was sampled with."""
    return double.requests[-1].sampling_params


# --- ids and ends -------------------------------------------------------------------------------


def test_every_new_id_of_the_growing_output_is_fed_once_whatever_a_step_brings() -> None:
    told = told_by(plan((), (1,), (2, 3, 4), (), (5, 6), (RETURN,)))
    assert [list(chunk.token_ids) for chunk in told.chunks] == [[1], [2, 3, 4], [5, 6], [RETURN]]
    assert (told.end.finish, told.end.stop_id) == ("stop", RETURN)


@pytest.mark.parametrize("interval", [1, 3, 20])
def test_chunks_of_many_ids_lose_nothing(interval: int) -> None:
    ids = (*range(100, 147), CALL)
    groups = [ids[n : n + interval] for n in range(0, len(ids), interval)]
    told = told_by(plan(*groups))
    assert told.token_ids == list(ids)
    assert (told.end.finish, told.end.stop_id) == ("stop", CALL)


@pytest.mark.parametrize("stop_id", [RETURN, CALL, END])
def test_a_stop_id_stays_in_the_output_and_is_named(stop_id: int) -> None:
    told = told_by(plan((1, 2), (3, stop_id, 4)), options(stop_ids=(RETURN, CALL, END)))
    assert told.token_ids == [1, 2, 3, stop_id]
    assert told.end.stop_id == stop_id


def test_a_stop_id_that_was_trimmed_is_put_back_from_the_second_witness() -> None:
    """A version that ignored the wish to keep it would trim the id; its name is still told."""
    double = plan((1, 2), (3, CALL))
    script = double.script

    def trims(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        params.include_stop_str_in_output = False
        return script(prompt_ids, params)

    double.script = trims
    told = told_by(double)
    assert told.token_ids == [1, 2, 3, CALL]
    assert told.end.stop_id == CALL


def test_what_comes_after_a_stop_id_is_discarded_and_the_request_cancelled() -> None:
    """A version that did not know the stop id would go on, in the same step and after it."""
    double = plan((1, CALL, 2, 3), (4,), (5,))
    script = double.script

    def goes_on(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        params.stop_token_ids = None
        return script(prompt_ids, params)

    double.script = goes_on
    told = told_by(double)
    assert told.token_ids == [1, CALL]
    assert told.end.stop_id == CALL
    assert double.requests[-1].aborted()


def test_the_id_is_looked_at_and_not_the_word() -> None:
    """The package looks at the length before the stop words, and says length here."""
    double = plan((1, 2, CALL))
    told = told_by(double, options(3))
    assert double.requests[-1].outputs[0].finish_reason == "length"
    assert (told.end.finish, told.end.stop_id) == ("stop", CALL)


def test_a_length_without_a_stop_id_is_a_length() -> None:
    told = told_by(plan((1, 2, 3, 4)), options(3))
    assert told.token_ids == [1, 2, 3]
    assert (told.end.finish, told.end.stop_id) == ("length", None)


def test_a_model_that_returns_ends_the_request_whatever_the_stop_ids() -> None:
    told = told_by(plan((1,)), options(stop_ids=()))
    assert told.token_ids == [1, RETURN]
    assert told.end.stop_id == RETURN


def test_cached_tokens_are_told_once() -> None:
    told = told_by(plan((1,), (2,), cached=2))
    assert [chunk.cached_tokens for chunk in told.chunks] == [2, None, None]


# --- what is said to the package ----------------------------------------------------------------


def test_sampling_is_said_in_full() -> None:
    double = plan((1,))
    wishes = options(
        9, (RETURN, CALL, END), temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, seed=3
    )
    told_by(double, wishes)
    said = sent(double)
    assert (said.end_id, said.stop_token_ids) == (RETURN, [CALL, END])
    assert (said.include_stop_str_in_output, said.detokenize, said.max_tokens) == (True, False, 9)
    assert (said.temperature, said.top_p, said.top_k) == (0.5, 0.9, 40)
    assert (said.min_p, said.seed, said.logprobs) == (0.1, 3, None)
    assert (said.presence_penalty, said.frequency_penalty) == (None, None)
    told_by(double, options(penalty=0.5))
    assert (sent(double).presence_penalty, sent(double).frequency_penalty) == (0.5, 0.5)
    assert sent(double).repetition_penalty is None
    told_by(double, replace(options(), repetition_penalty=1.5))
    assert sent(double).repetition_penalty == 1.5


@pytest.mark.parametrize(("temperature", "greedy"), [(0.0, True), (1.0, False), (0.01, False)])
def test_greedy_and_temperature_are_both_what_was_asked(temperature: float, greedy: bool) -> None:
    double = plan((1,))
    told_by(double, options(temperature=temperature, min_p=0.2))
    assert sent(double).is_greedy is greedy
    assert sent(double).temperature == temperature
    assert (sent(double).top_p, sent(double).top_k) == (1.0, 1 if greedy else 0)
    assert (sent(double).min_p is None) is greedy


def test_each_request_has_sampling_parameters_of_its_own() -> None:
    double = plan((1,))

    async def claim(engine: TrtLlmEngine) -> None:
        wishes = options()
        for _ in range(3):
            await generated(engine, PROMPT, wishes)

    with_engine(engine_of(double), claim)
    assert len({id(request.sampling_params) for request in double.requests}) == 4
    assert double.misuse == []


def test_max_tokens_never_leave_the_context() -> None:
    double = plan((1,))
    told_by(double, options(100_000))
    assert sent(double).max_tokens == 4096 - len(PROMPT)


def test_salt_trace_and_banned_ids_reach_the_package() -> None:
    double = plan((1,))
    wishes = options(cache_salt="owner", trace_headers={"traceparent": "00-1"}, banned_ids=(5, 6))
    told_by(double, wishes)
    request = double.requests[-1]
    assert (request.cache_salt, request.trace_headers) == ("owner", {"traceparent": "00-1"})
    assert sent(double).bad_token_ids == [5, 6]
    told_by(double)
    assert (double.requests[-1].cache_salt, double.requests[-1].trace_headers) == (None, None)
    assert sent(double).bad_token_ids is None


def test_an_adapter_reaches_the_package_with_a_salt_of_its_own(tmp_path: Path) -> None:
    double = plan((1,))
    arguments = {**ARGUMENTS, "lora_config": {"lora_target_modules": ["attn_q"]}}
    places = {"legal": tmp_path, "style": tmp_path}

    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.limits().adapters == ("legal", "style")
        for adapter in (None, "legal", "style"):
            wishes = replace(options(cache_salt="ann"), adapter=adapter)
            assert (await generated(engine, PROMPT, wishes)).end.error is None
        with pytest.raises(NotFound, match="no adapter 'other'"):
            engine.generate(PROMPT, replace(options(), adapter="other"), Gather())

    with_engine(engine_of(double, arguments, adapters=places), claim)
    plain, *adapted = double.requests[-3:]
    assert (plain.lora_request, plain.cache_salt) == (None, "ann")
    told = [(r.lora_request.lora_name, r.lora_request.lora_path) for r in adapted if r.lora_request]
    assert told == [(name, str(tmp_path)) for name in ("legal", "style")]
    assert len({r.lora_request.lora_int_id for r in adapted if r.lora_request}) == 2
    assert len({r.cache_salt for r in double.requests[-3:]}) == 3
    assert double.misuse == []


def test_adapters_stop_a_start_that_cannot_load_them(tmp_path: Path) -> None:
    """One whose directory is gone, and a version of the package that knows no adapters."""
    double = plan((1,))
    for package, place, why in (
        (double.package, tmp_path / "gone", "does not exist"),
        (
            lambda: replace(double.package(), lora_request=None),
            tmp_path,
            "does not support adapters .no LoRARequest",
        ),
    ):
        engine = TrtLlmEngine(
            Path("checkpoint"),
            ARGUMENTS,
            adapters={"style": place},
            package=package,
            environment={},
        )
        with pytest.raises(StartupError, match=why):
            asyncio.run(engine.start())


@pytest.mark.parametrize("kind", [KeyError, IndexError, OSError, TypeError, ExceptionGroup])
def test_an_error_of_any_class_ends_all_streams_and_the_engine_is_lost(
    kind: type[Exception],
) -> None:
    """As a dead worker's error comes out of whoever asks next."""
    error = kind("worker", [OSError()]) if kind is ExceptionGroup else kind("worker")
    double = Double(lambda prompt, params: Script((Hang(),)))
    time = Time()

    async def claim() -> None:
        engine = engine_of(double, time=time)
        double.script = lambda prompt, params: Script(((CONTROL.return_,),))
        await engine.start()
        double.script = lambda prompt, params: Script(((1,), Hang()))
        told = [begin(engine, PROMPT, options())[0] for _ in range(64)]
        await told[0].some(1)
        double.raises = error
        with pytest.raises(EngineUnavailable, match="accepts no requests"):
            begin(engine, PROMPT, options())
        begun_s = time()
        while engine.health().alive:
            await time.pass_s(1)
        assert (time() - begun_s) / 1e9 <= 10
        assert all(sink.end.finish == "error" for sink in told)
        await engine.stop(1)

    asyncio.run(claim())


def test_a_guide_bans_what_spells_something_and_nothing_twice() -> None:
    double = plan((1,))
    everything = tuple(range(FIRST_CONTROL_ID, VOCABULARY_SIZE))
    told_by(double, options(guide=Guide("regex", "a"), banned_ids=everything), GUIDED)
    banned = sent(double).bad_token_ids
    assert banned is not None
    assert len(banned) == len(set(banned)) <= 32
    assert set(CONTROL) - {RETURN} <= set(banned)


def test_priority_is_said_where_the_version_has_it_and_dropped_by_name_once_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    new, old = plan((1,), version="main"), plan((1,), version="1.2.1")
    told_by(new)
    assert new.requests[-1].priority == 0.75
    assert not caplog.records

    async def claim(engine: TrtLlmEngine) -> None:
        for _ in range(3):
            await generated(engine, PROMPT, options())

    with_engine(engine_of(old), claim)
    dropped = [record.getMessage() for record in caplog.records]
    assert dropped == ["ignoring generate_async(priority): unsupported by tensorrt_llm 1.2.1"]


def test_arguments_that_a_version_lacks_are_dropped_by_name_at_every_depth(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nested = {"dtype": "auto", "new_in_9": 1}
    double = plan((1,))
    told_by(double, arguments={**ARGUMENTS, "kv_cache_config": nested, "also_new": True})
    started = double.llms[0].arguments
    assert started["kv_cache_config"] == {"dtype": "auto"}
    assert "also_new" not in started
    messages = "\n".join(record.getMessage() for record in caplog.records)
    assert "LLM(also_new)" in messages
    assert "LLM, kv_cache_config(new_in_9)" in messages


def test_the_package_itself_refuses_what_was_not_filtered() -> None:
    llm = plan().package().llm
    with pytest.raises(ValueError, match="got invalid argument: also_new"):
        llm(model="m", also_new=True)
    with pytest.raises(ValueError, match=r"kv_cache_config\.new_in_9"):
        llm(model="m", kv_cache_config={"new_in_9": 1})


def test_usage_reports_are_off_wherever_a_version_has_them() -> None:
    environment: dict[str, str] = {}
    for version, expected in (("1.2.1", None), ("main", {"disabled": True})):
        double = plan((1,), version=version)  # type: ignore[arg-type]  # both are versions

        async def nothing(engine: TrtLlmEngine) -> None: ...

        with_engine(engine_of(double, environment=environment), nothing)
        assert double.llms[0].arguments.get("telemetry_config") == expected
    assert environment["TRTLLM_NO_USAGE_STATS"] == "1"


def test_what_the_adapter_rests_on_overrides_the_arguments() -> None:
    double = plan((1,))
    told_by(double, arguments={**ARGUMENTS, "num_postprocess_workers": 4})
    started = double.llms[0].arguments
    assert (started["num_postprocess_workers"], started["skip_tokenizer_init"]) == (0, True)
    assert started["model"] == "checkpoint"


@pytest.mark.parametrize("name", ["max_seq_len", "max_batch_size", "max_num_tokens"])
def test_an_argument_that_the_limits_need_must_be_there(name: str) -> None:
    with pytest.raises(StartupError, match=name):
        engine_of(plan(), {k: v for k, v in ARGUMENTS.items() if k != name})


START = CONTROL.start
SHARED = (START, 1, 2, 3)


def turn(*messages: int) -> tuple[int, ...]:
    """A prompt: instructions that all share, one message for each number, and the next header."""
    return (*SHARED, *(word for message in messages for word in (START, message)), START, 9)


def test_a_conversation_stays_with_its_rank_and_a_new_one_goes_where_the_fewest_run() -> None:
    double = plan((1,), Hang())

    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.limits().max_batch == 4 * 3  # each rank has a batch of its own
        handles = [begin(engine, turn(n), options())[1] for n in (10, 11, 12)]
        again = [turn(n, 50, n) for n in (12, 10, 11)]
        handles += [begin(engine, prompt, options())[1] for prompt in again]
        chosen = [request.scheduling_params for request in double.requests[-6:]]
        assert [params and params.attention_dp_rank for params in chosen] == [0, 1, 2, 2, 0, 1]
        assert all(params and params.attention_dp_relax for params in chosen)
        handles[1].abort()
        begin(engine, turn(13), options())
        assert double.requests[-1].scheduling_params is not None
        assert double.requests[-1].scheduling_params.attention_dp_rank == 1

    spread = {**ARGUMENTS, "enable_attention_dp": True, "tensor_parallel_size": 3}
    double.gpus = 3
    with_engine(engine_of(double, spread), claim)
    told_by(alone := plan((1,)))
    assert alone.requests[-1].scheduling_params is None


def test_ranks_remember_so_many_prompts_and_no_more() -> None:
    ranks = Ranks(2, kept=2)
    assert ranks.choose(turn(10)) == 0
    ranks.running[0] = 1
    assert [ranks.choose(turn(n)) for n in (11, 12)] == [1, 1]
    assert ranks.choose(turn(10, 50)) == 1  # forgotten: it goes where the fewest run
    assert ranks.choose((START,)) == 1  # nothing stands before its last message


class Eagle:
    model_fields: ClassVar = {"decoding_type": None, "max_draft_len": None}


class NGram:
    model_fields: ClassVar = {"decoding_type": None, "max_matching_ngram_size": None}


class Either:
    annotation: object = Eagle | NGram | None


def test_a_configuration_that_may_be_of_several_classes_arrives_whole() -> None:
    double = plan((1,))
    package = double.package()
    fields = {**package.argument_fields, "speculative_config": Either()}
    supported = SupportedArguments(replace(package, argument_fields=fields))
    draft = {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": "/draft"}
    assert supported.arguments({"speculative_config": draft}) == {"speculative_config": draft}


def test_where_bans_are_refused_beside_a_draft_model_they_are_left_out_and_named() -> None:
    double = plan((1,), version="main")
    drafted = {**GUIDED, "speculative_config": {"decoding_type": "Eagle", "max_draft_len": 3}}

    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.limits().ignores == {"banned_ids"}
        assert engine.limits().guides
        told = await generated(engine, PROMPT, options(banned_ids=(5,)))
        assert told.end.finish == "stop"
        assert sent(double).bad_token_ids is None

    with_engine(engine_of(double, drafted), claim)
    old = plan((1,))
    told_by(old, options(banned_ids=(5,)), drafted)
    assert sent(old).bad_token_ids == [5]


# --- guides and logprobs ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["json_schema", "regex"])
def test_a_guide_holds_from_the_first_token_and_needs_the_tokenizer(kind: str) -> None:
    double = plan((1,))
    guide = Guide(kind, "[0-9]+")  # type: ignore[arg-type]  # both are kinds
    told = told_by(double, options(guide=guide), GUIDED)
    params = sent(double).guided_decoding
    assert params is not None
    said = {"json_schema": params.json, "regex": params.regex}
    assert said == {"json_schema": None, "regex": None} | {kind: "[0-9]+"}
    assert double.llms[0].arguments["skip_tokenizer_init"] is False
    assert sent(double).bad_token_ids == [n for n in CONTROL if n != RETURN]
    assert told.end.finish == "stop"


def test_without_a_backend_a_guide_is_refused_before_a_token() -> None:
    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.limits().guides == {}
        with pytest.raises(Unsupported, match="regex"):
            begin(engine, PROMPT, options(guide=Guide("regex", "a")))

    with_engine(engine_of(plan((1,))), claim)


def test_the_limits_name_the_ids_that_may_end_a_guide() -> None:
    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.limits().guides == dict.fromkeys(
            ("json_schema", "regex"), frozenset({RETURN})
        )

    with_engine(engine_of(plan((1,)), GUIDED), claim)


def test_guides_that_do_not_guide_are_switched_off_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def deaf(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        return Script((tuple(range(1, 40)),))

    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.limits().guides == {}
        assert engine.health().ready

    with_engine(engine_of(Double(deaf), GUIDED), claim)
    assert "guides do not work on this engine" in caplog.text


def test_where_llguidance_does_not_guide_the_model_is_loaded_again_with_xgrammar(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its guides are used then, but for Lark, which it does not read."""

    def says(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        works = double.llms[-1].arguments["guided_decoding_backend"] == "xgrammar"
        if params.guided_decoding is not None:
            return Script((YES if works else tuple(range(1, 40)),))
        return Script(((1,),))

    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.limits().guides.keys() == {"json_schema", "regex"}
        assert engine.health().ready
        told, _ = begin(engine, PROMPT, options(guide=Guide("json_schema", '{"const": "yes"}')))
        await told.done()
        assert told.end.finish == "stop"

    double = Double(says)
    with_engine(engine_of(double, {**ARGUMENTS, "guided_decoding_backend": "llguidance"}), claim)
    backends = [llm.arguments["guided_decoding_backend"] for llm in double.llms]
    assert backends == ["llguidance", "xgrammar"]
    assert double.llms[0].is_shut_down
    assert "guides by llguidance do not work: trying xgrammar" in caplog.text


def test_each_id_has_its_logprob_and_its_likeliest_others() -> None:
    told = told_by(plan((1,), (2, 3)), options(logprobs=2))
    assert told.logprobs == [
        Logprob(n, -0.25, ((n, -0.25), (n + 1, -1.5))) for n in (1, 2, 3, RETURN)
    ]
    assert [len(chunk.logprobs) for chunk in told.chunks] == [1, 2, 1]


def test_an_unlikely_choice_keeps_its_own_logprob_beside_the_likeliest() -> None:
    double = Double(lambda prompt_ids, params: Script(((1,),), surprise=True))
    told = told_by(double, options(1, logprobs=2))
    assert told.logprobs == [Logprob(1, -9.0, ((2, -1.5), (3, -2.5)))]


def test_logprobs_as_plain_numbers_are_understood() -> None:
    double = plan((1,), version="main")
    double.flat_logprobs = True
    told = told_by(double, options(1, logprobs=1))
    assert told.logprobs == [Logprob(1, -0.25, ((1, -0.25),))]


def test_a_logprob_that_was_not_given_is_very_unlikely() -> None:
    double = plan((1, 2))
    script = double.script

    def forgets(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        params.logprobs = None
        return script(prompt_ids, params)

    double.script = forgets
    assert told_by(double, options(2, logprobs=1)).logprobs == [
        Logprob(1, UNLIKELY),
        Logprob(2, UNLIKELY),
    ]


# --- refusals and failures ----------------------------------------------------------------------


def test_a_prompt_too_long_for_one_step_is_refused_early_unless_prefill_is_chunked() -> None:
    long = list(range(1, 1026))

    async def refused(engine: TrtLlmEngine) -> None:
        with pytest.raises(InvalidRequest, match="limit 1024") as found:
            begin(engine, long, options())
        assert found.value.code == "context_length_exceeded"

    async def taken(engine: TrtLlmEngine) -> None:
        assert (await generated(engine, long, options())).end.finish == "stop"

    with_engine(engine_of(plan((1,))), refused)
    with_engine(engine_of(plan((1,)), {**ARGUMENTS, "enable_chunked_prefill": True}), taken)


def test_a_context_that_turns_out_smaller_fails_the_request_late_and_only_it() -> None:
    double = plan((1,))
    double.real_max_seq_len = 3

    async def claim(engine: TrtLlmEngine) -> None:
        told = await generated(engine, PROMPT, options())
        assert told.end.finish == "error"
        assert "max_seq_len" in (told.end.error or "")
        assert (await generated(engine, PROMPT[:2], options())).end.finish == "stop"
        assert engine.health().ready

    with_engine(engine_of(double), claim)
    assert double.misuse == []


def test_a_value_that_the_package_refuses_is_the_clients_fault() -> None:
    async def claim(engine: TrtLlmEngine) -> None:
        with pytest.raises(InvalidRequest, match="top_p"):
            begin(engine, PROMPT, options(top_p=1.5))

    with_engine(engine_of(plan((1,))), claim)


def test_a_request_that_raises_is_never_awaited_again_and_the_engine_lives() -> None:
    double = plan((1,), Fail(RequestError("no memory for this one")))
    told = told_by(double)
    assert told.token_ids == [1]
    assert told.end.error == "no memory for this one"


def test_a_crash_of_the_executor_ends_every_request_and_the_engine() -> None:
    double = plan((1,), Hang())

    async def claim(engine: TrtLlmEngine) -> None:
        told = [begin(engine, PROMPT, options())[0] for _ in range(3)]
        for sink in told:
            await sink.some()
        double.crash("CUDA error: device-side assert")
        for sink in told:
            await sink.done()
            assert "device-side assert" in (sink.end.error or "")
            assert sink.chunks[-1].lost == "died"
        health = engine.health()
        assert (health.alive, health.ready) == (False, False)
        with pytest.raises(EngineUnavailable, match="died") as refused:
            begin(engine, PROMPT, options())
        assert refused.value.retry_after_s is None

    with_engine(engine_of(double), claim)
    assert double.misuse == []


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("background error"),
        ValueError("Unknown finish reason: 9"),
        AssertionError("lengths differ"),
        BrokenPipeError("worker"),
        KeyError("client 7"),
        IndexError("list index out of range"),
        TypeError("'NoneType' object is not iterable"),
    ],
)
def test_an_error_of_no_request_makes_the_engine_be_asked_at_once(error: Exception) -> None:
    double = plan((1,), Fail(error))

    async def claim(engine: TrtLlmEngine) -> None:
        assert (await generated(engine, PROMPT, options())).end.finish == "error"
        await settle()
        assert len(double.requests) == 3  # one when it started, this one, and the question
        assert engine.health().ready

    with_engine(engine_of(double), claim)


def test_a_shutdown_that_raises_does_not_hold_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    double = plan((1,))
    double.broken = {"shutdown": ZeroDivisionError()}
    raised = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda raising: raised.set())

    async def run() -> None:
        engine = engine_of(double)
        await engine.start()
        await asyncio.wait_for(engine.stop(60), 30)

    asyncio.run(run())
    assert raised.wait(100)


def test_the_package_is_found_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    double = plan((1,))
    for name, module in double.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    found = installed()
    assert found.version == "1.2.1"

    async def claim(engine: TrtLlmEngine) -> None:
        assert (await generated(engine, PROMPT, options())).end.stop_id == RETURN

    with_engine(TrtLlmEngine(Path("checkpoint"), GUIDED, environment={}), claim)


def test_a_package_that_shuts_down_by_itself_takes_no_request() -> None:
    double = plan((1,))

    async def claim(engine: TrtLlmEngine) -> None:
        double.llms[0].is_shut_down = True
        with pytest.raises(EngineUnavailable, match="shutting down"):
            begin(engine, PROMPT, options())
        await settle()
        assert not engine.health().ready

    with_engine(engine_of(double), claim)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tensor_parallel_size": 8}, "World size 8"),
        ({"max_batch_size": 4, "dtype": 4}, "dtype"),
    ],
)
def test_a_start_that_fails_says_why_in_one_sentence(
    given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(StartupError, match=sentence):
        asyncio.run(engine_of(plan(), {**ARGUMENTS, **given}).start())


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyError("gpt_oss"), "KeyError: 'gpt_oss'"),
        (TypeError("no\nargument"), "TypeError: no argument"),
        (RuntimeError(), "RuntimeError"),
        (
            caused(RuntimeError("Executor worker returned error"), MemoryError("KV cache")),
            "MemoryError: KV cache",
        ),
    ],
)
def test_a_start_that_fails_says_its_root_cause_whatever_its_class(
    error: Exception, sentence: str
) -> None:
    double = plan()
    double.start_error = error
    with pytest.raises(StartupError) as failed:
        asyncio.run(engine_of(double).start())
    assert str(failed.value) == f"TensorRT-LLM cannot start: {sentence}"


def test_a_model_that_gives_no_first_token_stops_the_start() -> None:
    double = Double(lambda prompt_ids, params: Script((Fail(RequestError("no kernel")),)))
    with pytest.raises(StartupError, match="no kernel"):
        asyncio.run(engine_of(double).start())
    assert double.llms[0].is_shut_down


def test_a_worker_that_dies_while_it_starts_stops_the_start() -> None:
    double = plan((1,))
    double.dead = True
    double.released.set()
    with pytest.raises(StartupError, match=r"no token within 0\.01 s"):
        asyncio.run(engine_of(double, patience=Patience(first_answer_s=0.01)).start())


def test_without_the_package_the_start_says_so() -> None:
    with pytest.raises(StartupError, match="tensorrt_llm cannot be imported"):
        asyncio.run(TrtLlmEngine(Path("c"), ARGUMENTS, environment={}).start())


# --- silence, probes, death ---------------------------------------------------------------------

SHORT = Patience(
    idle_timeout_s=120,
    queue_timeout_s=600,
    probe_timeout_s=0.01,  # real time: a dead worker answers nothing, however long one waits
    probe_every_s=60,
    first_probe_s=60,
    max_failures=3,
)


def test_a_request_without_a_step_for_too_long_fails_and_the_others_go_on() -> None:
    double, time = plan((1,), Hang()), Time()

    async def claim(engine: TrtLlmEngine) -> None:
        told = await begin(engine, PROMPT, options())[0].some()
        await time.pass_s(60)
        assert not told.finished
        await time.pass_s(60)
        assert told.end == told.end.__class__(
            "error", None, "The engine returned nothing for this request for 120 s."
        )
        assert double.requests[1].aborted()
        assert engine.health().ready
        assert (await generated(engine, PROMPT, options(1))).end.finish == "length"

    with_engine(engine_of(double, time=time, patience=SHORT), claim)


def test_one_who_waits_in_line_waits_longer_while_the_engine_makes_steps() -> None:
    """A batch of one: the second request begins when the first has ended, or not at all."""
    double, time = plan(*((n,) for n in range(1, 30))), Time()

    async def claim(engine: TrtLlmEngine) -> None:
        double.clock.mode = "manual"
        begin(engine, PROMPT, options(6))
        waiting = begin(engine, PROMPT, options())[0]
        for _ in range(6):
            await double.clock.step()
            await time.pass_s(50)
        assert not waiting.chunks
        await double.clock.step()
        assert waiting.token_ids == [1]
        behind = begin(engine, PROMPT, options())[0]
        for _ in range(11):
            await double.clock.step()
            await time.pass_s(50)
        assert not behind.finished
        await double.clock.step()
        await time.pass_s(50)
        assert "nothing for this request for 600 s" in (behind.end.error or "")
        assert not waiting.finished

    one = {**ARGUMENTS, "max_batch_size": 1}
    with_engine(engine_of(double, one, time=time, patience=SHORT), claim)


def test_a_dead_worker_is_found_by_silence_and_ends_the_engine_after_three_probes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    double, time = plan((1,), (2,)), Time()
    states: list[tuple[bool, bool]] = []

    async def claim(engine: TrtLlmEngine) -> None:
        double.dead = True
        double.released.set()
        stuck = begin(engine, PROMPT, options())[0]
        for _ in range(3):
            await time.pass_s(61)
            await asyncio.wait_for(probed(engine, double, states), 300)
        assert stuck.end.finish == "error"
        assert [request.aborted() for request in double.requests] == [False, True, True, True, True]

    with_engine(engine_of(double, time=time, patience=SHORT), claim)
    assert states == [(True, False), (True, False), (False, False)]
    assert "3 times in a row" in caplog.text
    assert double.misuse == []


FAIR = replace(SHORT, probe_timeout_s=1.0)
"""Where some probes must be answered in time, on a busy machine too."""


async def probed(engine: TrtLlmEngine, double: Double, states: list[tuple[bool, bool]]) -> None:
    """Until the probe that runs has ended."""
    probe = double.requests[-1]
    assert probe.prompt_token_ids == list(PROBE_IDS)
    await until(lambda: probe.finished or probe.aborted())
    await settle()
    health = engine.health()
    states.append((health.alive, health.ready))


@pytest.mark.slow  # 4 s: six probes, of which four wait for a deadline
def test_an_engine_that_answers_again_is_ready_again_and_forgiven() -> None:
    double, time = plan((1,)), Time()
    states: list[tuple[bool, bool]] = []

    async def claim(engine: TrtLlmEngine) -> None:
        for dead in (True, True, False, True, True, False):
            double.dead = dead
            await time.pass_s(61)
            await asyncio.wait_for(probed(engine, double, states), 300)
        assert engine.health().reason is None
        late = [request.aborted() for request in double.requests[1:]]
        assert late == [True, True, False, True, True, False]

    with_engine(engine_of(double, time=time, patience=FAIR), claim)
    failing, ready = (True, False), (True, True)
    assert states == [failing, failing, ready, failing, failing, ready]


def test_an_engine_that_makes_steps_is_not_asked() -> None:
    double, time = plan(*((n,) for n in range(1, 20))), Time()

    async def claim(engine: TrtLlmEngine) -> None:
        double.clock.mode = "manual"
        told = begin(engine, PROMPT, options())[0]
        for _ in range(6):
            await double.clock.step()
            await time.pass_s(30)
        assert len(told.token_ids) == 6
        assert len(double.requests) == 2  # the first probe, and this one

    with_engine(engine_of(double, time=time, patience=SHORT), claim)


def test_a_death_that_the_next_call_tells_is_asked_for_while_somebody_waits() -> None:
    """Nobody calls: the streams only wait, and hear of it within ten seconds."""
    double, time = plan((1,), Hang()), Time()

    async def claim(engine: TrtLlmEngine) -> None:
        told = [begin(engine, PROMPT, options())[0] for _ in range(64)]
        await told[0].some(1)
        double.raises, begun_ns = KeyError("worker"), time()
        while engine.health().alive:
            await time.pass_s(1)
        assert (time() - begun_ns) / 1e9 <= 10
        assert {sink.end.finish for sink in told} == {"error"}
        assert all("KeyError: 'worker'" in (sink.end.error or "") for sink in told)

    with_engine(engine_of(double, time=time), claim)


def test_an_early_question_that_gets_no_answer_counts_for_nothing() -> None:
    """A long prompt may be read for many seconds, in which nobody gets a step."""
    double, time = plan((1,)), Time()
    states: list[tuple[bool, bool]] = []

    async def claim(engine: TrtLlmEngine) -> None:
        double.dead = True
        double.released.set()
        begin(engine, PROMPT, options())
        await time.pass_s(4)
        await asyncio.wait_for(probed(engine, double, states), 300)

    eager = replace(SHORT, first_probe_s=3)
    with_engine(engine_of(double, time=time, patience=eager), claim)
    assert states == [(True, True)]


def test_what_came_while_nobody_looked_is_one_step() -> None:
    double = plan((1,), (2,), (3, RETURN))
    double.coalesces = True

    async def claim(engine: TrtLlmEngine) -> None:
        double.clock.mode = "manual"
        told, _ = begin(engine, PROMPT, options())
        for _ in range(3):
            double.clock.step_alone()
        await told.done()
        assert [list(chunk.token_ids) for chunk in told.chunks] == [[1, 2, 3, RETURN]]

    with_engine(engine_of(double), claim)
    assert double.misuse == []


def test_a_probe_that_waits_behind_a_batch_which_makes_steps_is_no_failure() -> None:
    double, time = plan((1,), (2,), (3,)), Time()
    states: list[tuple[bool, bool]] = []

    async def claim(engine: TrtLlmEngine) -> None:
        double.clock.mode = "manual"
        told = begin(engine, PROMPT, options())[0]
        await double.clock.step()
        await time.pass_s(61)
        time.now_ns += 1
        await double.clock.step()
        assert told.token_ids == [1, 2]
        await asyncio.wait_for(probed(engine, double, states), 300)

    one = {**ARGUMENTS, "max_batch_size": 1}
    with_engine(engine_of(double, one, time=time, patience=FAIR), claim)
    assert states == [(True, True)]


def test_stopping_does_not_wait_for_a_dead_worker(caplog: pytest.LogCaptureFixture) -> None:
    double = plan((1,))

    async def run() -> None:
        engine = engine_of(double)
        await engine.start()
        double.dead = True
        told = begin(engine, PROMPT, options())[0]
        await engine.stop(0.01)
        assert told.end.finish == "error"
        double.released.set()

    asyncio.run(run())
    assert "TensorRT-LLM shutdown timeout" in caplog.text


# --- abort --------------------------------------------------------------------------------------


def test_an_abort_cancels_in_the_package_and_nothing_is_awaited_after_it() -> None:
    double = plan((1,), Hang())

    async def claim(engine: TrtLlmEngine) -> None:
        before = asyncio.all_tasks()
        told, handle = begin(engine, PROMPT, options())
        await told.some()
        assert not asyncio.all_tasks() <= before
        handle.abort()
        assert double.requests[-1].aborted()
        handle.abort()
        await settle()
        assert told.chunks == [Chunk([1], [], 0)]
        assert asyncio.all_tasks() <= before

    with_engine(engine_of(double), claim)
    assert double.misuse == []


def test_an_abort_never_raises_though_the_package_does() -> None:
    double = plan((1,), Hang())

    async def claim(engine: TrtLlmEngine) -> None:
        told, handle = begin(engine, PROMPT, options())
        await told.some()
        double.broken = {"abort": AssertionError("The executor is not set for this result.")}
        handle.abort()
        assert not any(chunk.finish for chunk in told.chunks)

    with_engine(engine_of(double), claim)


def test_a_request_that_the_package_cancels_itself_failed() -> None:
    double = plan((1,), Hang())

    async def claim(engine: TrtLlmEngine) -> None:
        told = await begin(engine, PROMPT, options())[0].some()
        double.llms[0].cancel(double.requests[-1])
        await told.done()
        assert told.end.error == "The engine ended the request: cancelled."

    with_engine(engine_of(double), claim)


# --- metrics ------------------------------------------------------------------------------------


def test_what_the_package_measured_comes_with_the_end_if_it_is_asked_for() -> None:
    double = plan((1,), (2,))

    async def claim(engine: TrtLlmEngine) -> None:
        told = await generated(engine, PROMPT, replace(options(), metrics=True))
        assert told.end.metrics == {"ttft": 0.25, "request_queue_time": 0.125}
        told = await generated(engine, PROMPT, options())
        assert told.end.metrics is None

    with_engine(engine_of(double), claim)


def test_the_cache_in_use_and_the_queue_are_asked_for_and_told() -> None:
    double, time = plan((1,), Hang()), Time()

    async def claim(engine: TrtLlmEngine) -> None:
        assert engine.health().cache_use is None
        told = [begin(engine, PROMPT, options())[0] for _ in range(2)]
        await told[0].some(1)
        await time.pass_s(2)
        assert engine.health().cache_use == 2 / BLOCKS
        assert engine.health().queued == 3
        double.broken = {"get_stats_async": KeyError("stats")}
        await time.pass_s(2)
        assert engine.health().cache_use == 2 / BLOCKS
        assert engine.health().ready

    with_engine(engine_of(double, time=time), claim)


@pytest.mark.parametrize(
    ("step", "use"),
    [
        ({"kvCacheStats": {"usedNumBlocks": 3, "maxNumBlocks": 4}}, 0.75),
        ({"kvCacheStats": {"usedNumBlocks": 3, "maxNumBlocks": 0}}, None),
        ({"kvCacheStats": None}, None),
        ({}, None),
    ],
    ids=["used", "none", "null", "missing"],
)
def test_statistics_that_do_not_say_are_none(step: dict[str, object], use: float | None) -> None:
    assert cache_use(step) == use
    assert queued(step) is None


def test_the_package_measures_for_those_alone_who_ask() -> None:
    double = plan((1,))
    told_by(double)
    assert sent(double).return_perf_metrics is False
    told_by(double, replace(options(), metrics=True))
    assert sent(double).return_perf_metrics is True


def test_the_errors_that_end_an_engine_are_known_by_name() -> None:
    async def claim(engine: TrtLlmEngine) -> None:
        told = await generated(engine, PROMPT, options())
        assert told.end.finish == "error"
        assert not engine.health().alive

    logging.getLogger("trt_responses").setLevel(logging.CRITICAL)
    with_engine(engine_of(plan((1,), Fail(CppExecutorError("gone")))), claim)


def test_what_the_package_does_nothing_with_is_found_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The stand-in's model answers alike whatever is asked of its sampler."""
    engine = TrtLlmEngine(
        Path("checkpoint"), ARGUMENTS, package=plan((5, 6, 7)).package, environment={}
    )

    async def claim(started: TrtLlmEngine) -> None:
        assert started.limits().ignores == {"banned_ids"}
        assert "ignores banned_ids" in caplog.text

    with_engine(engine, claim)


def test_an_option_that_the_package_refuses_stops_no_start() -> None:
    package = plan((5, 6, 7)).package()
    taken = package.sampling_params

    def picky(**given: object) -> object:
        if "min_p" in given:
            raise ValueError("min_p is not supported")
        return taken(**given)

    picky.__signature__ = signature(taken)  # type: ignore[attr-defined]  # as `inspect` reads it
    refusing = replace(package, sampling_params=picky)
    engine = TrtLlmEngine(Path("checkpoint"), ARGUMENTS, package=lambda: refusing, environment={})

    async def claim(started: TrtLlmEngine) -> None:
        assert started.limits().ignores == {"banned_ids"}

    with_engine(engine, claim)
