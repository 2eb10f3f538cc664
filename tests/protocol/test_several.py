"""Several engines behind one server: models by name, replicas of one, and what is known of each."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON, until
from tests.support.cards import carded
from tests.support.greedy import WHOLE, Model, texts
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import ANSWER, script, vocabulary
from tests.support.several import ADMIN, several_served
from tests.support.story import story
from tests.support.template_served import dialect_of
from tests.support.template_turns import ids_of
from tests.support.ticks import Ticks
from trt_responses.cli.main import main
from trt_responses.errors import StartupError, UsageError
from trt_responses.harmony.dialect import Harmony, harmony
from trt_responses.language.steering import Turn
from trt_responses.prepare.files import DIALECT, engine_file, sha256_of
from trt_responses.prepare.machine import library_versions
from trt_responses.prepare.shelf.card import DialectFacts, write_card
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given, served_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.several import SeveralServed
    from trt_responses.dialect import Dialect
    from trt_responses.engine import Health

AS_ADMIN = JSON | {"authorization": f"Bearer {ADMIN['admin_key']}"}
LONG = "Tell me all that you know of the weather in Bern, day by day. " * 20


def engine(text: str = ANSWER, **options: Any) -> ScriptedEngine:
    return ScriptedEngine([script(text)], **options)


def says(word: str) -> Callable[[], ScriptedEngine]:
    return partial(engine, f"<|channel|>final<|message|>{word}<|return|>")


@story
async def test_a_request_is_answered_by_the_model_that_it_names() -> None:
    async with several_served({"demo": [says("one")], "other": [says("two")]}) as s:
        for model, word in (("demo", "one"), ("other", "two"), ("demo", "one")):
            made = (await s.client.create(model=model)).json()
            assert (made["model"], texts(made)) == (model, [word])
            explained = (await s.client.get(f"/v1/responses/{made['id']}/explain")).json()
            assert explained["engine"]["engines"] == [f"{model}/1"]
        listed = (await s.client.get("/v1/models")).json()["data"]
        assert [(each["id"], each["root"]) for each in listed] == [
            ("demo", "demo"),
            ("other", "other"),
        ]
        assert (await s.client.get("/v1/models/other")).status == 200
        unknown = await s.client.create(model="third")
        assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
        assert "'demo', 'other'" in unknown.error["message"]


@story
async def test_a_conversation_may_change_between_models() -> None:
    async with several_served({"demo": [says("one")], "other": [says("two")]}) as s:
        first = (await s.client.create()).json()
        next_ = (await s.client.create(model="other", previous_response_id=first["id"])).json()
        assert (next_["model"], texts(next_)) == ("other", ["two"])


def qwen() -> ScriptedEngine:
    return ScriptedEngine([Script(tuple((i,) for i in ids_of("qwen3", "Two.<|im_end|>")))])


@story
async def test_models_of_different_dialects_stand_beside_each_other() -> None:
    dialects: dict[str, Dialect] = {
        "demo": harmony(vocabulary()),
        "qwen": dialect_of("qwen3"),
        "other": harmony(vocabulary()),
    }
    makers = {"demo": [says("One.")], "qwen": [qwen], "other": [says("Three.")]}
    shown = {"include": ["messages"]}
    async with several_served(makers, dialects=dialects, explain="full") as s:
        last, made = None, dict[str, Any]()
        for model, word in (
            ("demo", "One."),
            ("qwen", "Two."),
            ("other", "Three."),
            ("qwen", "Two."),
        ):
            asked = {"model": model, "previous_response_id": last, "input": "Go on."}
            counted = await s.client.send(
                "POST", "/v1/responses/input_tokens", orjson.dumps(asked), JSON
            )
            made = (await s.client.create(**asked, **shown)).json()
            assert (made["model"], texts(made)) == (model, [word])
            assert counted.json()["input_tokens"] == made["usage"]["input_tokens"]
            explained = (await s.client.get(f"/v1/responses/{made['id']}/explain")).json()
            marks = {each.get("control") for each in explained["prompt"]["pieces"]}
            mark = "<|im_start|>" if model == "qwen" else "<|start|>"
            assert mark in marks
            prompt = "".join(each["message"] for each in made["input_messages"])
            assert mark in prompt
            last = made["id"]
        assert all(prompt.count(word) == 1 for word in ("One.", "Three."))
        plans = [
            one.plan(Turn(calls=2), {}, 9) for one in dialects.values() if isinstance(one, Harmony)
        ]
        assert all("1 more calls" in str(plan) for plan in plans)
        assert (await s.client.get("/health/ready")).status == 200


@story
async def test_a_model_whose_engines_are_gone_refuses_and_the_others_serve() -> None:
    async with several_served({"demo": [says("one")], "other": [says("two")]}) as s:
        gone = s.replicas["other/1"].engine
        assert isinstance(gone, ScriptedEngine)
        gone.go("died", "it was unplugged")
        refused = await s.client.create(model="other")
        assert refused.status == 503
        assert "other/1: it was unplugged" in refused.error["message"]
        assert texts((await s.client.create()).json()) == ["one"]
        assert (await s.client.get("/health/ready")).status == 200


@story
async def test_a_conversation_stays_where_its_prompt_is_warm_and_others_are_spread() -> None:
    async with several_served({"demo": [engine, engine, engine]}) as s:
        chains: dict[str, list[str]] = {}
        for name in "abcdef":
            made = (await s.client.create(input=f"I am {name}. {LONG}")).json()
            chains[name] = [made["id"]]
        assert [each.requests for each in s.replicas.values()] == [2, 2, 2]
        for _ in range(3):
            for ids in reversed(chains.values()):
                made = (await s.client.create(previous_response_id=ids[-1])).json()
                ids.append(made["id"])
        for ids in chains.values():
            assert len({label for each in ids for label in await made_by(s, each)}) == 1
        assert [each.requests for each in s.replicas.values()] == [8, 8, 8]
        page = (await s.client.get("/metrics")).body.decode()
        assert 'trt_responses_replica_requests_total{engine="demo/2"} 8' in page
        assert 'trt_responses_replica_warm_requests_total{engine="demo/2"} 6' in page


async def made_by(s: SeveralServed, response_id: str) -> list[str]:
    explained = (await s.client.get(f"/v1/responses/{response_id}/explain")).json()
    labels: list[str] = explained["engine"]["engines"]
    return labels


@story
async def test_short_prompts_that_begin_alike_are_spread() -> None:
    async with several_served({"demo": [engine, engine]}) as s:
        for name in "abcd":
            await s.client.create(input=f"I am {name}.")
        assert [each.requests for each in s.replicas.values()] == [2, 2]


@story
async def test_a_warm_engine_that_is_much_busier_than_another_gets_no_more() -> None:
    manual = partial(engine, clock=StepClock.manual(), max_batch=8)
    async with several_served({"demo": [manual, partial(engine, max_batch=8)]}) as s:
        first, second = s.replicas.values()
        calls = []
        for busy in range(1, 8):
            calls.append(s.client.ask(input=LONG, stream=True))
            await until(lambda: first.requests + second.requests == len(calls))
            assert (first.running, first.requests) == (busy, busy)
        assert (await s.client.create(input=LONG)).status == 200
        assert (first.requests, second.requests) == (7, 1)
        for call in calls:
            call.hang_up()
        await until(lambda: first.running == 0)


@story
async def test_an_owner_never_learns_what_is_warm_for_another() -> None:
    keys: dict[str, Any] = {"api_keys": ("ann:key-a", "bob:key-b")}
    async with several_served({"demo": [engine, engine]}, **keys) as s:
        for key in ("key-a", "key-b"):
            body = orjson.dumps({"model": "demo", "input": LONG})
            bearer = JSON | {"authorization": f"Bearer {key}"}
            assert (await s.client.send("POST", "/v1/responses", body, bearer)).status == 200
        assert [each.requests for each in s.replicas.values()] == [1, 1]
        assert [each.warm_requests for each in s.replicas.values()] == [0, 0]


@pytest.mark.parametrize("steps", [0, 1, 5, len(WHOLE) - 2])
def test_a_run_whose_engine_dies_ends_at_another_one_as_if_nothing_was(steps: int) -> None:
    async def told() -> None:
        model = Model()
        clock = StepClock.manual(settle_turns=40)
        doomed = ScriptedEngine(model, clock=clock)
        spare = ScriptedEngine(model)
        makers = {"demo": [lambda: doomed, lambda: spare]}
        async with several_served(makers, drain_s=0) as s:
            call = s.client.ask(stream=True)
            await until(lambda: len(doomed.requests) == 1)
            await clock.step(steps)
            doomed.go("died", "it was killed")
            ended = (await call.done()).events[-1]["response"]
            assert ended["status"] == "completed"
            assert texts(ended)[-1] == "Hello 😀 there, friend of mine."
            assert [given for given, _ in model.asked] == [0, steps]
            assert await made_by(s, ended["id"]) == ["demo/1", "demo/2"]
            health = (await s.client.get("/health")).json()["engines"]
            assert [each["ready"] for each in health] == [False, True]
            assert [each["running"] for each in health] == [0, 0]

    asyncio.run(asyncio.wait_for(told(), 60))


@story
async def test_a_dead_engine_is_no_fault_of_the_request_though_its_kind_does_not_say_so() -> None:
    doomed, spare = engine(clock=StepClock.manual()), engine()
    async with several_served({"demo": [lambda: doomed, lambda: spare]}) as s:
        call = s.client.ask(stream=True)
        await until(lambda: len(doomed.requests) == 1)
        doomed.kill("its card fell off the bus")
        assert (await call.done()).events[-1]["response"]["status"] == "completed"
        assert (await s.client.get("/health")).json()["live"]


class Reloading(ScriptedEngine):
    """Keeps its requests while its process starts again, as the embedded engine does."""

    reloads = False

    def health(self) -> Health:
        health = super().health()
        if not self.reloads:
            return health
        return replace(health, ready=False, reason="It is loading.", restarts=1)


@story
async def test_runs_do_not_wait_for_a_process_that_starts_again_while_another_engine_serves() -> (
    None
):
    model, ticks = Model(), Ticks()
    clock = StepClock.manual(settle_turns=40)
    reloading, spare = Reloading(model, clock=clock), ScriptedEngine(model)
    makers = {"demo": [lambda: reloading, lambda: spare]}
    async with several_served(makers, sleep=ticks.sleep) as s:
        call = s.client.ask(stream=True)
        await until(lambda: len(reloading.requests) == 1)
        await clock.step(3)
        reloading.reloads = True
        await ticks.pass_(2)
        ended = (await call.done()).events[-1]["response"]
        assert (ended["status"], texts(ended)[-1]) == (
            "completed",
            "Hello 😀 there, friend of mine.",
        )
        assert [given for given, _ in model.asked] == [0, 3]
        assert await made_by(s, ended["id"]) == ["demo/1", "demo/2"]
        assert [each.running for each in s.replicas.values()] == [0, 0]


@story
async def test_a_drained_engine_ends_what_it_has_and_gets_nothing_until_it_is_resumed() -> None:
    clock = StepClock.manual(settle_turns=40)
    async with several_served({"demo": [partial(engine, clock=clock), engine]}) as s:
        first, second = s.replicas.values()
        call = s.client.ask(stream=True)
        await until(lambda: first.running == 1)
        drained = await s.client.send("POST", "/admin/replicas/demo/1/drain", b"", AS_ADMIN)
        assert drained.json() | {"places": 0} == {
            "engine": "demo/1",
            "alive": True,
            "ready": False,
            "draining": True,
            "reason": None,
            "running": 1,
            "places": 0,
            "restarts": 0,
        }
        for _ in range(3):
            assert (await s.client.create()).status == 200
        assert (first.requests, second.requests) == (1, 3)
        await clock.step(50)
        assert (await call.done()).events[-1]["type"] == "response.completed"
        await s.client.send("POST", "/admin/replicas/demo/1/resume", b"", AS_ADMIN)
        listed = (await s.client.send("GET", "/admin/replicas", b"", AS_ADMIN)).json()["data"]
        assert [each["ready"] for each in listed] == [True, True]
        audit = "/admin/replicas/demo/9/drain"
        assert (await s.client.send("POST", audit, b"", AS_ADMIN)).status == 404
        assert (await s.client.send("POST", audit)).status in (401, 403)


class LateEngine(ScriptedEngine):
    """Fails as many starts as it is given reasons."""

    def __init__(self, failures: list[str]) -> None:
        super().__init__([script(ANSWER)])
        self._failures = failures

    async def start(self) -> None:
        if self._failures:
            raise StartupError(self._failures.pop())
        await super().start()


@story
async def test_one_engine_that_cannot_start_is_started_again_while_the_others_serve() -> None:
    ticks = Ticks()
    late = partial(LateEngine, ["It is not reachable."])
    async with several_served({"demo": [engine, late]}, sleep=ticks.sleep) as s:
        assert (await s.client.create()).status == 200
        health = (await s.client.get("/health")).json()["engines"]
        assert [(each["ready"], each["reason"]) for each in health] == [
            (True, None),
            (False, "It is not reachable."),
        ]
        await ticks.pass_(6)
        assert s.replicas["demo/2"].able


@story
async def test_a_model_of_which_no_engine_starts_ends_the_start() -> None:
    late = partial(LateEngine, ["It is not reachable."])
    with pytest.raises(AssertionError, match=r"other/1 \(here\): It is not reachable"):
        await several_served({"demo": [engine], "other": [late]}).__aenter__()


def served_by(engine: str, **settings: Any) -> Any:
    return served_engine(Settings(engine=engine, **settings), Given(), lambda *_: NotImplemented)


def test_the_setting_lists_models_and_their_engines() -> None:
    served = served_by("several://a=script://auto,b=grpc://127.0.0.1:1/x,a=script://auto")
    engines = served.new_engine()
    assert (served.model, served.kind, served.dialect.name) == ("a", "several", "harmony")
    assert [(each.label, each.place) for each in engines.replicas()] == [
        ("a/1", "script://auto"),
        ("a/2", "script://auto"),
        ("b/1", "grpc://127.0.0.1:1/x"),
    ]


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("a=script://auto,script://auto", "'script://auto' does not name its model"),
        ("a=script://auto,b=", "'b=' does not name its model"),
        ("a=unheard://of", "no package brings engine 'unheard'"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_by_the_entry(listed: str, why: str) -> None:
    async def start() -> None:
        await served_by(f"several://{listed}").new_engine().start()

    with pytest.raises(StartupError, match=re.escape(why)):
        asyncio.run(start())


def test_prepared_engines_are_replicas_and_those_of_one_model_speak_one_dialect(
    tmp_path: Path,
) -> None:
    libraries = dict(library_versions())
    carded(tmp_path, "gpt", libraries=libraries)
    speaks = DialectFacts("qwen3", (1,), {})
    card, other = carded(tmp_path, "qwen", libraries=libraries, dialect=speaks)
    (other / DIALECT).write_bytes(b"a template")
    template = engine_file(other / DIALECT, sha256_of(other / DIALECT))
    write_card(other, replace(card, files=(*card.files, template)))
    served = served_by("several://gpt=gpt,gpt=gpt,test=script://auto", engines_dir=tmp_path)
    assert [each.label for each in served.new_engine().replicas()] == ["gpt/1", "gpt/2", "test/1"]
    for listed in ("gpt=gpt,gpt=qwen", "gpt=script://auto,test=gpt,gpt=qwen"):
        with pytest.raises(UsageError, match="ENGINE: The engines of gpt speak different dialects"):
            served_by(f"several://{listed}", engines_dir=tmp_path)


def test_the_command_lists_the_engines_of_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--engine", "a=script://auto", "--engine", "b=grpc://127.0.0.1:1/x"]
    assert main(["serve", *flags, "--print-settings"]) == 0
    assert "several://a=script://auto,b=grpc://127.0.0.1:1/x" in capsys.readouterr().out
    for more, why in (
        (["--engine", "demo"], "--engine: 'demo' does not name its model"),
        (["--frontends", "2", "--engine", "c=no such"], "--engine: "),
    ):
        assert main(["serve", *flags, *more, "--port", "0"]) == 2
        assert why in capsys.readouterr().err
