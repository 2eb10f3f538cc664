"""The rules of a script file: when one holds, and what the model then says and does.

A file is YAML, or JSONL with a rule a line. Rules are tried from above; the first that holds is
played. Every fault of a file is a `UsageError` that names the rule and the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal

import yaml  # type: ignore[import-untyped]  # ships no types
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from trt_responses.errors import UsageError
from trt_responses.features.script.malformed import ANY, SHAPES
from trt_responses.features.script.patterns import paired
from trt_responses.features.script.scene import Scene

AUTO = "auto"
BY_HEADER = "#faults"
"""Behind a script's name: requests may ask for faults by a header."""
Auto = Literal["auto"]


class Strict(BaseModel):
    """A part of a rule, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class When(Strict):
    """What must hold, all of it; nothing holds always."""

    text: str | None = None
    """A part of the last user message, in upper or lower case."""
    regex: str | None = None
    """Found in the last user message."""
    result: str | bool | None = None
    """A part of the last tool's result; true: there is one behind the question; false: none."""
    tool: str | None = None
    """The tool whose result stands last."""
    turn: int | None = None
    """So many user messages."""
    model: str | None = None
    """The model that the request names."""
    request: int | None = None
    """The how many-th request of this server it is."""
    offers: str | None = None
    """A tool of the request."""
    times: int | None = Field(None, ge=1)
    """The rule has held for fewer requests."""
    chance: float = Field(1.0, ge=0, le=1)
    """So often, drawn by the seed and the request's number."""

    @field_validator("regex")
    @classmethod
    def compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as fault:
            raise ValueError(f"no regular expression ({fault})") from None
        return value


class Call(Strict):
    """A call that the model makes."""

    name: str
    """The tool's name; `auto` for the one whose words are nearest to the question."""
    arguments: Mapping[str, Any] | str | Auto = AUTO
    """An object, a text for tools that take one, or `auto` for values made from the schema."""


class Refusal(Strict):
    """An error reply in place of a response."""

    status: int = Field(ge=400, le=599)
    message: str = "The script refuses this request."
    code: str | None = None
    retry_after: int | None = Field(None, ge=0)


class Faults(Strict):
    """What goes wrong. A request's header may ask for these too."""

    @model_validator(mode="before")
    @classmethod
    def reads_a_bare_status(cls, found: Any) -> Any:
        """`refuse: 503` says no more than the status."""
        if isinstance(found, Mapping) and isinstance(found.get("refuse"), int):
            return {**found, "refuse": {"status": found["refuse"]}}
        return found

    stop_after: int | None = Field(None, ge=1)
    """The engine stops behind so many tokens, as at its context's end."""
    wait_s: float = Field(0.0, ge=0, le=3600)
    """Silence before the first token."""
    pace_s: float = Field(0.0, ge=0, le=60)
    """Time between tokens."""
    refuse: Refusal | None = None
    fail: str | None = None
    """The engine fails with this error, behind what else the rule writes."""
    die_after: int | None = Field(None, ge=0)
    """The engine dies behind so many tokens, once for a response, and comes back."""
    cut_after: int | None = Field(None, ge=0)
    """The connection is cut behind so many bytes of the reply's body."""
    harmony: str | None = Field(None, pattern=f"^({'|'.join((ANY, *SHAPES))})$")
    """How the model gets its Harmony wrong; `any`: a way that the seed draws."""
    lose_store: bool = False
    """The store is lost when the response is to be kept."""


class Rule(Faults):
    """What is played, and when."""

    when: When = When()
    think: str | None = None
    say: Any = None
    """The answer: text, or an object or a list that is written as JSON; `auto`: made from the
    format that the request wants, else the tool's result, or the question again."""
    call: Call | tuple[Call, ...] = ()
    raw: str | None = None
    """Harmony as the model writes it, well-formed or not, behind `<|start|>assistant`."""

    @property
    def calls(self) -> tuple[Call, ...]:
        return (self.call,) if isinstance(self.call, Call) else self.call


AUTO_RULES = (
    Rule(when=When(result=True), say=AUTO),
    Rule(call=Call(name=AUTO)),
    Rule(say=AUTO),
)
"""An agent's loop that ends by itself: a call of the nearest tool, then its result."""


