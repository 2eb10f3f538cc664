"""Clients that keep nothing here: sealed reasoning, and items that are only referred to.

A prompt is looked at as the ids that the engine was given. Budget: 5 s on one core.
"""

from __future__ import annotations

import asyncio
import base64
import stat
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON, Call, asked
from tests.support.scripted.engine import Script
from tests.support.sdk_judge import refused
from tests.support.served import ANSWER, CALL, THOUGHT, WEATHER, ids, script, served, vocabulary
from trt_responses.errors import StartupError
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
from tests.support.served import KEY, KEYED, result, written

SEALED: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
OTHER_KEY = base64.b64encode(bytes(range(1, 33))).decode()

TWICE = (
    "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant"
    "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant"
    '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city":"Bern"}<|call|>'
)


def letters(text: str) -> Script:
    """A script that spells its words letter by letter: ids that no tokeniser gives."""
    head, _, rest = text.partition("<|message|>")
    words, _, tail = rest.partition("<|end|>")
    spelled = [vocabulary().encoding.encode(letter)[0] for letter in words]
    written = (*ids(f"{head}<|message|>"), *spelled, *ids(f"<|end|>{tail}"))
    return Script(tuple((token_id,) for token_id in written))


def sealed(output: Sequence[dict[str, Any]]) -> list[Any]:
    return [item.get("encrypted_content") for item in output if item["type"] == "reasoning"]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("wrote", [script(CALL), letters(CALL), script(TWICE)], ids=range(3))
def test_a_tool_loop_that_replays_its_items_renders_to_the_ids_that_were_generated(
    wrote: Script, stream: bool
) -> None:
    async def story() -> None:
        async with served(wrote, wrote, script(ANSWER), **KEYED) as s:
            more = SEALED | {"tools": [WEATHER], "instructions": "Be brief.", "stream": stream}
            said: list[dict[str, Any]] = [{"role": "user", "content": "The weather?"}]
            for turn in range(3):
                call = await s.client.create(input=said, **more)
                last = call.events[-1]["response"] if stream else call.json()
                assert last["status"] == "completed"
                if stream:
                    assert not list(filter(None, map(refused, call.events)))
                if turn < 2:
                    said += [*last["output"], result(last["output"][-1]["call_id"])]
            kept = written(wrote)
            tail = ids(
                "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>"
                "Sunny.<|end|><|start|>assistant"
            )
            for turn in (1, 2):
                assert s.prompt(turn) == [*s.prompt(turn - 1), *kept, *tail]

    asyncio.run(story())


def test_without_the_seal_the_ids_would_be_others() -> None:
    """The test above is worth something only if rendering anew gives other ids."""

    async def story() -> None:
        async with served(letters(CALL), ANSWER, **KEYED) as s:
            first = (await s.client.create(store=False, tools=[WEATHER])).json()
            said = [{"role": "user", "content": "Hello"}, *first["output"]]
            said.append(result(first["output"][-1]["call_id"]))
            await s.client.create(input=said, store=False, tools=[WEATHER])
            one, two = s.prompt(0), s.prompt(1)
            assert two[: len(one)] == one
            assert two[len(one) :][: len(written(letters(CALL)))] != written(letters(CALL))

    asyncio.run(story())


def test_what_an_item_carries_when_it_is_done_renders_the_thought_itself() -> None:
    """A client that takes its items as they are done, and strips them to what it needs."""

    async def story() -> None:
        wrote = letters(CALL)
        async with served(wrote, ANSWER, **KEYED) as s:
            call = await s.client.create(**SEALED, tools=[WEATHER], stream=True)
            kind = "response.output_item.done"
            done = [event["item"] for event in call.events if event["type"] == kind]
            assert [item["type"] for item in done] == ["reasoning", "function_call"]
            bare: dict[str, Any] = {"type": "reasoning", "summary": [], "content": None}
            bare["encrypted_content"] = done[0]["encrypted_content"]
            drop = ("id", "status")
            calls = {key: value for key, value in done[1].items() if key not in drop}
            said = [{"role": "user", "content": "Hello"}, bare, calls, result(calls["call_id"])]
            await s.client.create(input=said, **SEALED, tools=[WEATHER])
            one, two = s.prompt(0), s.prompt(1)
            thought = written(wrote)[: written(wrote).index(200007) + 1]
            assert two[: len(one) + len(thought)] == [*one, *thought]

    asyncio.run(story())


def test_an_item_without_words_is_what_was_sealed() -> None:
    async def story() -> None:
        async with served(letters(CALL), ANSWER, **KEYED) as s:
            first = (await s.client.create(**SEALED, tools=[WEATHER])).json()
            output = first["output"]
            output[0] = {"type": "reasoning", "summary": [], "content": []} | {
                "encrypted_content": output[0]["encrypted_content"]
            }
            said = [{"role": "user", "content": "Hello"}, *output]
            said.append(result(output[-1]["call_id"]))
            await s.client.create(input=said, **SEALED, tools=[WEATHER])
            one, two = s.prompt(0), s.prompt(1)
            kept = written(letters(CALL))
            assert two[: len(one) + len(kept)] == [*one, *kept]

    asyncio.run(story())


