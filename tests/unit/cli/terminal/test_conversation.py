"""A chat's conversation: what the next request sends, after stops, retries and loads."""

from __future__ import annotations

from typing import Any

from trt_responses.cli.terminal.conversation import Conversation, user_message

ONE, TWO, THREE = (user_message(text) for text in ("one", "two", "three"))


def response(number: int, *, status: str = "completed") -> dict[str, Any]:
    text = [{"type": "output_text", "text": f"answer {number}"}]
    output = [{"type": "message", "role": "assistant", "content": text}]
    return {"id": f"resp_{number}", "status": status, "output": output}


def test_a_stored_answer_is_continued_by_its_id() -> None:
    chat = Conversation()
    assert chat.request([ONE]) == {"input": [ONE]}
    chat.ended([ONE], response(1))
    assert chat.request([TWO]) == {"input": [TWO], "previous_response_id": "resp_1"}
    assert chat.answer() == "answer 1"


def test_a_stopped_answer_is_sent_again() -> None:
    chat = Conversation()
    chat.ended([ONE], response(1))
    chat.stopped([TWO], "half")
    sent = chat.request([THREE])
    assert sent["previous_response_id"] == "resp_1"
    assert [item["content"] for item in sent["input"]] == ["two", "half", "three"]


def test_a_retry_forgets_the_last_answer() -> None:
    chat = Conversation()
    chat.ended([ONE], response(1))
    chat.ended([TWO], response(2))
    assert chat.undo() == [TWO]
    assert chat.request([TWO]) == {"input": [TWO], "previous_response_id": "resp_1"}
    assert chat.answer() == "answer 1"
    chat.ended([TWO], response(3, status="failed"))
    assert chat.undo() == [TWO], "a failed answer leaves its question"
    assert chat.undo() == [ONE]
    assert chat.undo() == ()


def test_the_last_question_is_taken_back_with_the_calls_behind_it() -> None:
    chat = Conversation()
    chat.ended([ONE], response(1))
    chat.ended([TWO], response(2))
    chat.ended([{"type": "function_call_output", "call_id": "c", "output": "x"}], response(3))
    assert chat.question() == "two"
    chat.undo_question()
    assert chat.items == [ONE, *response(1)["output"]]


def test_a_loaded_conversation_is_sent_whole() -> None:
    chat = Conversation()
    chat.load([ONE, *response(1)["output"]])
    assert chat.request([TWO]) == {"input": [ONE, *response(1)["output"], TWO]}
