"""The embedded engine in trouble: its child dies, stalls or cannot load; its doors are tried.

Budget: 35 s on one core; each child takes about 2 s to load the model and its guides.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import pytest
from openai_harmony import load_harmony_encoding

from tests.support.gather import Gather, begin, generated
from tests.support.template_families import CONTROLS
from tests.support.tiny_gguf import END, tiny_vocabulary
from tests.support.turns import turn
from trt_responses.engine import CONTINUATION_PRIORITY, GenerateOptions, Guide
from trt_responses.engines.llamacpp.body import HARMONY, Marks
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.engines.llamacpp.keeper import Patience
from trt_responses.engines.llamacpp.process import Child
from trt_responses.errors import EngineUnavailable, InvalidRequest, StartupError
from trt_responses.features.peer_words.sampling import Bounded, Sampling
from trt_responses.frozen import replace
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.shelf import shelf

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from trt_responses.engines.llamacpp.child import Settings
    from trt_responses.tokens.vocabulary import Vocabulary

    Spoil = Callable[[Path, Path], Path]

pytestmark = pytest.mark.xdist_group("llamacpp_stress")  # one process loads its engines


CONTEXT = 32_768
"""So much that a request nobody ends is still running when a test gives up."""
PROMPT = list(range(300, 340))
TOKENS = tiny_vocabulary()[0]
CONTROL_IDS = tuple(len(TOKENS) + number for number in range(len(CONTROLS["qwen3"])))
END_ID = len(TOKENS) + CONTROLS["qwen3"].index(END["qwen3"])
MARKS = Marks(CONTROL_IDS, frozenset({END_ID}), frozenset({END_ID}))
"""The control ids of the small model."""
ENDLESS = (*CONTROL_IDS, *(number for number, text in enumerate(TOKENS) if "!" in text))
"""Banned ids, without which the small model ends nothing by itself."""
FREE = GenerateOptions(CONTEXT, (), temperature=1.0, seed=5, banned_ids=ENDLESS)
SHORT = GenerateOptions(4, (), temperature=0.0, banned_ids=ENDLESS)
LONG_GUIDED = replace(FREE, guide=Guide("regex", "[a-z ]*!"))
BOOLEAN = GenerateOptions(20, (), guide=Guide("json_schema", '{"type":"boolean"}'))
PATIENCE_S = 500.0

T = TypeVar("T")


def child_of(engine: LlamaCppEngine) -> Child:
    child = engine.child
    assert child is not None
    return child


def make(
    gguf: Path,
    *,
    slots: int = 2,
    patience: Patience | None = None,
    delays: list[float] | None = None,
    spelled: Callable[[str], str] = str,
) -> LlamaCppEngine:
    async def no_sleep(delay_s: float) -> None:
        if delays is not None:
            delays.append(delay_s)

    return LlamaCppEngine(
        gguf,
        context_tokens=CONTEXT,
        slots=slots,
        threads=1,
        patience=patience,
        sleep=no_sleep,
        spelled=spelled,
        marks=MARKS if gguf.name == MODEL else HARMONY,
    )


@asynccontextmanager
async def running(engine: LlamaCppEngine) -> AsyncIterator[LlamaCppEngine]:
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop(5)


def run(claim: Coroutine[None, None, T]) -> T:
    return asyncio.run(asyncio.wait_for(claim, PATIENCE_S))


@dataclass(frozen=True)
class Bench:
    engine: LlamaCppEngine
    runner: asyncio.Runner

    def run(self, claim: Coroutine[None, None, T]) -> T:
        return self.runner.run(asyncio.wait_for(claim, PATIENCE_S))

    def ask(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Gather:
        return self.run(generated(self.engine, prompt_ids, options))


@pytest.fixture(scope="module")
def small_gguf(small_engines_dir: Path) -> Path:
    """A model of a few hundred tokens: a child loads it in a tenth of the time."""
    return shelf.find(small_engines_dir, "tiny") / MODEL


@pytest.fixture(scope="module")
def bench(random_gguf: Path) -> Iterator[Bench]:
    """An engine for the tests that leave it whole."""
    with asyncio.Runner() as runner:
        engine = make(random_gguf, slots=1)
        runner.run(engine.start())
        yield Bench(engine, runner)
        runner.run(engine.stop(5))


async def kill(engine: LlamaCppEngine) -> None:
    """Kill the child, and wait until the engine has noticed."""
    child = child_of(engine)
    child.kill()
    await child.ended()
    await turn(5)  # the engine has waited for the same end, and longer than we


async def proof(child: Child) -> int:
    """The ids of the first request of a child, its proof, as llama.cpp logs them: prompt and
    answer."""
    while not (logged := re.findall(r"total time .*/ +(\d+) tokens", "\n".join(child.lines))):
        await turn()
    return int(logged[0])


def test_a_killed_child_fails_what_is_guided_and_the_next_child_goes_on_with_what_is_free(
    small_gguf: Path,
) -> None:
    async def claim() -> None:
        delays: list[float] = []
        async with running(make(small_gguf, delays=delays)) as engine:
            told, handle = begin(engine, PROMPT, FREE)
            guided, _ = begin(engine, PROMPT, LONG_GUIDED)
            await guided.some(3)
            await told.some(3)
            first = child_of(engine).pid
            assert await proof(child_of(engine)) > 2  # a guided text
            await kill(engine)
            assert guided.end.finish == "error"
            assert guided.end.error
            assert not told.finished
            before = len(told.token_ids)
            assert not engine.health().ready
            with pytest.raises(EngineUnavailable) as refused:
                begin(engine, PROMPT, SHORT)
            assert refused.value.retry_after_s
            health = await engine.settled()
            assert (health.alive, health.ready, health.restarts) == (True, True, 1)
            assert child_of(engine).pid != first
            assert await proof(child_of(engine)) == 2  # one id, and no guide to load
            assert (await generated(engine, PROMPT, SHORT)).end.finish == "length"
            await told.some(before + 3)
            assert [chunk.cached_tokens for chunk in told.chunks if chunk.cached_tokens] == []
            handle.abort()
            assert delays == [0.1]

    run(claim())


def test_a_prompt_that_kills_twice_is_quarantined_and_the_engine_that_keeps_dying_is_dead(
    small_gguf: Path,
) -> None:
    async def claim() -> None:
        delays: list[float] = []
        engine = make(small_gguf, patience=Patience(max_failures=3), delays=delays)
        async with running(engine):
            told, _ = begin(engine, PROMPT, FREE)
            for _ in range(2):
                await told.some(len(told.token_ids) + 1)
                await kill(engine)
                assert (await engine.settled()).ready
            assert "digest" in (told.end.error or "")
            with pytest.raises(InvalidRequest, match="digest") as refused:
                begin(engine, PROMPT, SHORT)
            assert refused.value.code == "prompt_quarantined"
            other, _ = begin(engine, [*PROMPT, 1], FREE)
            await other.some(1)
            await kill(engine)
            health = await engine.settled()
            assert (health.alive, health.ready) == (False, False)
            assert "SIGKILL" in (health.reason or "")
            assert delays == [0.1, 0.2]
            with pytest.raises(EngineUnavailable, match="SIGKILL"):
                begin(engine, PROMPT, SHORT)

    run(claim())


def test_a_free_run_ends_as_if_its_child_had_never_died(demo_gguf: Path) -> None:
    """Greedy, by a trained model: its next id hangs on no rounding."""
    question = "<|start|>user<|message|>Count from 1 to 9.<|end|><|start|>assistant"
    prompt = load_harmony_encoding("HarmonyGptOss").encode(question, allowed_special="all")

    async def claim() -> None:
        async with running(make(demo_gguf)) as engine:
            wish = GenerateOptions(40, (), temperature=0.0)
            whole = await generated(engine, prompt, wish)
            is_over = True
            while is_over:  # a busy machine may hear all of it before the child has died
                told, _ = begin(engine, prompt, wish)
                await told.some(2)
                await kill(engine)
                is_over = told.finished
                await told.done()
                await engine.settled()
            assert told.token_ids == whole.token_ids
            assert told.end == whole.end

    run(claim())


DEADLY = ["-9223372036854775807", "-9223372036854775808", "-9.223372036854775808e18"]


def deadly(number: str) -> GenerateOptions:
    """A guide that ends llama.cpp's process, written so that the engine cannot see it."""
    return GenerateOptions(20, (), guide=Guide("json_schema", f'{{"const":"deadly {number}"}}'))


