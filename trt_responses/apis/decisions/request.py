"""The bodies of `POST /v1/decisions`, in OpenAI's words, and of `POST /v1/systemone`, in vLLM's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from trt_responses.apis.decisions.questions import Option, Question
from trt_responses.errors import invalid_value
from trt_responses.wire.base import TEXT_OR_LIST, ByType, ListOf, NonEmpty, Options
from trt_responses.wire.fields import Field as Row
from trt_responses.wire.fields import rows
from trt_responses.wire.judge import column_of
from trt_responses.wire.request import Identifier, OptionalInput

MOST_QUESTIONS, MOST_READS = 400, 2000
MOST_CHOICES, MOST_LEVELS = 255, 10


class Text(Options):
    """A part of a question."""

    type: Literal["input_text"]
    text: str


Instructions = Annotated[str | ListOf[Text], TEXT_OR_LIST]


class Predicate(Options):
    """A statement about the input, which is true or not."""

    type: Literal["predicate"]
    instructions: Instructions
    name: str | None = None


class ChoiceValue(Options):
    """One option of a choice."""

    value: str | bool
    description: str | None = None


class Choice(Options):
    """A choice of the option that fits the input."""

    type: Literal["choice"]
    instructions: Instructions
    choices: Annotated[ListOf[ChoiceValue], Field(min_length=2, max_length=MOST_CHOICES)]
    name: str | None = None


class Level(Options):
    """One level of a score, the lowest first."""

    label: str
    description: str | None = None


class Score(Options):
    """A score: the level on which the input stands."""

    type: Literal["score"]
    instructions: Instructions
    levels: Annotated[ListOf[Level], Field(min_length=2, max_length=MOST_LEVELS)]
    name: str | None = None


Posed = Annotated[Predicate | Choice | Score, ByType()]


class DecisionRequest(Options):
    """Questions about one input."""

    model: NonEmpty = ""
    input: OptionalInput = Field(default_factory=list)
    questions: Annotated[ListOf[Posed], Field(min_length=1, max_length=MOST_QUESTIONS)]
    prompt_cache_key: Identifier | None = None
    safety_identifier: Identifier | None = None
    previous_response_id: str | None = None
    conversation: NonEmpty | None = None


class NamedQuestion(Options):
    """One question of `systemone`."""

    type: Literal["choice", "noul", "score"]
    instructions: Any = ""
    criteria: Any = None


class SystemOneRequest(Options):
    """Questions by their names about a state, which is text or JSON."""

    model: str | None = None
    state: Any
    questions: Annotated[dict[str, NamedQuestion], Field(min_length=1, max_length=MOST_QUESTIONS)]
    instructions: str | None = None


FIELDS: tuple[Row, ...] = (
    *rows("", "honoured", "", "model", "questions"),
    Row("input", "honoured", "text only; may be absent beside the next two"),
    *(
        Row(name, "honoured", "decides about it", ours=True)
        for name in ("previous_response_id", "conversation")
    ),
    *rows("", "ignored", "", "prompt_cache_key", "safety_identifier", "prompt_cache_options"),
)
COLUMN = column_of(*FIELDS)
SYSTEM_ONE: tuple[Row, ...] = (
    *(Row(name, "honoured", ours=True) for name in ("model", "state", "questions", "instructions")),
    *(
        Row(name, "refused", "text only", ours=True)
        for name in ("images", "audio", "videos", "joint")
    ),
)
SYSTEM_ONE_COLUMN = column_of(*SYSTEM_ONE)


def questions_of(request: DecisionRequest) -> list[Question]:
    """The questions, in order. Raises for two choices that are equal, and for too many."""
    found = [_question(one, f"questions[{n}]") for n, one in enumerate(request.questions)]
    return checked(found)


def checked(questions: list[Question]) -> list[Question]:
    """The questions, unless they take too many requests or two options of one are equal."""
    reads = sum(question.reads for question in questions)
    if reads > MOST_READS:
        raise invalid_value(
            "questions", f"they take {reads} requests to the engine, limit {MOST_READS}"
        )
    for question in questions:
        if len({option.name for option in question.options}) < len(question.options):
            raise invalid_value(question.place, "two of its options are equal")
    return questions


def _question(posed: Predicate | Choice | Score, place: str) -> Question:
    text = posed.instructions
    text = text if isinstance(text, str) else "\n".join(part.text for part in text)
    match posed:
        case Predicate():
            return Question("predicate", text, [Option("yes"), Option("no")], place)
        case Choice():
            options = [Option(_named(c.value), c.description or "") for c in posed.choices]
            return Question("choice", text, options, place)
        case Score():
            levels = [Option(each.label, each.description or "") for each in posed.levels]
            return Question("score", text, levels, place)


def _named(value: str | bool) -> str:
    """How the model reads a value: a boolean differs from its text."""
    return value if isinstance(value, str) else f"({str(value).lower()})"


def named_questions(request: SystemOneRequest) -> list[Question]:
    """The questions of `systemone`, in order."""
    return checked([_by_name(name, one) for name, one in request.questions.items()])


def _by_name(name: str, posed: NamedQuestion) -> Question:
    place, criteria = f"questions.{name:.40}", posed.criteria
    text = posed.instructions if isinstance(posed.instructions, str) else str(posed.instructions)
    if posed.type == "score":
        if not isinstance(criteria, list) or not 2 <= len(criteria) <= MOST_LEVELS:
            raise invalid_value(f"{place}.criteria", f"it must be a list of 2 to {MOST_LEVELS}")
        return Question("score", text, [Option(str(level)) for level in criteria], place)
    if criteria is None and posed.type == "noul":
        criteria = {}
    if not isinstance(criteria, dict):
        raise invalid_value(f"{place}.criteria", "it must be an object")
    if posed.type == "noul":
        described = [("yes", criteria.get("true")), ("no", criteria.get("false"))]
        options = [Option(label, str(what or "")) for label, what in described]
        return Question("predicate", text, options, place)
    if not 2 <= len(criteria) <= MOST_CHOICES:
        raise invalid_value(f"{place}.criteria", f"it must have 2 to {MOST_CHOICES} options")
    options = [Option(str(each), str(what or "")) for each, what in criteria.items()]
    return Question("choice", text, options, place)