def test_words_that_a_client_has_changed_are_rendered_as_they_are_now() -> None:
    async def story() -> None:
        async with served(CALL, ANSWER, **KEYED) as s:
            first = (await s.client.create(**SEALED, tools=[WEATHER])).json()
            thought, call = first["output"]
            thought["content"][0]["text"] = "I need a boat."
            call["arguments"] = '{"city": "Basel"}'
            said = [{"role": "user", "content": "Hello"}, thought, call, result(call["call_id"])]
            made = await s.client.create(input=said, **SEALED, tools=[WEATHER])
            assert made.status == 200
            text = s.prompt_text()
            assert "I need a boat." in text
            assert "Basel" in text
            assert "I need the weather." not in text
            assert "Bern" not in text

    asyncio.run(story())


def test_reasoning_is_sealed_only_when_it_is_asked_for() -> None:
    async def story() -> None:
        async with served(THOUGHT, **KEYED) as s:
            for more in ({}, {"store": False}, {"include": ["message.input_image.image_url"]}):
                made = (await s.client.create(**more)).json()
                assert "encrypted_content" not in made["output"][0]
            kept = (await s.client.create(include=SEALED["include"])).json()
            (blob,) = sealed(kept["output"])
            assert blob.startswith("trtr1_")
            assert "They greet me" not in base64.urlsafe_b64decode(blob[6:]).decode("latin-1")
            assert (await s.client.get(f"/v1/responses/{kept['id']}")).json() == kept

    asyncio.run(story())


def spoilt(blob: str) -> list[str]:
    """The blob with one thing wrong."""
    places = (6, 10, 14, 30, len(blob) - 5)
    flipped = [
        blob[:place] + ("A" if blob[place] != "A" else "B") + blob[place + 1 :] for place in places
    ]
    return [*flipped, blob[:40], blob[:6], blob + "AAAA", blob[:-4], blob[:20] + "!" + blob[21:]]


def test_what_was_tampered_with_is_refused_by_name() -> None:
    async def story() -> None:
        async with served(THOUGHT, **KEYED) as s:
            made = (await s.client.create(**SEALED)).json()
            (blob,) = sealed(made["output"])
            for wrong in spoilt(blob):
                item = made["output"][0] | {"encrypted_content": wrong}
                said = [{"role": "user", "content": "a"}, item]
                call = await s.client.create(input=said, **SEALED)
                assert call.status == 400, wrong
                assert call.error["param"] == "input[1].encrypted_content"
                assert call.error["code"] == "invalid_encrypted_content"

    asyncio.run(story())


def test_another_owner_cannot_open_it() -> None:
    async def story() -> None:
        async with served(THOUGHT, api_keys="a:k1,b:k2", **KEYED) as s:

            async def ask(key: str, **fields: Any) -> Call:
                headers = JSON | {"authorization": f"Bearer {key}"}
                body = orjson.dumps(asked(**fields))
                return await s.client.send("POST", "/v1/responses", body, headers)

            made = (await ask("k1", **SEALED)).json()
            said = [{"role": "user", "content": "Hello"}, *made["output"]]
            assert (await ask("k1", input=said, **SEALED)).status == 200
            call = await ask("k2", input=said, **SEALED)
            assert (call.status, call.error["param"]) == (400, "input[1].encrypted_content")

    asyncio.run(story())


def test_what_others_have_sealed_is_left_alone() -> None:
    async def story() -> None:
        async with served(**KEYED) as s:
            foreign = {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "In short."}],
                "encrypted_content": "gAAAAABnotours",
            }
            call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
            said = [{"role": "user", "content": "Hello"}, foreign, call, result("c")]
            assert (await s.client.create(input=said, **SEALED)).status == 200
            assert "<|channel|>analysis<|message|>In short.<|end|>" in s.prompt_text()
            said[1] = foreign | {"summary": []}
            assert (await s.client.create(input=said, **SEALED)).status == 200
            assert "analysis<|message|>" not in s.prompt_text()

    asyncio.run(story())


def test_keys_are_shared_by_replicas_and_may_be_changed() -> None:
    async def story() -> None:
        async with served(THOUGHT, **KEYED) as s:
            made = (await s.client.create(**SEALED)).json()
            said = [{"role": "user", "content": "Hello"}, *made["output"]]
        for keys, status in ((KEY, 200), (f"{OTHER_KEY},{KEY}", 200), (OTHER_KEY, 400)):
            async with served(THOUGHT, seal_keys=keys) as s:
                assert (await s.client.create(input=said, **SEALED)).status == status

    asyncio.run(story())


def test_a_server_without_shared_keys_has_a_file_of_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        key = tmp_path / "deep" / "seal.key"
        more: dict[str, Any] = {"data_dir": key.parent}
        async with served(THOUGHT, **more) as s:
            await s.client.create()
            assert not key.exists(), "it is made when it is needed"
            made = (await s.client.create(**SEALED)).json()
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert len(key.read_bytes()) == 32
        assert [path.name for path in key.parent.iterdir()] == ["seal.key"]
        said = [{"role": "user", "content": "Hello"}, *made["output"]]
        async with served(THOUGHT, **more) as s:
            assert (await s.client.create(input=said, **SEALED)).status == 200
        key.chmod(0o644)
        with pytest.raises(StartupError, match="0600"):
            async with served(**more):
                pass
        key.chmod(0o600)
        key.write_bytes(b"short")
        with pytest.raises(StartupError, match="32 bytes"):
            async with served(**more):
                pass

    asyncio.run(story())