@dataclass
class Script:
    """The rules of a server, and how often each has held."""

    rules: Sequence[Rule]
    seed: int = 0
    used: dict[int, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Of the requests."""
    by_header: bool = False
    """Whether requests may ask for faults by a header."""

    def rule_for(self, scene: Scene, request: Request) -> Rule | None:
        """The first rule that holds, which is counted; None if none does."""
        for number, rule in enumerate(self.rules):
            used = self.used.get(number, 0)
            if rule.when.times is not None and used >= rule.when.times:
                continue
            drawn = Random(f"{self.seed} {number} {request.number}").random()
            if drawn >= rule.when.chance:
                continue
            if holds(rule.when, scene, request) and not self._calls_nothing(rule, scene, request):
                self.used[number] = used + 1
                return rule
        return None

    def _calls_nothing(self, rule: Rule, scene: Scene, request: Request) -> bool:
        """Whether the rule calls the nearest tool, and none is near."""
        wants = any(call.name == AUTO for call in rule.calls)
        return wants and request.nearest(scene.question) is None


@dataclass(frozen=True)
class Tool:
    """A tool of a request."""

    name: str
    recipient: str
    description: str
    parameters: Mapping[str, Any] | None
    """None: it takes a text."""


@dataclass(frozen=True)
class Request:
    """What a prompt does not say of its request."""

    model: str = ""
    number: int = 0
    tools: Sequence[Tool] = ()
    must_call: bool = False
    answer: Mapping[str, Any] | None = None
    """The schema of the answer, as the client wrote it."""

    def tool(self, name: str) -> Tool | None:
        return next((each for each in self.tools if name in (each.name, each.recipient)), None)

    def nearest(self, question: str) -> Tool | None:
        """The tool that shares the most words with the question; None if none shares any, unless
        one must be called."""
        words = words_of(question)
        scored = [(len(words & _words_of_tool(tool)), tool) for tool in self.tools]
        score, best = max(scored, key=lambda one: one[0], default=(0, None))
        return best if score or self.must_call else None


def words_of(text: str) -> set[str]:
    """The words of a text that say what it is about."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {_stem(word) for word in re.findall(r"[^\W\d_]{3,}", spaced.lower())} - COMMON


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) > 4 else word


COMMON = {
    *("the", "and", "for", "with", "you", "are", "what"),
    *("get", "from", "this", "that", "please"),
}
"""Words that say nothing about a tool."""


def _words_of_tool(tool: Tool) -> set[str]:
    properties = (tool.parameters or {}).get("properties", {})
    return words_of(" ".join((tool.name, tool.description, *properties)))


def holds(when: When, scene: Scene, request: Request) -> bool:
    """Whether all holds that a rule wants."""
    last = scene.results[-1] if scene.results else None
    result = when.result
    return (
        (when.text is None or when.text.lower() in scene.question.lower())
        and (when.regex is None or re.search(when.regex, scene.question) is not None)
        and (not isinstance(result, bool) or result == (last is not None))
        and (not isinstance(result, str) or (last is not None and result in last.text))
        and (when.tool is None or (last is not None and when.tool == bare(last.header.role)))
        and (when.turn is None or when.turn == len(scene.users))
        and (when.model is None or when.model == request.model)
        and (when.request is None or when.request == request.number)
        and (when.offers is None or request.tool(when.offers) is not None)
    )


def bare(name: str) -> str:
    """The name of a tool without its namespace of functions."""
    return name.removeprefix("functions.")


def load(place: str) -> Script:
    """The script of a file, or the one that plays by itself. Raises a `UsageError`."""
    place, by_header = place.removesuffix(BY_HEADER), place.endswith(BY_HEADER)
    script = Script(AUTO_RULES) if place == AUTO else _of_file(place)
    script.by_header = by_header
    return script


def _of_file(place: str) -> Script:
    path = Path(place)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
        raise UsageError(f"The script {place} cannot be read ({why}).") from None
    return parsed(text, place, lines=path.suffix == ".jsonl")


def parsed(text: str, place: str, *, lines: bool = False) -> Script:
    """The script in a file's text. Raises a `UsageError`."""
    try:
        if lines:
            found: Any = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            found = yaml.safe_load(paired(text))  # JSON has pairs, and YAML has none
    except (yaml.YAMLError, ValueError) as fault:
        form, why = "JSONL" if lines else "YAML", " ".join(str(fault).split())
        raise UsageError(f"The script {place} is not {form}: {why}.") from None
    about = found if isinstance(found, Mapping) else {"rules": found}
    unknown = [key for key in about if key not in ("rules", "seed")]
    rules, seed = about.get("rules"), about.get("seed", 0)
    if unknown or not isinstance(rules, list) or not rules or not isinstance(seed, int):
        raise UsageError(f"The script {place} must hold `rules`, a list, and may hold `seed`.")
    return script_of(rules, place, seed)


def script_of(rules: Sequence[Any], place: str, seed: int = 0) -> Script:
    """The script of some rules. Raises a `UsageError` that names the first wrong one."""
    return Script([_rule(each, number, place) for number, each in enumerate(rules, 1)], seed)


def _rule(found: Any, number: int, place: str) -> Rule:
    try:
        rule = Rule.model_validate(found)
        json.dumps(found, ensure_ascii=False, default=str, skipkeys=True).encode()
    except ValidationError as error:
        raise UsageError(f"The script {place}: rule {number}: {first_fault(error)}.") from None
    except UnicodeEncodeError as error:
        half = f"{error.object[error.start]!r} is half a surrogate pair, which is no text"
        raise UsageError(f"The script {place}: rule {number}: {half}.") from None
    if rule.raw is not None and (rule.think or rule.say is not None or rule.calls):
        raise UsageError(f"The script {place}: rule {number}: raw stands alone.")
    return rule


def first_fault(error: ValidationError) -> str:
    """The key and the reason of a rule's first fault."""
    first = error.errors(include_url=False)[0]
    key = ".".join(map(str, first["loc"])) or "the rule"
    return f"{key}: {first['msg'].removeprefix('Value error, ')}"