def careless(gguf: Path, slots: int = 2, patience: Patience | None = None) -> LlamaCppEngine:
    """An engine that writes deadly guides as they are."""

    def spelled(text: str) -> str:
        return re.sub('"deadly ([^"]*)"', r"\1", text)

    return make(gguf, slots=slots, patience=patience, spelled=spelled)


@pytest.mark.early(20)
def test_a_guide_that_kills_is_found_among_the_innocent_and_quarantined(small_gguf: Path) -> None:
    """Three first steps at once, of which one kills; a fourth request has long been speaking."""

    async def claim() -> None:
        async with running(careless(small_gguf, slots=4)) as engine:
            speaking, handle = begin(engine, PROMPT, FREE)
            await speaking.some(1)
            innocent, _ = begin(engine, [*PROMPT, 1], SHORT)
            killer, _ = begin(engine, [*PROMPT, 2], deadly(DEADLY[0]))
            guided, _ = begin(engine, [*PROMPT, 3], BOOLEAN)
            assert (await killer.done()).end.finish == "error"
            assert "guide" in (killer.end.error or "")
            assert (await innocent.done()).end.finish == "length"
            # A guide begins at the first token, so one that had spoken when the killer died again
            # cannot go on; one that had not is tried again.
            assert (await guided.done()).end.finish == "stop" or guided.token_ids
            await speaking.some(len(speaking.token_ids) + 3)  # the next process is up
            assert (await generated(engine, [*PROMPT, 3], BOOLEAN)).end.finish == "stop"
            handle.abort()
            with pytest.raises(InvalidRequest) as refused:
                begin(engine, [*PROMPT, 4], deadly(DEADLY[0]))
            assert refused.value.code == "guide_quarantined"
            assert (await generated(engine, [*PROMPT, 2], BOOLEAN)).end.finish == "stop"

    run(claim())


