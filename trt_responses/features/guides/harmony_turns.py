"""The plan of a turn: its requirements as Harmony headers and their bodies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trt_responses.features.guides.harmony_plans import Body, Language, Steered, Watched
from trt_responses.harmony.dialect import STOPS
from trt_responses.language.messages import FUNCTIONS
from trt_responses.language.steering import Budget, Free
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.harmony.dialect import Harmony
    from trt_responses.language.steering import Choice, Guides, SteeringPlan, Turn

    Several = Callable[
        [SteeringPlan, Language, Guides, Mapping[str, Body], int, Budget], SteeringPlan
    ]
    """Makes a plan that goes on after its first call, while the model makes more."""


def steer(dialect: Harmony, several: Several | None = None) -> None:
    """Have the dialect plan steered turns, and turns of several calls, if `several` is given."""
    language = Language(dialect.lexicon)
    dialect.steered = lambda turn, guides, tokens, written: plan_of(
        turn, language, guides, tokens, written, several
    )


def plan_of(
    turn: Turn,
    language: Language,
    guides: Guides,
    tokens: int,
    written: int,
    several: Several | None = None,
) -> SteeringPlan:
    """The plan of a turn, for up to `tokens` more tokens after those already written."""
    budget = Budget(written + tokens, turn.thought)
    headers = None
    if turn.choices is not None:
        headers = {_header(choice): _body(choice, language) for choice in turn.choices}
    strict = _strict(turn, language) if headers is None and turn.strict else {}
    plan: SteeringPlan
    if headers is not None:
        plan = Steered(language, guides, headers, budget)
    elif strict:
        plan = Watched(language, guides, strict, budget)
    else:
        plan = Free(tokens, STOPS, turn.begun)
    if turn.calls < 2 or several is None:
        return plan
    bodies = {recipient: Body((), CONTROL.call) for recipient in turn.recipients}
    if headers is not None:  # `tool_choice` restricts which tools may be called
        allowed = {header.partition(" to=")[2].strip(): body for header, body in headers.items()}
        bodies = {r: replace(allowed[r], opening=()) for r in bodies if r in allowed}
    bodies |= strict.items()
    return several(plan, language, guides, bodies, turn.calls, budget)


def _header(choice: Choice) -> str:
    match choice.kind:
        case "answer":
            return "final"
        case "call":
            return f"commentary to={FUNCTIONS}{choice.name} "
        case "built_in":
            return f"analysis to={choice.name} code"


def _body(choice: Choice, language: Language) -> Body:
    match choice.kind:
        case "answer":
            return Body(language.message, CONTROL.return_, choice.form, choice.what)
        case "call":
            opening = language.message if choice.raw else language.json_message
            return Body(opening, CONTROL.call, choice.form, choice.what)
        case "built_in":
            return Body(language.message, CONTROL.call)


def _strict(turn: Turn, language: Language) -> dict[str, Body]:
    """The bodies of strict calls by recipient, with the namespace and, as models wrongly write it,
    without."""
    return {
        recipient: replace(_body(choice, language), opening=())
        for choice in turn.strict
        for recipient in (choice.name, FUNCTIONS + choice.name)
    }
