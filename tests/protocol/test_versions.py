"""A version loaded beside the one that is served: the gate, the change-over, a canary.

Over scripted engines and builds without files. The demo's own versions are exchanged under load by
`make rollout` (`scripts/rollout/versions.py`).
"""

from __future__ import annotations

import asyncio
import re
import threading
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON, Client, living, until
from tests.support.served import ANSWER, SETTINGS, THOUGHT, ids
from tests.support.turns import turn
from tests.support.versions import ADMIN, Faulty, exchanged, scripted
from trt_responses.app import create_app
from trt_responses.features.rollout.exchange import Exchange
from trt_responses.features.rollout.loaded import number_in
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scripted.engine import ScriptedEngine

LAME = ANSWER.replace("<|return|>", "<|end|>Stray.<|return|>")  # text that belongs nowhere


def test_a_version_that_passes_takes_new_responses_and_the_old_one_ends_its_own(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        first, second = scripted(manual=True), Faulty(scripted())
        async with exchanged(
            tmp_path, lambda: second, first=first, engines_dir=tmp_path / "none"
        ) as s:
            stream = s.client.ask(stream=True)
            await until(lambda: len(first.requests) == 1)
            await first.clock.step(3)
            told = await s.load(version=2, gate=False, reason="at noon")
            assert (told.status, told.json()["state"]) == (200, "promoted")
            assert (told.json()["before"], told.json()["version"]) == ("demo@1", "demo@2")
            assert await s.version() == "demo@2"
            shown = (await s.client.send("GET", "/admin/engines/demo", headers=ADMIN)).json()
            assert [e["version"] for e in shown["finishing"]] == ["demo@1"]
            assert shown["finishing"][0]["runs"] == 1
            await first.clock.step(100)
            ended = await stream.done()
            assert ended.events[-1]["type"] == "response.completed"
            await until(lambda: s.first.stopped)
            models = (await s.client.get("/v1/models")).json()["data"]
            assert [m["id"] for m in models] == ["demo", "demo@2"]
            assert s.builds.journal == [
                ("promoted", "demo@2", "at noon"),
                ("loaded", "demo@2", "at noon"),
            ]

    asyncio.run(story())


SLOW = r"\d times (as long as|the tokens per second of) the promoted version.* (1\.5|0\.7) times"
"""Its first tokens or the others: on a busy machine either may be told first."""


@pytest.mark.parametrize(
    ("fault", "asked", "why"),
    [
        pytest.param({"later_s": 0.015}, {}, SLOW, marks=pytest.mark.slow),  # 3 s: it is slow
        ({"dies_at": 3}, {}, "prompt 3 of 4 ended failed: The engine failed: The engine died"),
        ({"dies_at": 3, "mends": True}, {}, "died at prompt 3 of 4, and was started again"),
        ({"text": THOUGHT}, {"exact": True}, "not those of the promoted version"),
        ({"text": LAME}, {}, "repairs of malformed output"),
    ],
    ids=["slow", "dies", "dies and mends", "different", "malformed"],
)
def test_a_version_that_is_worse_is_refused_with_the_reason_and_nothing_changes(
    tmp_path: Path, fault: dict[str, Any], asked: dict[str, Any], why: str
) -> None:
    async def story() -> None:
        text = fault.pop("text", ANSWER)
        worse = Faulty(scripted(text), **fault)
        async with exchanged(tmp_path, lambda: worse) as s:
            told = await s.load(**asked)
            assert (told.status, told.error["code"]) == (409, "version_refused"), told.body
            assert re.search(why, told.error["message"])
            assert told.error["message"].startswith("demo@2 is not served: ")
            assert re.search(why, told.json()["gate"]["refused"])
            assert worse.stopped
            assert s.builds.promoted == await s.version() == "demo@1"
            ((act, label, reason),) = s.builds.journal
            assert (act, label) == ("refused", "demo@2")
            assert re.search(why, reason)

    asyncio.run(story())


def test_what_cannot_be_loaded_is_refused_before_anything_is_compared(tmp_path: Path) -> None:
    async def story() -> None:
        async with exchanged(tmp_path, scripted) as s:
            s.builds.builds["2"].why = "model.gguf: found another SHA-256"
            told = await s.load(version=2)
            assert (told.status, told.json()["gate"]) == (409, None)
            assert "another SHA-256" in told.error["message"]
            s.builds.builds["2"].why = None
            s.builds.broken = "the disk is full"
            refused = await s.load(version="2")
            assert "the disk is full" in refused.error["message"]
            assert (await s.load(version=9)).error["message"].endswith("has no version 9")
            assert (await s.load(version=1)).json()["state"] == "unchanged"
            assert await s.version() == "demo@1"
            for body in ({"version": "../2"}, {"canary": 2}, {"loud": True}, {"exact": "maybe"}):
                assert (await s.load(**body)).status == 400, body
            other = await s.client.send("POST", "/admin/engines/other/load", b"{}", ADMIN)
            assert (other.status, other.error["code"]) == (404, "engine_not_found")
            keyless = await s.client.send("POST", "/admin/engines/demo/load", b"{}", JSON)
            assert keyless.status in (401, 403)

    asyncio.run(story())


def test_a_good_version_is_reported_with_what_was_measured(tmp_path: Path) -> None:
    async def story() -> None:
        async with exchanged(tmp_path, scripted) as s:
            gate = (await s.load(exact=True)).json()["gate"]
            assert (gate["prompts"], gate["refused"], gate["equal_tokens"]) == (4, None, 1.0)
            assert gate["repairs"] == [0, 0]
            assert await s.version() == "demo@2"
            shown = (await s.client.send("GET", "/admin/engines/demo", headers=ADMIN)).json()
            assert (shown["last_load"]["state"], shown["last_load"]["gate"]) == ("promoted", gate)
            made = (await s.client.create()).json()["id"]
            back = await s.load(version=1, gate=False)
            assert (back.json()["state"], back.json()["gate"]) == ("promoted", None)
            assert await s.version() == "demo@1"
            assert await s.explained(made) == "demo@2"

    asyncio.run(story())


@pytest.mark.slow  # 8 s: a load for each of nine builds
def test_no_request_fails_and_no_stream_breaks_whatever_is_loaded_meanwhile(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        slow, dies = Faulty(scripted(), later_s=0.03), Faulty(scripted(), dies_at=3)
        async with exchanged(
            tmp_path, scripted, scripted, lambda: slow, lambda: dies, max_running=4
        ) as s:
            s.builds.builds["3"].why = "model.gguf: found another SHA-256"
            over = asyncio.Event()
            told: list[tuple[str, str]] = []

            async def conversation(number: int) -> None:
                last = None
                while not over.is_set():
                    call = s.client.ask(stream=bool(number % 2), previous_response_id=last)
                    reply = await call.done()
                    assert reply.status == 200, reply.body
                    ended = reply.events[-1]["response"] if number % 2 else reply.json()
                    told.append((ended["status"], reply.headers["x-trt-engine"]))
                    last = ended["id"]

            async with asyncio.TaskGroup() as talking:
                for number in range(50):
                    talking.create_task(conversation(number))
                states = []
                acts: list[tuple[str, dict[str, Any]]] = [
                    ("load", {"version": 2, "gate": False}),
                    ("load", {"version": 1, "gate": False}),
                    ("load", {"version": 2, "gate": False, "canary": 0.5}),
                    ("unload", {}),
                    *(("load", {"version": faulty}) for faulty in (3, 4, 5)),
                ]
                for act, body in acts:
                    reply = await s.load(act, **body)
                    states.append(reply.json().get("state", reply.status))
                    told_before = len(told)
                    while len(told) < told_before + 50:
                        await turn()
                over.set()
            assert states == ["promoted", "promoted", "canary", "unloaded", 409, 409, 409]
            assert {status for status, _ in told} == {"completed"}
            assert {version for _, version in told} == {"demo@1", "demo@2"}
            assert await s.version() == s.builds.promoted == "demo@1"
            assert [(act, label) for act, label, _ in s.builds.journal] == [
                *(("promoted", "demo@2"), ("loaded", "demo@2")),
                *(("promoted", "demo@1"), ("loaded", "demo@1")),
                *(("canary", "demo@2"), ("unloaded", "demo@2")),
                *(("refused", f"demo@{faulty}") for faulty in (3, 4, 5)),
            ]

    asyncio.run(story())


def test_a_canary_has_its_conversations_until_it_is_gone_which_a_header_and_a_counter_say(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with exchanged(tmp_path, scripted) as s:
            assert (await s.load(canary=0.5)).json()["state"] == "canary"
            assert s.builds.promoted == "demo@1"
            sessions = {f"s{n}": await s.version(session=f"s{n}") for n in range(40)}
            assert 8 <= list(sessions.values()).count("demo@2") <= 32
            for name in ("s1", "s2", "s3"):
                assert await s.version(session=name) == sessions[name]
                assert await s.version(prompt_cache_key=name) == sessions[name]
            assert await s.version(model="demo@2") == "demo@2"
            assert await s.version(model=f"demo@{2:012x}") == "demo@2"
            reply = await s.client.create(model="demo@2")
            first = reply.json()["id"]
            assert number_in(first) == 2
            assert await s.explained(first) == "demo@2"
            for name in ("s1", "s2", "s3"):  # the conversation goes before the session
                assert await s.version(previous_response_id=first, session=name) == "demo@2"
            assert (await s.load("unload")).json() == {"state": "unloaded", "version": "demo@2"}
            reply = await s.client.create(previous_response_id=first)
            assert reply.headers["x-trt-engine"] == "demo@1"
            assert reply.headers["x-trt-engine-gone"] == "demo@2"
            metrics = (await s.client.get("/metrics")).body.decode()
            assert "trt_responses_engine_version_gone_total 1" in metrics
            assert (await s.load("unload")).status == 409
            assert (await s.client.create(model="demo@2")).status == 404
            acts = [(act, label) for act, label, _ in s.builds.journal]
            assert acts == [("canary", "demo@2"), ("unloaded", "demo@2")]

    asyncio.run(story())


def test_a_canary_is_promoted_without_being_loaded_again(tmp_path: Path) -> None:
    async def story() -> None:
        made: list[ScriptedEngine] = []

        def engine() -> ScriptedEngine:
            made.append(scripted())
            return made[-1]

        async with exchanged(tmp_path, engine) as s:
            for share in (0.1, 0.9):
                assert (await s.load(version=2, canary=share)).status == 200
            assert (await s.load(version=2)).json()["state"] == "promoted"
            assert len(made) == 1
            assert await s.version() == "demo@2"

    asyncio.run(story())


@pytest.mark.slow  # 7 s: two comparisons of speed
def test_a_canary_that_was_not_compared_is_compared_before_it_is_promoted(tmp_path: Path) -> None:
    async def story() -> None:
        slow = Faulty(scripted(), later_s=0.015)
        async with exchanged(tmp_path, lambda: slow) as s:
            assert (await s.load(version=2, canary=0.5, gate=False)).status == 200
            refused = await s.load(version=2)
            assert (refused.status, refused.json()["gate"]["prompts"]) == (409, 4)
            shown = (await s.client.send("GET", "/admin/engines/demo", headers=ADMIN)).json()
            assert (shown["promoted"]["version"], shown["canary"]["version"]) == (
                "demo@1",
                "demo@2",
            )
            assert (await s.load(version=2, gate=False)).json()["state"] == "promoted"

    asyncio.run(story())


def test_a_canary_that_is_dead_is_not_promoted(tmp_path: Path) -> None:
    async def story() -> None:
        dies = Faulty(scripted())
        async with exchanged(tmp_path, lambda: dies) as s:
            assert (await s.load(version=2, canary=0.5)).status == 200
            dies.dead = True
            refused = await s.load(version=2, gate=False)
            assert refused.status == 409
            assert "unload it" in refused.error["message"]
            assert await s.version() == "demo@1"

    asyncio.run(story())


def test_a_canary_is_not_unloaded_while_it_is_promoted(tmp_path: Path) -> None:
    async def story() -> None:
        second = Faulty(scripted())
        async with exchanged(tmp_path, lambda: second) as s:
            assert (await s.load(version=2, canary=0.5)).status == 200
            begun, go = threading.Event(), threading.Event()

            def slowly() -> None:
                begun.set()
                assert go.wait(60)

            s.builds.before_promotion = slowly
            going = asyncio.create_task(s.load(version=2))
            await until(begun.is_set)
            refused = await s.load("unload")
            assert (refused.status, "changing over" in refused.error["message"]) == (409, True)
            go.set()
            assert (await going).json()["state"] == "promoted"
            assert not second.stopped
            assert await s.version() == "demo@2"

    asyncio.run(story())


def test_a_load_of_what_is_served_puts_the_pointer_back_to_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with exchanged(tmp_path, scripted) as s:
            s.builds.promoted = "demo@2"  # by a command
            told = await s.load(version=1, reason="stay")
            assert told.json()["state"] == "unchanged"
            assert s.builds.promoted == "demo@1"
            assert s.builds.journal == [("promoted", "demo@1", "stay")]
            refused = await s.load(version=1, canary=0.5)
            assert (refused.status, "cannot be a canary" in refused.error["message"]) == (409, True)

    asyncio.run(story())


def test_the_journal_tells_of_a_canary_that_another_one_replaces_and_of_a_pointer_that_stays(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with exchanged(tmp_path, scripted, scripted) as s:
            for number in (2, 3):
                assert (await s.load(version=number, canary=0.5)).status == 200
            s.builds.broken = "the disk is full"
            assert (await s.load(version=3)).status == 409
            assert [(act, label) for act, label, _ in s.builds.journal] == [
                *(("canary", "demo@2"), ("canary", "demo@3"), ("unloaded", "demo@2")),
                ("refused", "demo@3"),
            ]

    asyncio.run(story())


def test_an_adapter_is_answered_by_a_version_that_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        first, new = scripted(adapters=("old", "both")), scripted(adapters=("both", "new"))
        async with exchanged(tmp_path, lambda: new, first=first) as s:
            await s.load(version=2, gate=False, canary=0.5)
            assert await s.version(model="demo:old") == "demo@1"
            assert await s.version(model="demo:new") == "demo@2"
            for number in (1, 2):
                assert await s.version(model=f"demo@{number}:both") == f"demo@{number}"
            listed = [m["id"] for m in (await s.client.get("/v1/models")).json()["data"]]
            assert listed[-3:] == ["demo:old", "demo:both", "demo:new"]
            for name in ("demo@1:new", "demo@2:old", "demo:neither"):
                assert (await s.client.create(model=name)).status == 404
            told = (await s.client.create(model="demo@1:both")).json()["id"]
            assert await s.version(model="demo:both", previous_response_id=told) == "demo@1"
            assert await s.version(model="demo:new", previous_response_id=told) == "demo@2"

    asyncio.run(story())


def test_one_load_goes_on_at_a_time_and_ends_with_the_server(tmp_path: Path) -> None:
    async def story() -> None:
        waits = Faulty(scripted(manual=True))
        async with exchanged(tmp_path, lambda: waits) as s:
            going = asyncio.create_task(s.load())
            await until(lambda: "comparing" in (s.app.state.server.of(Exchange).phase or ""))
            refused = await s.load()
            assert (refused.status, "comparing demo@2" in refused.error["message"]) == (409, True)
        assert waits.stopped
        await asyncio.gather(going, return_exceptions=True)

    asyncio.run(story())


def test_a_load_is_given_up_before_a_server_that_ends_waits_for_its_responses(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        waits = Faulty(scripted(manual=True))
        life = exchanged(tmp_path, lambda: waits, first=scripted(manual=True), drain_s=60)
        s = await life.__aenter__()
        going = asyncio.create_task(s.load())
        await until(lambda: "comparing" in (s.app.state.server.of(Exchange).phase or ""))
        assert (await s.client.create(input="Hello!", background=True)).status == 200
        await until(lambda: len(s.runs) == 1)
        ending = asyncio.create_task(life.__aexit__(None, None, None))
        await until(lambda: waits.stopped)
        assert len(s.runs) == 1
        await s.clock.step(len(ids(ANSWER)))
        await ending
        await asyncio.gather(going, return_exceptions=True)

    asyncio.run(story())


def test_kserve_loads_a_version_and_unloads_a_canary(tmp_path: Path) -> None:
    async def story() -> None:
        async with exchanged(tmp_path, scripted, scripted) as s:
            repository = "/v2/repository/models/demo"
            config = '{"version_policy": {"specific": {"versions": [2]}}}'
            body = orjson.dumps({"parameters": {"config": config}})
            assert (await s.client.send("POST", f"{repository}/load", body, ADMIN)).status == 200
            listed = await s.client.send("POST", "/v2/repository/index", b"", JSON)
            index: list[dict[str, str]] = orjson.loads(listed.body)
            assert [tuple(e.values()) for e in index] == [
                ("demo", "2", "READY"),
                ("demo", "3", "UNAVAILABLE", "unloaded"),
                ("demo", "1", "UNAVAILABLE", "unloaded"),
            ]
            assert (await s.client.get("/v2/models/demo/versions/2/ready")).status == 200
            assert (await s.client.get("/v2/models/demo/versions/1")).status == 404
            assert (await s.client.send("POST", f"{repository}/load", b"", ADMIN)).status == 200
            assert (await s.client.get("/v2/models/demo")).json()["versions"] == ["3"]
            for bad in ('{"backend": "python"}', "no JSON", '{"version_policy": {"all": {}}}'):
                body = orjson.dumps({"parameters": {"config": bad}})
                reply = await s.client.send("POST", f"{repository}/load", body, ADMIN)
                assert (reply.status, list(reply.json())) == (400, ["error"])
            assert (await s.load(version=2, canary=0.5)).status == 200
            assert (await s.client.get("/v2/models/demo")).json()["versions"] == ["3", "2"]
            said = orjson.dumps({"text_input": "Hello!"})
            path = "/v2/models/demo/versions/2/generate"
            reply = await s.client.send("POST", path, said, JSON)
            assert reply.headers["x-trt-engine"] == "demo@2"
            assert reply.json()["model_version"] == "2"
            streamed = await s.client.send("POST", f"{path}_stream", said, JSON)
            frames = streamed.body.split(b"\n\n")[:-1]
            events = [orjson.loads(frame.removeprefix(b"data: ")) for frame in frames]
            assert {event["model_version"] for event in events} == {"2"}
            told = (await s.client.get("/v2/models/stats")).json()["model_stats"]
            counts = {entry["version"]: entry["inference_count"] for entry in told}
            assert counts["2"] == 2
            assert list(counts) == ["3", "2"]
            unload = orjson.dumps({"parameters": {"unload_dependents": False}})
            statuses = [
                (await s.client.send("POST", f"{repository}/unload", unload, ADMIN)).status
                for _ in range(2)
            ]
            assert statuses == [200, 409]
            log = orjson.dumps({"log_verbose_level": 0})
            assert (await s.client.send("POST", "/v2/logging", log, ADMIN)).status == 200
        lines = [*map(orjson.loads, (tmp_path / "audit.jsonl").read_bytes().splitlines())]
        told = [(line["act"], line.get("version"), line["by"]) for line in lines]
        assert told == [
            ("engine.load", "2", "operator"),
            ("engine.load", None, "operator"),
            ("engine.load", "2", "operator"),
            ("engine.unload", None, "operator"),
            ("engine.unload", None, "operator"),
            ("server.logging", None, "operator"),
        ]

    asyncio.run(story())


def test_what_kserve_is_asked_for_and_cannot_be_noted_is_not_done(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "audit.jsonl").mkdir()
        async with exchanged(tmp_path, scripted) as s:
            told = await s.client.send("POST", "/v2/repository/models/demo/load", b"{}", ADMIN)
            assert (told.status, "audit file" in told.json()["error"]) == (500, True)
            assert await s.version() == "demo@1"

    asyncio.run(story())


def test_an_engine_that_was_given_has_no_versions_to_load(tmp_path: Path) -> None:
    async def story() -> None:
        app = create_app(
            Settings(**(SETTINGS | {"admin_key": "boss", "data_dir": tmp_path})),
            engine=scripted(),
        )
        async with living(app):
            client = Client(app, lambda: 0)
            reply = await client.send("POST", "/admin/engines/demo/load", b"{}", ADMIN)
            assert (reply.status, reply.error["code"]) == (400, "versions_not_here")
            assert "given by the program" in reply.error["message"]

    asyncio.run(story())


def test_an_engine_of_another_server_and_several_ones_say_why_they_load_no_version() -> None:
    whys = {
        "vllm://127.0.0.1:1/demo": "start its server with another model",
        "script://auto": "not prepared here",
        "several://demo=script://auto,demo=script://auto": "Of several engines none is exchanged",
    }

    async def refusal(engine: str) -> str:
        app = create_app(Settings(**(SETTINGS | {"admin_key": "boss", "engine": engine})))
        client = Client(app, lambda: 0)
        reply = await client.send("POST", "/admin/engines/demo/load", b'{"version": 2}', ADMIN)
        assert (reply.status, reply.error["code"]) == (400, "versions_not_here")
        return str(reply.error["message"])

    for engine, why in whys.items():
        assert why in asyncio.run(refusal(engine))


@pytest.mark.parametrize("rest", ["aZ3" + "b" * 19, "0" * 48])
def test_an_id_says_its_version_in_its_present_form_and_in_the_older_one(rest: str) -> None:
    assert number_in(f"resp_00000a{rest}") == 10
    assert number_in(f"resp_{rest}") is None