@pytest.mark.early(33)
def test_one_owners_deadly_requests_never_end_the_engine(small_gguf: Path) -> None:
    """Each guide kills twice; an engine that died twice by itself would give up."""

    async def claim() -> None:
        engine = careless(small_gguf, patience=Patience(max_failures=2))
        async with running(engine):
            for number in DEADLY[:2]:
                assert (await generated(engine, PROMPT, deadly(number))).end.finish == "error"
                assert (await engine.settled()).ready
            assert (await generated(engine, PROMPT, SHORT)).end.finish == "length"

    run(claim())


def test_a_run_that_has_begun_waits_for_the_next_child(small_gguf: Path) -> None:
    async def claim() -> None:
        async with running(make(small_gguf)) as engine:
            await kill(engine)
            assert not engine.health().ready
            with pytest.raises(EngineUnavailable):
                begin(engine, PROMPT, SHORT)
            wish = replace(SHORT, priority=CONTINUATION_PRIORITY)
            assert (await generated(engine, PROMPT, wish)).end.finish == "length"

    run(claim())


@pytest.mark.parametrize("number", DEADLY)
def test_a_number_that_kills_is_refused_before_the_child_hears_of_it(
    bench: Bench, number: str
) -> None:
    child = child_of(bench.engine).pid
    with pytest.raises(InvalidRequest, match="number"):
        guided(bench, Guide("json_schema", f'{{"enum":[[{number}]]}}'))
    assert bench.ask(PROMPT, SHORT).end.finish == "length"
    assert child_of(bench.engine).pid == child


