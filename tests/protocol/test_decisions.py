"""`/v1/decisions` and `/v1/systemone`: answers with the probabilities that the engine gives.

Budget: 2 s on one core.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from openai.types import Decision

from tests.support.scripted.engine import Script
from tests.support.scripted.script import Scored
from tests.support.served import Served, served, vocabulary
from tests.support.served import ids as ids_of
from tests.support.steering import GUIDES
from trt_responses.engine import Logprob
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.asgi import Call
    from trt_responses.engine import GenerateOptions

Json = dict[str, Any]
PREDICATE = {"type": "predicate", "instructions": "It is urgent.", "name": "urgent"}
CHOICE: Json = {
    "type": "choice",
    "instructions": "Where does it go?",
    "choices": [{"value": "sales"}, {"value": True, "description": "help desk"}, {"value": "true"}],
}
LEVELS = [{"label": label} for label in ("calm", "cross", "furious")]
SCORE = {"type": "score", "instructions": "How angry?", "levels": LEVELS}


class Likely:
    """A model by what its next token is likely to be, which is given by the end of its prompt: of
    all tokens the likeliest are told, without those that are banned."""

    def __init__(self, tokens: Mapping[str, float], *, normalises: bool = False) -> None:
        self.tokens = {ids_of(text)[0]: share for text, share in tokens.items()}
        self.normalises = normalises
        self.prompts: list[str] = []

    def __call__(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        self.prompts.append(vocabulary().text(list(prompt_ids)))
        left = {n: p for n, p in self.tokens.items() if n not in options.banned_ids}
        if options.guide is not None:  # the token that it leaves, and likely ones beside it
            (forced,) = ids_of(options.guide.source)
            own = (Logprob(forced, math.log(left[forced]), ((0, math.log(0.5)),)),)
            return Script((Scored(own),))
        whole = sum(left.values()) if self.normalises else 1.0
        best = sorted(left, key=lambda n: -left[n])
        top = tuple((n, math.log(left[n] / whole)) for n in best[: options.logprobs])
        return Script((Scored((Logprob(best[0], top[0][1], top),)),))


async def asked(s: Served, path: str = "decisions", **fields: Any) -> Call:
    return await s.client.send("POST", f"/v1/{path}", orjson.dumps(fields))


def decided(model: Likely, *questions: Json, **settings: Any) -> Json:
    async def story() -> Json:
        async with served(model, **settings) as s:
            call = await asked(s, model="demo", input="My order!", questions=questions)
            assert call.status == 200, call.body
            Decision.model_validate_json(call.body, strict=True)
            assert not len(s.runs)
            body: Json = call.json()
            return body

    return asyncio.run(story())


TOKENS = {"yes": 0.3, "Yes": 0.3, "no": 0.2, "A": 0.08, "B": 0.04, "C": 0.04, "0": 0.01, "1": 0.03}


def test_answers_are_the_model_s_own_probabilities() -> None:
    model = Likely(TOKENS)
    body = decided(model, PREDICATE, CHOICE, SCORE)
    predicate, choice, score = body["answers"]
    assert predicate == {"type": "predicate", "name": "urgent", "probability": pytest.approx(0.75)}
    shares = [each["probability"] for each in choice["probabilities"]]
    assert shares == [pytest.approx(share) for share in (0.5, 0.25, 0.25)]
    assert [each["value"] for each in choice["probabilities"]] == ["sales", True, "true"]
    assert (choice["choice"], choice["name"]) == ("sales", None)
    assert choice["confidence"] == pytest.approx(0.5 * 0.16)
    assert score["score"] == pytest.approx(0.75)
    assert [each["label"] for each in score["probabilities"]] == ["calm", "cross", "furious"]
    assert body["usage"]["output_tokens"] >= 3


def test_all_prompts_begin_alike_and_end_where_the_answer_begins() -> None:
    model = Likely(TOKENS)
    decided(model, PREDICATE, CHOICE)
    first, second = model.prompts[0], model.prompts[-1]
    begin = first.index("Question about the above")
    assert "My order!" in first[:begin]
    assert second.startswith(first[:begin])
    assert all(prompt.endswith("<|channel|>final<|message|>") for prompt in model.prompts)


@pytest.mark.parametrize("normalises", [False, True])
def test_a_label_beyond_the_likeliest_tokens_is_read_without_them(normalises: bool) -> None:
    likelier = {chr(97 + n): 0.03 for n in range(19)}
    model = Likely({"yes": 0.3, **likelier, "no": 0.01, "Yes": 0.0}, normalises=False)
    model.tokens.pop(ids_of("Yes")[0])
    model.normalises = normalises
    (answer,) = decided(model, PREDICATE)["answers"]
    assert answer["probability"] == pytest.approx(0.3 / 0.31)
    assert len(model.prompts) == 2


def test_a_guide_forces_a_label_that_the_likeliest_tokens_lack() -> None:
    likelier = {chr(97 + n): 0.03 for n in range(20)}
    model = Likely(likelier | {"yes": 1e-6, "no": 3e-6})
    (answer,) = decided(model, PREDICATE, guides=GUIDES)["answers"]
    assert answer["probability"] == pytest.approx(0.25)
    assert len(model.prompts) == 3


def test_255_choices_have_labels_of_two_tokens() -> None:
    class Tree(Likely):
        def __call__(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
            at_letter = vocabulary().text(list(prompt_ids)).endswith("<|message|>")
            letters = {chr(65 + n): 0.5 / 16 for n in range(16)}
            self.tokens = Likely(letters if at_letter else {"3": 0.9, "1": 0.1}).tokens
            return super().__call__(prompt_ids, options)

    choices = [{"value": f"v{n}"} for n in range(255)]
    (answer,) = decided(Tree({"A": 1}), CHOICE | {"choices": choices})["answers"]
    shares = [each["probability"] for each in answer["probabilities"]]
    assert sum(shares) == pytest.approx(1)
    assert shares[2] == shares[18] == pytest.approx(0.9 / 16)
    assert shares[1] == 0


def test_a_file_corrects_probabilities(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps({"predicate": {"temperature": 2, "bias": 1}}))
    (answer,) = decided(Likely(TOKENS), PREDICATE, decisions_calibration=file)["answers"]
    odds = math.sqrt(3) * math.e
    assert answer["probability"] == pytest.approx(odds / (1 + odds))
    for wrong in (
        "[]",
        '{"guess": {}}',
        '{"score": {"temperature": 0}}',
        "{",
        '{"score": {"x": 1}}',
    ):
        file.write_text(wrong)
        with pytest.raises(StartupError, match="DECISIONS_CALIBRATION"):
            decided(Likely(TOKENS), PREDICATE, decisions_calibration=file)


def test_a_stored_response_and_a_conversation_are_asked_about_and_stay_as_they_are() -> None:
    model = Likely(TOKENS)

    async def story() -> None:
        async with served("<|channel|>final<|message|>Hello.<|return|>", model) as s:
            stored = (await s.client.create(input="My order!")).json()["id"]
            body = {"items": [{"role": "user", "content": "Where is it?"}]}
            made = await s.client.send("POST", "/v1/conversations", orjson.dumps(body))
            talk = made.json()["id"]
            for fields in ({"previous_response_id": stored}, {"conversation": talk}):
                call = await asked(s, questions=[PREDICATE], **fields)
                assert call.status == 200, call.body
                Decision.model_validate_json(call.body)
            assert "Hello.<|end|>" in model.prompts[0]
            assert "Where is it?" in model.prompts[1]
            items = (await s.client.get(f"/v1/conversations/{talk}/items")).json()["data"]
            assert len(items) == 1
            for fields in ({"previous_response_id": "resp_x"}, {"conversation": "conv_x"}):
                call = await asked(s, questions=[PREDICATE], **fields)
                assert call.error["param"] in fields

    asyncio.run(story())


def test_systemone_answers_in_vllm_s_words() -> None:
    questions = {
        "urgent": {"type": "noul", "instructions": "Is it urgent?", "criteria": None},
        "where": {"type": "choice", "criteria": {"sales": None, "help": "broken"}},
        "anger": {"type": "score", "instructions": "How?", "criteria": ["calm", "cross"]},
    }

    async def story() -> None:
        async with served(Likely(TOKENS)) as s:
            call = await asked(s, "systemone", state={"order": 7}, questions=questions)
            assert call.status == 200, call.body
            body = call.json()
            assert body["object"] == "structured_decision"
            answers = body["answers"]
            assert answers["urgent"]["noul"] == pytest.approx(0.75)
            assert answers["where"]["choice"] == "sales"
            assert answers["anger"]["legend"] == {"0": "calm", "1": "cross"}
            assert body["diagnostics"]["where"]["label_mass"] == pytest.approx(0.12)
            call = await asked(s, "systemone", state="", questions=questions, joint=True)
            assert call.error["param"] == "joint"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"questions": []}, "questions"),
        ({"questions": [PREDICATE] * 401}, "questions"),
        ({"questions": [CHOICE | {"choices": [{"value": "a"}]}]}, "questions[0].choices"),
        ({"questions": [CHOICE | {"choices": [{"value": "a"}, {"value": "a"}]}]}, "questions[0]"),
        ({"questions": [{"type": "guess", "instructions": "x"}]}, "questions[0]"),
        ({"questions": [PREDICATE], "input": ""}, "input"),
        ({"questions": [PREDICATE], "model": "other"}, "model"),
    ],
)
def test_a_wrong_request_is_refused_by_name(fields: Json, param: str) -> None:
    async def story() -> None:
        async with served(Likely(TOKENS)) as s:
            call = await asked(s, **({"input": "x"} | fields))
            assert call.status in (400, 404), call.body
            assert call.error["param"].startswith(param), call.error
            assert not s.engine.requests

    asyncio.run(story())


def test_an_engine_without_log_probabilities_refuses() -> None:
    async def story() -> None:
        async with served(max_logprobs=0) as s:
            call = await asked(s, input="x", questions=[PREDICATE])
            assert (call.status, call.error["param"]) == (400, "questions")
        only = Script((Scored((Logprob(0, 0.0, ((0, 0.0),)),)),))
        async with served(lambda *_: only) as s:
            call = await asked(s, input="x", questions=[PREDICATE])
            assert (call.status, call.error["param"]) == (400, "questions[0]")

    asyncio.run(story())