def test_a_replayed_conversation_keeps_its_first_date() -> None:
    async def story() -> None:
        async with served(CALL, ANSWER, **KEYED) as s:
            first = (await s.client.create(**SEALED, tools=[WEATHER])).json()
            said = [{"role": "user", "content": "Hello"}, *first["output"]]
            said.append(result(first["output"][-1]["call_id"]))
        async with served(ANSWER, date="2026-02-04", **KEYED) as s:
            await s.client.create(input=said, **SEALED, tools=[WEATHER])
            assert "Current date: 2026-02-03" in s.prompt_text()

    asyncio.run(story())


def test_a_sealed_turn_in_the_background_is_stored_as_it_is_told() -> None:
    async def story() -> None:
        async with served(THOUGHT, **KEYED) as s:
            more: dict[str, Any] = {"include": SEALED["include"], "background": True}
            call = await s.client.create(stream=True, **more)
            last = call.events[-1]["response"]
            assert last["output"][0]["encrypted_content"].startswith("trtr1_")
            at = f"/v1/responses/{last['id']}"
            assert (await s.client.get(at)).json() == last
            assert (await s.client.get(at + "?stream=true")).body == call.body

    asyncio.run(story())


# --- references -------------------------------------------------------------------------------


def reference(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "item_reference", "id": item["id"]} | more


@pytest.mark.parametrize("form", [{}, {"type": None}], ids=["typed", "untyped"])
def test_items_that_are_referred_to_are_those_that_were_given(form: dict[str, Any]) -> None:
    """As a client does that replays a conversation by reference: no previous id."""

    async def story() -> None:
        wrote = letters(CALL)
        async with served(wrote, ANSWER) as s:
            first = (await s.client.create(tools=[WEATHER])).json()
            said = [{"role": "user", "content": "Hello"}]
            said += [reference(item, **form) for item in first["output"]]
            said.append(result(first["output"][-1]["call_id"]))
            call = await s.client.create(input=said, tools=[WEATHER])
            assert call.status == 200, call.body
            one, two, kept = s.prompt(0), s.prompt(1), written(wrote)
            assert two[: len(one) + len(kept)] == [*one, *kept]
            listed = await s.client.get(f"/v1/responses/{call.json()['id']}/input_items?order=asc")
            assert [i["type"] for i in listed.json()["data"]] == [
                *("message", "reasoning", "function_call", "function_call_output"),
            ]
            assert listed.json()["data"][2]["id"] == first["output"][-1]["id"]

    asyncio.run(story())


def test_what_the_conversation_holds_is_not_said_twice() -> None:
    async def story() -> None:
        async with served(CALL, ANSWER) as s:
            first = (await s.client.create(tools=[WEATHER])).json()
            thought, called = first["output"]
            follow = {"previous_response_id": first["id"], "tools": [WEATHER]}
            out = result(called["call_id"])
            await s.client.create(input=[out], **follow)
            await s.client.create(input=[reference(thought), reference(called), out], **follow)
            assert s.prompt(1) == s.prompt(2)

    asyncio.run(story())


def test_what_is_not_there_is_refused_at_its_place() -> None:
    async def story() -> None:
        store = MemoryStore(Bounds(max_records=2))
        async with served(THOUGHT, store=store, api_keys="a:k1,b:k2") as s:

            async def ask(key: str, **fields: Any) -> Call:
                headers = JSON | {"authorization": f"Bearer {key}"}
                body = orjson.dumps(asked(**fields))
                return await s.client.send("POST", "/v1/responses", body, headers)

            made = (await ask("k1")).json()
            unstored = (await ask("k1", store=False)).json()
            known = made["output"][1]["id"]
            wrong = ["msg_x", "x", "msg_" + "0" * 52, known + "0", known[:-1]]
            wrong.append(unstored["output"][1]["id"])
            for item_id in wrong:
                said = [{"role": "user", "content": "a"}, {"type": "item_reference", "id": item_id}]
                call = await ask("k1", input=said)
                assert (call.status, call.error["param"]) == (404, "input[1].id"), item_id
                assert call.error["code"] == "item_not_found"
            said = [{"type": "item_reference", "id": known}]
            assert (await ask("k2", input=said)).error["param"] == "input[0].id"
            assert (await ask("k1", input=said)).status == 200

    asyncio.run(story())


def test_ids_of_items_are_their_own() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            seen: set[str] = set()
            for _ in range(5):
                made = (await s.client.create()).json()
                new = [made["id"], *(item["id"] for item in made["output"])]
                assert seen.isdisjoint(new)
                assert len(set(new)) == 3
                assert all(len(item_id) <= 64 for item_id in new)
                seen.update(new)

    asyncio.run(story())
