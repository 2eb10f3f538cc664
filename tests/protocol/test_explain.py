"""Explanations over HTTP: whose they are, how long they are kept, and what a setting hides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import JSON
from tests.support.served import CALL, THOUGHT, WEATHER, served
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.asgi import Call, Client
    from trt_responses.engine import GuideKind

ENDS = frozenset({CONTROL.endoftext})
GUIDES: Mapping[GuideKind, frozenset[int]] = {"json_schema": ENDS, "regex": ENDS}


async def explained(client: Client, response_id: str, query: str = "") -> Call:
    return await client.get(f"/v1/responses/{response_id}/explain{query}")


def text_of(pieces: list[dict[str, Any]]) -> str:
    return "".join(piece.get("control") or piece["text"] for piece in pieces)


def test_a_response_is_explained_from_its_prompt_to_its_end() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            made = (await s.client.create(instructions="Be kind.")).json()
            told = (await explained(s.client, made["id"])).json()
            assert (told["id"], told["status"], told["redacted"]) == (
                made["id"],
                "completed",
                False,
            )
            assert text_of(told["prompt"]["pieces"]) == s.prompt_text()
            assert told["prompt"]["tokens"] == made["usage"]["input_tokens"]
            (segment,) = told["segments"]
            assert text_of(segment["kept"]) == THOUGHT
            assert (segment["name"], segment["forced"], segment["discarded"]) == ("free", [], [])
            opened = [f["opened"]["channel"] for f in told["fragments"] if "opened" in f]
            assert opened == ["analysis", "final"]
            times = [mark["at_ms"] for mark in told["timeline"]]
            assert times == sorted(times)
            assert times[0] == 0
            assert {"sent to engine", "first token", "ended"} <= {
                mark["mark"] for mark in told["timeline"]
            }
            assert told["engine"] == {"kind": "given"}

    asyncio.run(story())


def test_a_steered_response_tells_what_was_forced_kept_and_discarded() -> None:
    async def story() -> None:
        written = ("They ask.<|end|>", "true<|endoftext|> and more<|return|>")
        async with served(*written, guides=GUIDES) as s:
            form = {"type": "json_schema", "name": "it", "schema": {"type": "boolean"}}
            made = (await s.client.create(text={"format": form})).json()
            told = (await explained(s.client, made["id"])).json()
            thought, body = told["segments"]
            assert text_of(thought["forced"]) == "<|channel|>analysis<|message|>"
            assert thought["ended_by"] == "<|end|>"
            assert text_of(body["forced"]).endswith("final<|message|>")
            assert text_of(body["kept"]) == "true<|return|>"
            assert body["ended_by"] == "<|endoftext|>"
            assert body["guide"]["kind"] == "json_schema"

    asyncio.run(story())


def test_a_transcript_is_written_for_the_tests() -> None:
    async def story() -> None:
        async with served(CALL) as s:
            made = (await s.client.create(tools=[WEATHER])).json()
            file = await explained(s.client, made["id"], "?transcript=seen_in_production")
            transcript = file.json()
            assert transcript["name"] == "seen_in_production"
            assert transcript["tools"] == ["weather"]
            assert "".join("".join(part["steps"]) for part in transcript["segments"]) == CALL
            assert transcript["response"]["output"][-1] == ["function_call", "completed"]
            assert file.body.count(b"\n") > len(transcript["log"])  # for people to read
            for wrong in ("?transcript=", "?transcript=../x", "?transcript=A"):
                refused = await explained(s.client, made["id"], wrong)
                assert (refused.status, refused.error["param"]) == (400, "transcript")

    asyncio.run(story())


def test_a_turn_of_several_calls_has_no_transcript() -> None:
    again = "<|start|>assistant" + CALL.partition("<|start|>assistant")[2]

    async def story() -> None:
        async with served(CALL, again.removeprefix("<|start|>assistant"), max_calls=2) as s:
            made = (await s.client.create(tools=[WEATHER])).json()
            assert [i["type"] for i in made["output"]].count("function_call") == 2
            assert (await explained(s.client, made["id"])).status == 200
            refused = await explained(s.client, made["id"], "?transcript=two")
            assert (refused.status, refused.error["code"]) == (400, "several_calls")

    asyncio.run(story())


def test_a_response_is_explained_to_its_owner_alone_and_until_it_is_deleted() -> None:
    ann, bob = (JSON | {"authorization": f"Bearer {key}"} for key in ("a1", "b1"))

    async def story() -> None:
        async with served(api_keys="ann:a1,bob:b1") as s:
            body = b'{"model": "demo", "input": "Hello"}'
            made = (await s.client.send("POST", "/v1/responses", body, ann)).json()
            path = f"/v1/responses/{made['id']}"
            for headers, status in ((ann, 200), (bob, 404), (JSON, 401)):
                assert (
                    await s.client.send("GET", path + "/explain", b"", headers)
                ).status == status
            await s.client.send("DELETE", path, b"", ann)
            gone = await s.client.send("GET", path + "/explain", b"", ann)
            assert (gone.status, gone.error["code"]) == (404, "explanation_not_kept")

    asyncio.run(story())


def test_what_is_not_stored_is_not_kept_to_be_explained_either() -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create(store=False)).json()
            assert (await explained(s.client, made["id"])).status == 404

    asyncio.run(story())


def test_the_oldest_leave_when_there_is_no_room() -> None:
    async def story() -> None:
        async with served(explain_bytes=16_384) as s:
            made = [(await s.client.create()).json()["id"] for _ in range(8)]
            found = [(await explained(s.client, one)).status for one in made]
            assert found == sorted(found, reverse=True)
            assert found[0] == 404
            assert found[-1] == 200

    asyncio.run(story())


def test_a_redacted_explanation_has_counts_in_the_place_of_texts() -> None:
    async def story() -> None:
        async with served(THOUGHT, explain="redacted") as s:
            made = (await s.client.create(input="A secret.")).json()
            told = await explained(s.client, made["id"])
            assert told.json()["redacted"] is True
            for word in (b"secret", b"friend", b"greet", b'"ids"', b'"text"'):
                assert word not in told.body
            refused = await explained(s.client, made["id"], "?transcript=x")
            assert (refused.status, refused.error["code"]) == (403, "explain_redacted")

    asyncio.run(story())


@pytest.mark.parametrize("settings", [{"explain": "off"}, {"explain_bytes": 0}])
def test_nothing_is_kept_where_a_setting_says_so(settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with served(**settings) as s:
            made = (await s.client.create()).json()
            refused = await explained(s.client, made["id"])
            assert refused.status == (403 if "explain" in settings else 404)
            why = "TRT_RESPONSES_EXPLAIN" if "explain" in settings else "only recent responses"
            assert why in refused.error["message"]

    asyncio.run(story())


def test_a_run_in_the_background_is_explained_at_its_end() -> None:
    async def story() -> None:
        async with served() as s:
            streamed = await s.client.create(background=True, stream=True)
            made = streamed.events[-1]["response"]
            assert (await explained(s.client, made["id"])).status == 200

    asyncio.run(story())
