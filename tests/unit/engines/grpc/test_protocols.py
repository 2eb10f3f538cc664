"""What goes over the wire, and what comes of what is said there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.support.double.llm import Double, nothing_ignored
from tests.support.double.results import Fail, Script
from tests.support.echo_engines import scripted
from tests.support.engine_claims import CONTEXT, PROMPT, greedy
from tests.support.gather import begin, generated
from tests.support.grpc_bindings import DESCRIBED, describe
from tests.support.grpc_server import echo_llm, llm_of, served
from tests.support.grpc_servicers import Servicer
from tests.support.polling import until_seen
from tests.support.vllm_servicer import VllmServicer
from trt_responses.engine import GenerateOptions, Guide, Logprob
from trt_responses.engines.distant import Patience
from trt_responses.engines.grpc.engine import Address, GrpcEngine, address_of
from trt_responses.engines.grpc.messages import HERE
from trt_responses.engines.grpc.protocol import Fault
from trt_responses.engines.grpc.trtllm import UNKNOWN_BATCH
from trt_responses.engines.grpc.vllm import VllmProtocol
from trt_responses.errors import InvalidRequest, StartupError, Unsupported
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.support.double.words import SamplingParams

RICH = GenerateOptions(
    5,
    (CONTROL.call,),
    temperature=0.5,
    top_p=0.25,
    top_k=7,
    min_p=0.125,
    presence_penalty=0.5,
    frequency_penalty=0.25,
    repetition_penalty=1.5,
    logit_bias=((13, 2.0),),
    seed=-1,
    logprobs=3,
    banned_ids=(11, 11, 12),
    cache_salt="owner",
    trace_headers={"traceparent": "00-1"},
    request_id="resp",
)


@asynccontextmanager
async def over(servicer: Servicer | VllmServicer) -> AsyncIterator[GrpcEngine]:
    async with served(servicer) as port:
        engine = GrpcEngine(Address("127.0.0.1", port, "demo"), find_ignored=nothing_ignored)
        await engine.start()
        servicer.requests.clear()
        try:
            yield engine
        finally:
            await engine.stop(5)


def says(*steps: tuple[int, ...] | Fail, **more: Any) -> Any:
    """An engine that says this to everybody."""
    return llm_of(Double(lambda *_: Script(steps, **more), version="main"))


def test_the_messages_are_those_of_the_published_protocol(tmp_path: Path) -> None:
    describe(tmp_path)
    for name in DESCRIBED:
        assert (HERE / name).read_bytes() == (tmp_path / name).read_bytes()


def asked(servicer: Servicer, options: GenerateOptions) -> Any:
    async def claim() -> Any:
        async with over(servicer) as engine:
            await generated(engine, PROMPT, options)
        return servicer.requests[0]

    return asyncio.run(claim())


def test_everything_that_samples_is_said_to_tensorrt_llm() -> None:
    request = asked(Servicer(echo_llm()), RICH)
    assert list(request.tokenized.input_token_ids) == PROMPT
    assert request.request_id.startswith("resp-")
    sampling = request.sampling_config
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.25, 7)
    assert (sampling.min_p, sampling.seed) == (0.125, 2**64 - 1)
    assert sampling.repetition_penalty == 1.5
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, 0.25)
    assert (request.max_tokens, request.streaming, request.ignore_eos) == (5, True, True)
    assert list(request.stop_token_ids) == [CONTROL.call]
    assert list(request.bad_token_ids) == [11, 12]
    assert request.include_stop_token_in_output
    assert request.output_config.logprobs == 3
    other = asked(Servicer(echo_llm()), replace(RICH, cache_salt="other"))
    assert request.cache_salt_id != other.cache_salt_id


def test_greedy_is_said_as_greedy() -> None:
    request = asked(Servicer(echo_llm()), greedy())
    sampling = request.sampling_config
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0, 1, 1)
    assert not sampling.HasField("seed")


def test_an_engine_that_does_not_tell_its_batch_gets_the_packages_own() -> None:
    async def claim() -> None:
        async with over(Servicer(echo_llm(), tells_batch=False)) as engine:
            assert engine.limits().max_batch == UNKNOWN_BATCH

    asyncio.run(claim())


def guided(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
    """An engine that writes JSON and patterns under a guide, and reads no lark."""
    if params.guided_decoding is None:
        return Script(((9,),) * CONTEXT)
    if getattr(params.guided_decoding, "grammar", None):
        raise ValueError("the grammar has no rule named root")
    return Script(((8,), (8, CONTROL.return_)))


def test_a_kind_of_guide_is_served_if_it_guides() -> None:
    llm = llm_of(Double(guided, version="main"), guided_decoding_backend="xgrammar")
    servicer = Servicer(llm)

    async def claim() -> None:
        async with over(servicer) as engine:
            ends = frozenset({CONTROL.return_})
            assert engine.limits().guides == {"json_schema": ends, "regex": ends}
            schema = replace(greedy(), guide=Guide("json_schema", '{"const": 1}'))
            told = await generated(engine, PROMPT, schema)
            assert told.token_ids == [8, 8, CONTROL.return_]
            assert (told.end.finish, told.end.stop_id) == ("stop", CONTROL.return_)
            with pytest.raises(Unsupported, match="lark"):
                begin(engine, PROMPT, replace(greedy(), guide=Guide("lark", 'start: "a"')))

    asyncio.run(claim())
    banned = servicer.requests[0].bad_token_ids
    assert CONTROL.message in banned, "a control id may pass for its spelling"
    assert CONTROL.return_ not in banned


@pytest.mark.parametrize(
    ("steps", "options", "ids", "end"),
    [
        (((1, 2, 3), (4, 5)), greedy(5), [1, 2, 3, 4, 5], ("length", None)),
        (((1, 2, 3), (4, 5)), greedy(4), [1, 2, 3, 4], ("length", None)),
        (((1, 2, 3), (4, 5)), greedy(9, stop_ids=(2,)), [1, 2], ("stop", 2)),
        (((1, 2), (2, 5)), greedy(1, stop_ids=(1,)), [1], ("stop", 1)),
    ],
)
def test_several_ids_at_once_end_where_they_must(
    steps: tuple[tuple[int, ...], ...],
    options: GenerateOptions,
    ids: list[int],
    end: tuple[str, int | None],
) -> None:
    async def claim() -> None:
        async with over(Servicer(says(*steps, cached_tokens=4))) as engine:
            told = await generated(engine, PROMPT, options)
            assert told.token_ids == ids
            assert (told.end.finish, told.end.stop_id) == end
            assert told.cached_tokens == 4
            assert told.chunks[-1].token_ids

    asyncio.run(claim())


def test_an_id_that_nobody_expected_has_the_likeliest_beside_it() -> None:
    async def claim() -> Logprob:
        async with over(Servicer(says((5,), surprise=True))) as engine:
            return (await generated(engine, PROMPT, greedy(1, logprobs=2))).logprobs[0]

    entry = asyncio.run(claim())
    assert (entry.token_id, entry.logprob) == (5, -9.0)
    assert [token_id for token_id, _ in entry.top] == [6, 7]


@pytest.mark.parametrize("error", [ValueError, KeyError, IndexError, OSError])
def test_a_request_that_fails_says_why_and_others_go_on(
    error: type[Exception],
) -> None:
    def script(prompt_ids: Sequence[int], _: SamplingParams) -> Script:
        bad = prompt_ids[0] == 13
        return Script(((1,), Fail(error("it went wrong"))) if bad else ((2,),) * 5)

    async def claim() -> None:
        async with over(Servicer(llm_of(Double(script, version="main")))) as engine:
            bad, good = begin(engine, [13], greedy())[0], begin(engine, [14], greedy(5))[0]
            assert (await good.done()).token_ids == [2] * 5
            end = (await bad.done()).end
            assert end.finish == "error"
            assert "it went wrong" in (end.error or "")
            assert bad.chunks[-1].lost is None  # the engine is well
            assert engine.health().ready

    asyncio.run(claim())


def test_what_the_engine_refuses_is_the_clients_fault() -> None:
    def script(prompt_ids: Sequence[int], _: SamplingParams) -> Script:
        if prompt_ids[0] == 13:
            raise ValueError("13 is not taken")
        return Script(((1,),))

    async def claim() -> None:
        async with over(Servicer(llm_of(Double(script, version="main")))) as engine:
            told = await generated(engine, [13], greedy())
            refusal = told.chunks[-1].refusal
            assert isinstance(refusal, InvalidRequest)
            assert refusal.message == "The engine refused the request: 13 is not taken"
            with pytest.raises(InvalidRequest, match="cannot be sent"):
                begin(engine, [-1], greedy())

    asyncio.run(claim())


def test_who_leaves_frees_the_engines_place() -> None:
    """Also from within a push, when a message is under way."""
    servicer = Servicer(echo_llm())

    async def claim() -> None:
        async with over(servicer) as engine:
            for ids in (0, 1, 2):
                told, handle = begin(engine, PROMPT, GenerateOptions(CONTEXT, ()))
                await told.some(ids)
                handle.abort()
                await until_seen(lambda: not servicer.llm.requests)

    asyncio.run(claim())
    assert servicer.aborted >= 2


def test_statuses_are_refusals_or_failures() -> None:
    assert isinstance(Fault("INVALID_ARGUMENT", "why").refusal, InvalidRequest)
    assert isinstance(Fault("UNIMPLEMENTED", "why").refusal, Unsupported)
    full = Fault("RESOURCE_EXHAUSTED", "why").refusal
    assert full is not None
    assert full.status == 503
    assert all(Fault(status, "").refusal is None for status in ("INTERNAL", "UNAVAILABLE", "7"))


@pytest.mark.parametrize("wrong", ["", "host", "host:port/model", "host:8000", "host:8000/"])
def test_a_place_is_a_host_a_port_and_a_model(wrong: str) -> None:
    with pytest.raises(StartupError, match="host:port/model"):
        address_of(wrong)
    assert address_of("[::1]:50051/openai/gpt-oss").target == "[::1]:50051"


def test_a_server_of_something_else_is_refused_at_once() -> None:
    async def claim() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            with pytest.raises(
                StartupError, match="speaks neither TensorRT-LLM's protocol nor vLLM's"
            ):
                await GrpcEngine(Address("127.0.0.1", port, "demo")).start()
        finally:
            await server.stop(0)

    asyncio.run(claim())


def test_a_server_that_does_not_tell_its_context_is_refused() -> None:
    llm = echo_llm()
    del llm.arguments["max_seq_len"]

    async def claim() -> None:
        async with served(Servicer(llm)) as port:
            with pytest.raises(StartupError, match="--max_seq_len"):
                await GrpcEngine(Address("127.0.0.1", port, "demo")).start()

    asyncio.run(claim())


def test_a_request_to_vllm_sets_every_option_and_nothing_is_left_to_its_defaults() -> None:
    guide = Guide("json_schema", '{"const": 1}')
    wish = replace(RICH, guide=guide, banned_ids=(11,))

    async def claim() -> Any:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            return VllmProtocol(channel).request("resp-1", PROMPT, wish, 5)

    request = asyncio.run(claim())
    sampling = request.sampling_params
    assert (list(request.tokenized.input_ids), request.stream) == (list(PROMPT), True)
    assert request.request_id == "resp-1"
    assert (sampling.max_tokens, sampling.top_k, sampling.repetition_penalty) == (5, 7, 1.5)
    assert (sampling.temperature, sampling.top_p, sampling.min_p) == (0.5, 0.25, 0.125)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, 0.25)
    assert (sampling.seed, sampling.logprobs, sampling.ignore_eos) == (2**31 - 1, 4, True)
    assert list(sampling.stop_token_ids)[:2] == [CONTROL.call, CONTROL.return_]
    assert dict(sampling.logit_bias) == {11: -100.0, 13: 2.0}
    assert (sampling.json_schema, sampling.grammar_from_first_token) == ('{"const": 1}', True)


@pytest.mark.slow  # 2 s: it asks once a second
def test_the_address_shows_which_server_it_is_and_an_unwell_vllm_is_waited_for() -> None:
    async def claim() -> None:
        servicer = VllmServicer(scripted())
        servicer.unwell = "Engine is not alive"
        async with served(servicer) as port:
            address = Address("127.0.0.1", port, "demo")
            with pytest.raises(StartupError, match="Engine is not alive"):
                await GrpcEngine(address, Patience(start_s=0.2)).start()

    asyncio.run(claim())
