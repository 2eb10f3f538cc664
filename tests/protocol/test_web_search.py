"""`web_search` over HTTP: its items, events, choices and citations, streamed and plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.paper_web import PaperBrowser, Service
from tests.support.replies import check_streamed, without_ids
from tests.support.scripted.engine import Script
from tests.support.served import ids, script, served, vocabulary
from tests.support.small_web import answering, calling
from tests.support.steering import GUIDES
from tests.support.story import story
from trt_responses.tools.browser.search import SearchFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.asgi import Json
    from trt_responses.engine import GenerateOptions

TOOL = {"type": "web_search"}
SEARCH = calling("search", '{"query": "q", "topn": 1}')
OPEN = calling("open", '{"id": "https://a.test/one"}')
CALLED = "to=assistant"
"""Stands in a prompt once a tool has answered."""
ONE = "([a.test](https://a.test/one))"
TEXT = "First 🐈【0†L2】【0†L2-L3】, 【4†L1】 and 【0†L"
TOLD = f"First 🐈 {ONE} {ONE}, 【4†L1】 and 【0†L"
NAMES = ["web_search", "web_search_2025_08_26", "web_search_preview"]
NAMES += ["web_search_preview_2025_03_11"]


def events_of(events: list[Json], index: int) -> list[str]:
    kinds = [
        event["type"].removeprefix("response.")
        for event in events
        if event.get("output_index") == index
    ]
    return [kind for place, kind in enumerate(kinds) if not place or kinds[place - 1] != kind]


def calls(response: Json) -> list[Json]:
    return [item for item in response["output"] if item["type"] == "web_search_call"]


@pytest.mark.parametrize("kind", NAMES)
@story
async def test_a_search_is_told_when_its_arguments_are_whole(kind: str) -> None:
    async with served(SEARCH, answering("Yes."), tools=[PaperBrowser()]) as app:
        call = await app.client.create(stream=True, tools=[{"type": kind}])
        last = check_streamed(call)
        assert "# Tools\n\n## browser\n\n// Tool for browsing." in app.prompt_text(0)
    assert events_of(call.events, 1) == [
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
    ]
    action = {"type": "search", "query": "q", "queries": ["q"]}
    added = next(e for e in call.events if e["type"].endswith("added") and e["output_index"] == 1)
    assert added["item"]["action"] == action
    assert [item["action"] for item in calls(last)] == [action]


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 1000])
@story
async def test_citations_are_right_however_the_answer_is_split(steps: int) -> None:
    every = ids(answering(TEXT))
    split = Script(tuple(every[at : at + steps] for at in range(0, len(every), steps)))
    async with served(SEARCH, split, tools=[PaperBrowser()]) as app:
        call = await app.client.create(stream=True, tools=[TOOL])
        last = check_streamed(call)
        parts = last["output"][-1]["content"]
        deltas = [e["delta"] for e in call.events if e["type"] == "response.output_text.delta"]
        done = next(e for e in call.events if e["type"] == "response.output_text.done")
        assert "".join(deltas) == done["text"] == parts[0]["text"] == TOLD
        covered = [TOLD[a["start_index"] : a["end_index"]] for a in parts[0]["annotations"]]
        assert covered == [ONE, ONE]
        added = [e for e in call.events if e["type"].endswith("annotation.added")]
        assert [e["annotation"] for e in added] == parts[0]["annotations"]
        assert [e["annotation_index"] for e in added] == [0, 1]
        for event in added:  # its text has been told before it
            before = [e for e in call.events if e["sequence_number"] < event["sequence_number"]]
            told = "".join(e["delta"] for e in before if e["type"].endswith("output_text.delta"))
            assert len(told) >= event["annotation"]["end_index"]
        await app.client.create(previous_response_id=last["id"], input="And?")
        assert f"{TEXT}<|end|>" in app.prompt_text()


@story
async def test_a_mark_of_lines_that_were_not_shown_stays_text() -> None:
    first = OPEN.replace("}", ', "num_lines": 20, "loc": 5}')
    text = "A【0†L9999】【0†L4】【0†L25】【0†L7-L6】【0†L24-L25】 B【0†L5-L24】."
    async with served(first, answering(text), tools=[PaperBrowser()]) as app:
        last = (await app.client.create(tools=[TOOL])).json()
    (part,) = last["output"][-1]["content"]
    link = "([a.test](https://a.test/one))"
    assert part["text"] == text.replace("【0†L5-L24】", f" {link}")
    assert [a["url"] for a in part["annotations"]] == ["https://a.test/one"]


@pytest.mark.parametrize("stored", [True, False])
@story
async def test_what_an_earlier_turn_cited_may_be_opened(stored: bool) -> None:
    other = OPEN.replace("/one", "/never")
    turns = (SEARCH, answering(TEXT), OPEN, answering("Yes."), other, answering("No."))
    async with served(*turns, tools=[PaperBrowser(only_seen=True)]) as app:
        last = (await app.client.create(input="Hi", tools=[TOOL], store=stored)).json()
        for expected in ("completed", "failed"):
            told = {"previous_response_id": last["id"], "input": "Open it."}
            if not stored:
                keep = [item for item in last["output"] if item["type"] == "message"]
                told = {"input": [*keep, {"role": "user", "content": "Open it."}]}
            (item,) = calls((await app.client.create(**told, tools=[TOOL], store=stored)).json())
            assert item["status"] == expected


@pytest.mark.parametrize("kind", ["previous", "conversation"])
@story
async def test_a_page_of_an_earlier_turn_is_scrolled_and_cited_and_cursors_go_on(kind: str) -> None:
    first = SEARCH, OPEN, answering("One【1†L2】.")
    scroll, new = calling("open", '{"cursor": 1, "loc": 40}'), calling("search", '{"query": "n"}')
    then = scroll, new, answering("Two【1†L3】【2†L41】【3†L2】【0†L2】.")
    async with served(*first, *then, tools=[PaperBrowser(only_seen=True)]) as app:
        fields: Json = {}
        if kind == "conversation":
            made = await app.client.send("POST", "/v1/conversations", b"{}")
            fields = {"conversation": made.json()["id"]}
        last = (await app.client.create(input="Hi", tools=[TOOL], **fields)).json()
        if kind == "previous":
            fields = {"previous_response_id": last["id"]}
        call = await app.client.create(input="Go on.", tools=[TOOL], stream=True, **fields)
        last = check_streamed(call)
        assert "[2] Title of https://a.test/one (https://a.test/one)" in app.prompt_text(4)
        assert "[3] n\n" in app.prompt_text(5)
    assert [item["status"] for item in calls(last)] == ["completed", "completed"]
    cited = [note["url"] for note in last["output"][-1]["content"][0]["annotations"]]
    assert cited == ["https://a.test/one"] * 4


@story
async def test_streamed_equals_plain() -> None:
    replies = []
    for stream in (True, False):
        async with served(SEARCH, answering(TEXT), tools=[PaperBrowser()]) as app:
            call = await app.client.create(stream=stream, tools=[TOOL])
            replies.append(check_streamed(call) if stream else call.json())
    streamed, plain = (without_ids(reply)["output"] for reply in replies)
    assert streamed == plain


@story
async def test_an_answer_that_is_json_keeps_its_marks() -> None:
    def turns(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        kind = options.guide.kind if options.guide else "free"
        called = CALLED in vocabulary().text(list(prompt_ids))
        header = "final" if called else "analysis to=browser.search code"
        says = {"free": "Hm.<|end|>", "regex": f"{header}<|endoftext|>"}
        if kind == "free" and vocabulary().text(list(prompt_ids)).endswith("code<|message|>"):
            return script('{"query": "q"}<|call|>')
        return script(says.get(kind, '{"a":"b【0†L2】"}<|endoftext|>'))

    form = {"format": {"type": "json_object"}}
    async with served(turns, tools=[PaperBrowser()], guides=GUIDES) as app:
        last = (await app.client.create(tools=[TOOL], text=form)).json()
    assert len(calls(last)) == 1, last
    (part,) = last["output"][-1]["content"]
    assert (part["text"], part["annotations"]) == ('{"a":"b【0†L2】"}', [])


@story
async def test_without_the_tool_marks_are_text() -> None:
    async with served(answering("a【0†L2】"), tools=[PaperBrowser()]) as app:
        (part,) = (await app.client.create()).json()["output"][-1]["content"]
    assert (part["text"], part["annotations"]) == ("a【0†L2】", [])


@story
async def test_logprobs_are_of_the_ids_that_the_model_wrote() -> None:
    wanted = ["message.output_text.logprobs"]
    async with served(SEARCH, answering(TEXT), tools=[PaperBrowser()]) as app:
        call = await app.client.create(stream=True, tools=[TOOL], include=wanted)
        last = check_streamed(call)
    (part,) = last["output"][-1]["content"]
    assert part["text"] == TOLD
    raw = b"".join(bytes(entry["bytes"]) for entry in part["logprobs"])
    assert raw.decode() == TEXT
    deltas = [e for e in call.events if e["type"] == "response.output_text.delta"]
    assert sum(len(e["logprobs"]) for e in deltas) == len(part["logprobs"])


@story
async def test_a_failed_search_is_a_failed_item_and_told_to_the_model() -> None:
    browser = PaperBrowser(Service(SearchFailed("the service answered 403")))
    async with served(SEARCH, answering("No."), tools=[browser]) as app:
        call = await app.client.create(stream=True, tools=[TOOL])
        (item,) = calls(check_streamed(call))
        assert "Error during search for `q`: the service answered 403.<|end|>" in app.prompt_text()
    assert item["status"] == "failed"
    assert "web_search_call.completed" not in events_of(call.events, 1)


@story
async def test_a_call_that_is_cut_is_incomplete() -> None:
    cut = Script((ids("<|channel|>analysis to=browser.open code<|message|>{"),), finish="length")
    async with served(cut, tools=[PaperBrowser()]) as app:
        call = await app.client.create(stream=True, tools=[TOOL])
        last = check_streamed(call)
    assert last["status"] == "incomplete"
    (item,) = calls(last)
    assert (item["status"], item["action"]) == ("incomplete", {"type": "open_page", "url": None})


@story
async def test_what_the_request_says_reaches_the_service() -> None:
    browser = PaperBrowser()
    tool = {
        "type": "web_search",
        "filters": {"allowed_domains": ["B.test"]},
        "user_location": {"type": "approximate", "country": "CH", "city": "Bern"},
        "search_context_size": "low",
        "external_web_access": True,
    }
    async with served(SEARCH, answering("Yes."), tools=[browser]) as app:
        call = await app.client.create(
            tools=[tool], include=["web_search_call.action.sources"], stream=False
        )
    ignored = "tools[].external_web_access, tools[].user_location.city"
    assert call.headers["x-trt-ignored"] == ignored
    (query,) = browser.service.asked
    assert (query.domains, query.country, query.most) == (("b.test",), "CH", 1)
    (item,) = calls(call.json())
    assert item["action"]["sources"] == [{"type": "url", "url": "https://sub.b.test/two"}]
    assert call.json()["tools"][0]["filters"] == {"allowed_domains": ["B.test"]}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"filters": {"allowed_domains": ["https://a.test/"]}}, "tools[0].filters"),
        ({"search_context_size": "huge"}, "tools[0].search_context_size"),
        ({"user_location": {"country": "Switzerland"}}, "tools[0].user_location.country"),
    ],
    ids=["domain", "size", "country"],
)
@story
async def test_what_is_wrong_is_refused_by_its_field(change: Json, param: str) -> None:
    async with served(tools=[PaperBrowser()]) as app:
        call = await app.client.create(tools=[TOOL | change])
    assert call.status == 400
    assert call.error["param"].startswith(param)


@pytest.mark.parametrize("name", ["web_search", "web_search_preview"])
@story
async def test_a_chosen_search_is_forced_and_what_follows_is_free(name: str) -> None:
    headers: list[str] = []

    def turns(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        text = vocabulary().text(list(prompt_ids))
        if options.guide is not None:
            headers.append(options.guide.source)
            header = "final" if CALLED in text else "analysis to=browser.open code"
            return script(f"{header}<|endoftext|>")
        if text.endswith("final<|message|>"):
            return script("Yes.<|return|>")
        if text.endswith("code<|message|>"):
            return script('{"id": "https://a.test/one"}<|call|>')
        return script("Hm.<|end|>")

    async with served(turns, tools=[PaperBrowser()], guides=GUIDES) as app:
        call = await app.client.create(tools=[TOOL], tool_choice={"type": name})
        again = await app.client.create(tools=[TOOL], tool_choice={"type": "code_interpreter"})
    last = call.json()
    assert last["tool_choice"] == {"type": name}
    assert [item["action"]["type"] for item in calls(last)] == ["open_page"]
    assert last["output"][-1]["content"][0]["text"] == "Yes."
    assert all("final" not in header for header in headers[:1])
    for recipient in PaperBrowser.recipients:
        assert recipient.replace(".", "\\.") in headers[0] or recipient in headers[0]
    assert (again.status, again.error["param"]) == (400, "tool_choice")
