"""Probes what a template does with conversations, once, when a model is prepared.

A probe renders a small conversation with unique words. Its result is whether they are in the
prompt, or where two prompts begin to differ. Deterministic: the same template gives the same
results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from trt_responses.dialects.templates.families import Family
from trt_responses.dialects.templates.pieces import CALL_ID
from trt_responses.dialects.templates.write.conversation import THOUGHT_KEYS
from trt_responses.dialects.templates.write.template import TemplateError, TemplateLimitError
from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass

Json = dict[str, Any]
Render = Callable[..., str]

Seen = Literal["shown", "dropped", "refused"]

USER, AGAIN = "probe-question", "probe-again"
THOUGHT, TEXT, RESULT = "probe-thought", "probe-text", "probe-result"
EXTRA, TOOL, VALUE = "probe-extra", "probe_tool", "probe-value"

OWN_RESULT: Json = {"role": "tool", "content": RESULT, "name": TOOL, "tool_call_id": CALL_ID}
TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "probe-description",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
        },
    }
]


@dataclass(frozen=True, slots=True)
class Probes:
    """The results, as a card stores them."""

    tools: Seen
    arguments: Literal["object", "string", "neither"]
    """The form that the template accepts for the arguments of earlier calls."""
    developer: Seen
    second_system: Seen
    """A system message after the first turn."""
    results: Seen
    """A tool result."""
    keeps_prefix: bool
    """Whether, in a tool loop, each prompt begins with the one before."""
    keeps_prefix_without_thinking: bool
    """The same with thinking off; equal to `keeps_prefix` if the family has no switch."""
    thoughts_in_loop: bool
    thoughts_behind_turn: bool
    """Whether thoughts are still shown after the next user message."""
    switches: bool
    """Whether thinking off gives another prompt than thinking on."""


def probe(render: Render, family: Family) -> Probes:
    """The results. Raises a `StartupError` if they contradict the family, or if the template
    exceeds its time or memory. `render`: the template's own `render`, or one with limits."""
    results = results_of(render, family)
    if faults := contradictions(results, family):
        raise StartupError(
            f"The chat template does not fit the family {family.name!r}: "
            f"{'; '.join(faults)}. Name another family, or `text`."
        )
    return results


def results_of(render: Render, family: Family) -> Probes:
    """The results alone."""
    try:
        return _Probe(render, family).results()
    except TemplateLimitError as error:
        raise StartupError(str(error)) from None


def contradictions(results: Probes, family: Family) -> list[str]:
    """The differences between the template and the family, each with both values."""
    faults = []
    shows = family.shows_tools and not family.describes_tools
    if family.calls is not None and shows and results.tools != "shown":
        faults.append(f"the family has tools, but in the template tools are {results.tools}")
    if family.calls is not None and results.arguments != family.arguments:
        faults.append(
            f"the family passes arguments as {family.arguments}, but the template accepts "
            f"{results.arguments}"
        )
    if family.calls is not None and results.results != "shown":
        faults.append(
            f"the family has tools, but in the template their results are {results.results}"
        )
    if family.switch is not None and family.calls is not None and not results.switches:
        faults.append(
            f"the family switches thinking by {family.switch.name!r}, but the template ignores "
            "that variable"
        )
    return faults


class _Probe:
    """The probes of one template."""

    def __init__(self, render: Render, family: Family) -> None:
        self._render, self._family = render, family
        self._user: Json = {"role": "user", "content": USER}

    def results(self) -> Probes:
        plain = self._rendered([self._user])
        if plain is None:
            raise StartupError(
                "The chat template refuses a single user message, so this model cannot be served: "
                f"{self._fault([self._user])}"
            )
        arguments = self._arguments()
        own = _own("{}" if arguments == "string" else {"key": VALUE})
        loop = [self._user, own, OWN_RESULT]
        answer, system = {"role": "assistant", "content": TEXT}, _system("probe-system")
        switches = self._family.switch is not None
        behind = self._rendered([*loop, answer, {"role": "user", "content": AGAIN}])
        keeps = self._keeps_prefix(own, thinks=True)
        return Probes(
            tools=self._seen(TOOL, [self._user], TOOLS),
            arguments=arguments,
            developer=self._seen(EXTRA, [{"role": "developer", "content": EXTRA}, self._user]),
            second_system=self._seen(
                EXTRA, [system, self._user, answer, _system(EXTRA), self._user]
            ),
            results=self._seen(RESULT, loop, TOOLS),
            keeps_prefix=keeps,
            keeps_prefix_without_thinking=(
                self._keeps_prefix(own, thinks=False) if switches else keeps
            ),
            thoughts_in_loop=THOUGHT in (self._rendered(loop, tools=TOOLS) or ""),
            thoughts_behind_turn=THOUGHT in (behind or ""),
            switches=switches and plain != self._rendered([self._user], thinks=False),
        )

    def _arguments(self) -> Literal["object", "string", "neither"]:
        """The accepted form of arguments. An object comes first: a template that accepts both
        writes an object itself."""
        for kind, value in (("object", {"key": VALUE}), ("string", json.dumps({"key": VALUE}))):
            text = self._rendered([self._user, _own(value), OWN_RESULT], tools=TOOLS)
            if VALUE in (text or ""):
                return kind  # type: ignore[return-value]  # one of the two
        return "neither"

    def _keeps_prefix(self, own: Json, *, thinks: bool) -> bool:
        turns: list[Json] = [self._user]
        prompts = []
        for _ in range(3):
            prompts.append(self._rendered(turns, tools=TOOLS, thinks=thinks))
            turns = [*turns, own if thinks else _without_thought(own), OWN_RESULT]
        first, second, third = prompts
        if first is None or second is None or third is None:
            return False
        return second.startswith(first) and third.startswith(second)

    def _rendered(
        self, messages: Sequence[Json], tools: list[Json] | None = None, *, thinks: bool = True
    ) -> str | None:
        """The prompt; None if the template refuses the conversation."""
        variables = self._family.variables(thinks=thinks)
        return rendered(self._render, messages, tools, **variables)

    def _fault(self, messages: Sequence[Json]) -> str:
        try:
            self._render(messages)
        except TemplateError as error:
            return str(error)
        return "it accepts the message only without the variable that switches thinking."

    def _seen(self, word: str, messages: Sequence[Json], tools: list[Json] | None = None) -> Seen:
        prompt = self._rendered(messages, tools)
        if prompt is None:
            return "refused"
        return "shown" if word in prompt else "dropped"


def _system(text: str) -> Json:
    return {"role": "system", "content": text}


def _own(arguments: object) -> Json:
    """A model turn with a thought, a text and a call."""
    function = {"name": TOOL, "arguments": arguments}
    call = {"type": "function", "id": CALL_ID, "function": function}
    thoughts = dict.fromkeys(THOUGHT_KEYS, THOUGHT)
    return {"role": "assistant", "content": TEXT, **thoughts, "tool_calls": [call]}


def _without_thought(own: Json) -> Json:
    return own | dict.fromkeys(THOUGHT_KEYS, "")


def rendered(render: Render, *conversation: object, **options: object) -> str | None:
    """The prompt; None if the template refuses the conversation."""
    try:
        return render(*conversation, **options)
    except TemplateLimitError:
        raise
    except TemplateError:
        return None