ODD = {
    "presence": replace(SHORT, presence_penalty=2.0),
    "frequency": replace(SHORT, frequency_penalty=-2.0),
    "huge penalty": replace(SHORT, presence_penalty=1e308),
    "cold": replace(SHORT, temperature=1e-300),
    "hot": replace(SHORT, temperature=1e300),
    "no nucleus": replace(SHORT, temperature=1.0, top_p=0.0),
    "min_p of all": replace(SHORT, temperature=1.0, min_p=1.0),
    "huge top_k": replace(SHORT, temperature=1.0, top_k=2**31 - 1),
    "seed beyond 64 bits": replace(SHORT, temperature=1.0, seed=-(2**70)),
    "an id that is not": replace(SHORT, banned_ids=(-1, 201_088)),
    "all logprobs, guided": replace(SHORT, logprobs=20, guide=Guide("regex", "[ab]{99}")),
}


@pytest.mark.parametrize("wish", ODD.values(), ids=ODD)
def test_odd_options_are_obeyed_and_kill_nothing(bench: Bench, wish: GenerateOptions) -> None:
    child = child_of(bench.engine).pid
    told = bench.ask(PROMPT, wish)
    assert (told.end.finish, len(told.token_ids)) == ("length", SHORT.max_tokens)
    assert child_of(bench.engine).pid == child


@pytest.mark.early(22)
@pytest.mark.parametrize("freezes", [1, 2])
def test_a_frozen_child_is_replaced_and_all_but_half_a_schema_goes_on(
    small_gguf: Path, freezes: int
) -> None:
    """Nobody is to blame, however often it happens: what is half-way under a guide is lost."""
    patience = Patience(idle_timeout_s=1.0, probe_timeout_s=0.5)

    async def claim() -> None:
        async with running(make(small_gguf, slots=2, patience=patience)) as engine:
            told, handle = begin(engine, PROMPT, FREE)
            guided, _ = begin(engine, PROMPT, LONG_GUIDED)
            behind, _ = begin(engine, PROMPT, SHORT)
            await guided.some(3)
            for _ in range(freezes):
                await told.some(len(told.token_ids) + 3)
                child = child_of(engine)
                os.kill(child.pid, signal.SIGSTOP)
                assert "SIGKILL" in await child.ended()
                before = len(told.token_ids)
                await told.some(before + 3)
                assert child_of(engine).pid != child.pid
            handle.abort()
            assert not told.finished
            assert (guided.end.finish, guided.chunks[-1].lost) == ("error", "died")
            assert (await behind.done()).end.finish == "length"
            assert (await generated(engine, PROMPT, SHORT)).end.finish == "length"
            assert engine.health().restarts == freezes

    run(claim())


LISTENS = """
import socket, sys, time
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
"""
SLEEPS, SPINS = "time.sleep(1000)", "while True: pass"
ANSWERS = "listening.accept()[0].send(b'HTTP'); " + SLEEPS


@pytest.mark.skipif(sys.platform != "linux", reason="processor time is read from /proc")
@pytest.mark.parametrize(
    ("does", "stopped", "frozen"),
    [
        (ANSWERS, False, False),
        (SPINS, False, False),
        (SLEEPS, False, True),
        (ANSWERS, True, True),
        (SPINS, True, True),
    ],
)
def test_a_child_that_is_busy_or_answers_is_not_frozen(
    does: str, stopped: bool, frozen: bool
) -> None:
    async def claim() -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", LISTENS + does), stdin=pipe, stdout=pipe, stderr=pipe
        )
        child = Child(process, cast("Settings", {"api_key": "", "api_prefix": ""}))
        assert process.stdout is not None
        child.host, child.port = "127.0.0.1", int(await process.stdout.readline())
        if stopped:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # noqa: ASYNC222  # it stops at once
        assert await child.is_frozen(30.0 if does == ANSWERS and not stopped else 1.0) is frozen
        await child.end(0)

    run(claim())


PARENT = """
import asyncio, sys
from pathlib import Path
from trt_responses.engines.llamacpp.body import HARMONY, Marks
from trt_responses.engines.llamacpp.engine import LlamaCppEngine

async def main():
    engine = LlamaCppEngine(Path(sys.argv[1]), context_tokens=512, slots=1, threads=1)
    await engine.start()
    print(engine.child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a foreign process: Linux")
def test_a_parent_that_is_killed_takes_its_child_along(random_gguf: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(random_gguf)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        assert not gone(child, within_s=0)
        parent.kill()
        assert gone(child, within_s=PATIENCE_S)
        os.close(child)


def gone(pidfd: int, within_s: float) -> bool:
    return bool(select.select([pidfd], [], [], within_s)[0])


def unreadable(gguf: Path, directory: Path) -> Path:
    return directory / "none.gguf"


def foreign(gguf: Path, directory: Path) -> Path:
    target = directory / "foreign.gguf"
    target.write_bytes(b"PK\3\4 something else")
    return target


def only_a_head(gguf: Path, directory: Path) -> Path:
    target = directory / "head.gguf"
    target.write_bytes(gguf.read_bytes()[:100])
    return target


def cut_short(gguf: Path, directory: Path) -> Path:
    target = directory / "cut.gguf"
    whole = gguf.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    return target


def other_architecture(gguf: Path, directory: Path) -> Path:
    target = directory / "other.gguf"
    target.write_bytes(gguf.read_bytes().replace(b"gpt-oss", b"gpt-axx"))
    return target


def half_sinks(gguf: Path, directory: Path) -> Path:
    """Sinks called f16, which llama.cpp takes, and then ends its process over."""
    target = directory / "sinks.gguf"
    data = bytearray(gguf.read_bytes())
    name = b"blk.0.attn_sinks.weight"
    kind = data.index(name) + len(name) + 4 + 8  # past the count of dimensions and the one
    assert struct.unpack_from("<I", data, kind) == (0,)
    struct.pack_into("<I", data, kind, 1)
    target.write_bytes(data)
    return target


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (unreadable, "No such file"),
        (foreign, "not a GGUF"),
        (only_a_head, ""),
        (cut_short, "tensor"),
        (other_architecture, "unknown model architecture: 'gpt-axx'"),
        (half_sinks, "GGML_ASSERT"),
    ],
)
def test_a_file_that_cannot_be_served_stops_the_start_with_one_sentence(
    random_gguf: Path, tmp_path: Path, spoil: Spoil, words: str
) -> None:
    path = spoil(random_gguf, tmp_path)
    engine = make(path)
    with pytest.raises(StartupError) as refused:
        run(engine.start())
    said = str(refused.value)
    assert str(path) in said
    assert words in said
    assert "\n" not in said
    assert not engine.health().ready


def test_eight_streams_at_once_each_end_as_they_do_alone(random_gguf: Path) -> None:
    wish = GenerateOptions(24, (), temperature=0.0, logprobs=8)
    prompts = [[token_id + 100 * n for token_id in PROMPT] for n in range(8)]

    async def claim() -> None:
        async with running(make(random_gguf, slots=8)) as engine:
            alone = [await generated(engine, prompt, wish) for prompt in prompts]
            sinks = [begin(engine, prompt, wish)[0] for prompt in prompts]
            together = [await sink.done() for sink in sinks]
            for one, other in zip(alone, together, strict=True):
                # The float order differs, and so may the likeliest of a random model's ids.
                assert one.token_ids[0] in [token_id for token_id, _ in other.logprobs[0].top]
                assert len(other.token_ids) == 24 or other.end.finish == "stop"

    run(claim())


def test_an_aborted_request_frees_its_slot_for_the_next(bench: Bench) -> None:
    async def claim() -> None:
        told, handle = begin(bench.engine, PROMPT, FREE)
        await told.some(3)
        handle.abort()
        # With one slot this could wait for some 30,000 ids.
        after = await asyncio.wait_for(generated(bench.engine, PROMPT, SHORT), 300)
        assert after.end.finish == "length"
        assert len(told.token_ids) < 1000

    bench.run(claim())


@pytest.mark.parametrize("place", [1, 5])
def test_a_stop_id_that_llama_cpp_does_not_stop_at_is_cut_here(bench: Bench, place: int) -> None:
    async def claim() -> None:
        await generated(bench.engine, PROMPT, SHORT)  # a cold prompt's floats differ
        free = (await generated(bench.engine, PROMPT, GenerateOptions(8, (), 0.0))).token_ids
        stop = free[place]
        told = await generated(bench.engine, PROMPT, GenerateOptions(CONTEXT, (stop,), 0.0))
        assert told.token_ids == free[: free.index(stop) + 1]
        assert told.end.stop_id == stop
        kept = [*PROMPT, *told.token_ids, 5]
        segment = await generated(bench.engine, kept, SHORT)
        # All but the new id, and the stop id too where the cut came before its step.
        assert segment.cached_tokens in (len(kept) - 1, len(kept) - 2)

    bench.run(claim())


def test_owners_share_no_prefix_and_keep_their_own(bench: Bench) -> None:
    async def cached(salt: str | None) -> int | None:
        wish = GenerateOptions(2, (), temperature=0.0, cache_salt=salt)
        return (await generated(bench.engine, PROMPT, wish)).cached_tokens

    async def claim() -> list[int | None]:
        return [await cached(salt) for salt in ("one", "one", "two", "two", None, "one")]

    known = len(PROMPT) - 1
    assert bench.run(claim())[1:] == [known, 0, known, 0, 0]


def test_a_schema_guides_from_the_first_id_and_ends_as_the_limits_say(
    bench: Bench, vocabulary: Vocabulary
) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    guide = Guide("json_schema", json.dumps({**schema, "additionalProperties": False}))
    told = guided(bench, guide)
    assert told.end.stop_id in bench.engine.limits().guides["json_schema"]
    assert set(json.loads(vocabulary.text(told.token_ids[:-1]))) == {"ok"}


@pytest.mark.parametrize("pattern", [r"commentary to=functions\.(f|g) ", r"a/b\/c", "x\ny"])
def test_a_pattern_guides_whatever_it_holds(
    bench: Bench, vocabulary: Vocabulary, pattern: str
) -> None:
    told = guided(bench, Guide("regex", pattern))
    assert told.end.stop_id in bench.engine.limits().guides["regex"]
    assert re.fullmatch(pattern, vocabulary.text(told.token_ids[:-1]))


def guided(bench: Bench, guide: Guide) -> Gather:
    wish = GenerateOptions(60, (), temperature=1.0, seed=3, guide=guide)
    return bench.run(generated(bench.engine, PROMPT, wish))


def test_ids_that_are_no_whole_characters_come_through(
    bench: Bench, vocabulary: Vocabulary
) -> None:
    """llama.cpp keeps back ids while its text ends inside a character. There, each byte of an id
    that is no whole character has a character of its own."""
    told = guided(bench, Guide("regex", r"[\x{DF000}-\x{10FFFF}]{5}"))
    assert told.end.finish == "stop"
    assert sum(len(vocabulary.token_bytes[token_id]) for token_id in told.token_ids[:-1]) == 5
    for token_id in told.token_ids[:-1]:
        with pytest.raises(UnicodeDecodeError):
            vocabulary.token_bytes[token_id].decode()


def test_a_guide_that_is_not_json_is_refused_at_once(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="not JSON"):
        guided(bench, Guide("json_schema", "{"))


def test_a_banned_id_never_comes(bench: Bench) -> None:
    async def claim() -> None:
        first = (await generated(bench.engine, PROMPT, SHORT)).token_ids[0]
        wish = GenerateOptions(4, (), temperature=0.0, banned_ids=(first,))
        assert first not in (await generated(bench.engine, PROMPT, wish)).token_ids

    bench.run(claim())


def test_a_biased_id_comes_and_a_repeated_one_is_penalised(bench: Bench) -> None:
    greedy = GenerateOptions(6, (), temperature=0.0)
    assert bench.ask(PROMPT, replace(greedy, logit_bias=((7, 100.0),))).token_ids == [7] * 6
    begun = bench.ask([*PROMPT, 7], replace(greedy, logit_bias=((7, 9.0),))).token_ids
    penalised = replace(greedy, logit_bias=((7, 9.0),), repetition_penalty=2.0)
    assert bench.ask([*PROMPT, 7], penalised).token_ids != begun


@pytest.mark.parametrize("least", [1, 5])
def test_an_answer_is_not_stopped_before_its_least_number_of_tokens(
    bench: Bench, least: int
) -> None:
    async def claim() -> None:
        free = (await generated(bench.engine, PROMPT, GenerateOptions(8, (), 0.0))).token_ids
        wish = GenerateOptions(8, tuple(free), temperature=0.0)
        bounded = Bounded(bench.engine, Sampling(min_tokens=least), len(PROMPT))
        told = await generated(bounded, PROMPT, wish)
        assert len(told.token_ids) >= least
        assert not set(free) & set(told.token_ids[:least])

    bench.run(claim())


ENDPOINTS = (
    *("GET /", "GET /index.html", "GET /models", "GET /v1/models", "GET /props", "GET /slots"),
    *("GET /metrics", "GET /tools", "GET /lora-adapters", "POST /props", "POST /completion"),
    *("POST /v1/completions", "POST /v1/chat/completions", "POST /v1/responses", "POST /tokenize"),
    *("POST /v1/messages", "POST /apply-template", "POST /slots/0?action=save", "POST /embedding"),
    *("POST /infill", "POST /tools", "GET /cors-proxy", "POST /lora-adapters", "GET /health"),
)


def test_without_the_key_and_the_secret_path_no_endpoint_answers(bench: Bench) -> None:
    child = child_of(bench.engine)
    secret = child.path.removesuffix("/completion")
    for endpoint in ENDPOINTS:
        method, path = endpoint.split()
        assert status(child, method, path) in (401, 404), endpoint
        assert status(child, method, path, child.api_key) == 404, endpoint
        if path != "/health":
            assert status(child, method, secret + path) in (401, 404), endpoint


@pytest.mark.parametrize("path", ["/slots", "/metrics", "/tools", "/cors-proxy", "/index.html"])
def test_what_can_be_switched_off_is_off_even_with_the_key(bench: Bench, path: str) -> None:
    child = child_of(bench.engine)
    secret = child.path.removesuffix("/completion")
    assert status(child, "GET", secret + path, child.api_key) in (403, 404, 501)


def test_the_child_listens_on_loopback_only_and_its_key_is_in_no_command_line(
    bench: Bench,
) -> None:
    child = child_of(bench.engine)
    assert child.host == "127.0.0.1"
    assert len(child.api_key) == 64
    command = Path(f"/proc/{child.pid}/cmdline")
    if command.exists():
        assert child.api_key.encode() not in command.read_bytes()


def status(child: Child, method: str, path: str, key: str | None = None) -> int:
    connection = http.client.HTTPConnection(child.host, child.port, timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    connection.request(method, path, "{}" if method == "POST" else None, headers)
    try:
        return connection.getresponse().status
    finally:
        connection.close()
