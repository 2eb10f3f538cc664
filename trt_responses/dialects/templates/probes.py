"""What a template does with a conversation, found out by rendering some: once, when it is prepared.

A probe is a small conversation with words that occur nowhere else; the answer is whether they are
in the prompt, or where two prompts begin to differ. Pure: the same template gives the same answers.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from trt_responses.dialects.templates.write.template import TemplateError, TemplateLimitError
from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.dialects.templates.families import Family

    Json = dict[str, Any]
    Render = Callable[..., str]

Seen = Literal["shown", "dropped", "refused"]

USER, AGAIN = "probe-question", "probe-again"
THOUGHT, TEXT, RESULT = "probe-thought", "probe-text", "probe-result"
EXTRA, TOOL, VALUE = "probe-extra", "probe_tool", "probe-value"

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
    """The answers, as a card keeps them."""

    tools: Seen
    arguments: Literal["object", "string", "neither"]
    """How earlier calls' arguments are taken."""
    developer: Seen
    second_system: Seen
    """A system message behind the first turn."""
    results: Seen
    """A tool's answer."""
    keeps_prefix: bool
    """Within a tool loop each prompt begins with the one before."""
    keeps_prefix_without_thinking: bool
    """The same with thinking switched off; where the row has no switch, the same answer."""
    thoughts_in_loop: bool
    thoughts_behind_turn: bool
    """Thoughts are still shown once the next user's message has come."""
    switches: bool
    """Thinking off gives another prompt than thinking on."""

    def told(self) -> dict[str, str | bool]:
        """For a card."""
        return asdict(self)


def probe(render: Render, family: Family) -> Probes:
    """The answers, or `StartupError` where they contradict the row, or the template takes more time
    or memory than it may. `render` is a template's own `render`, or one that bounds it."""
    try:
        found = _Probe(render, family).answers()
    except TemplateLimitError as error:
        raise StartupError(str(error)) from None
    if faults := contradictions(found, family):
        raise StartupError(
            f"The chat template does not do what the family {family.name!r} says: "
            f"{'; '.join(faults)}. Name another family, or `text`."
        )
    return found


def contradictions(found: Probes, family: Family) -> list[str]:
    """Where the template and the row say different things: both values, in words."""
    faults = []
    if family.calls is not None and family.shows_tools and found.tools != "shown":
        faults.append(f"the family has tools, and tools are {found.tools} by the template")
    if family.calls is not None and found.arguments != family.arguments:
        faults.append(
            f"the family hands arguments over as {family.arguments}, and the template takes "
            f"{found.arguments}"
        )
    if family.calls is not None and found.results != "shown":
        faults.append(
            f"the family has tools, and their results are {found.results} by the template"
        )
    if family.switch is not None and family.calls is not None and not found.switches:
        faults.append(
            f"the family switches thinking by {family.switch.name!r}, and the template does the "
            "same either way"
        )
    return faults


class _Probe:
    """The probes of one template."""

    def __init__(self, render: Render, family: Family) -> None:
        self._render = render
        self._switch = family.switch
        self._system: Json = {"role": "system", "content": "probe-system"}
        self._user: Json = {"role": "user", "content": USER}

    def answers(self) -> Probes:
        plain = self._rendered([self._user])
        if plain is None:
            raise StartupError(
                "The chat template refuses a single user's message, so nothing can be asked of "
                f"this model: {self._fault([self._user])}"
            )
        arguments = self._arguments()
        own = self._own("{}" if arguments == "string" else {"key": VALUE})
        loop = [self._user, own, self._result()]
        said = {"role": "assistant", "content": TEXT}
        behind = self._rendered([*loop, said, {"role": "user", "content": AGAIN}])
        keeps = self._keeps_prefix(own, thinks=True)
        return Probes(
            tools=self._seen(TOOL, self._rendered([self._user], tools=TOOLS)),
            arguments=arguments,
            developer=self._seen(
                EXTRA, self._rendered([{"role": "developer", "content": EXTRA}, self._user])
            ),
            second_system=self._seen(
                EXTRA,
                self._rendered(
                    [
                        *(self._system, self._user, said),
                        *({"role": "system", "content": EXTRA}, self._user),
                    ]
                ),
            ),
            results=self._seen(RESULT, self._rendered(loop, tools=TOOLS)),
            keeps_prefix=keeps,
            keeps_prefix_without_thinking=(
                keeps if self._switch is None else self._keeps_prefix(own, thinks=False)
            ),
            thoughts_in_loop=THOUGHT in (self._rendered(loop, tools=TOOLS) or ""),
            thoughts_behind_turn=THOUGHT in (behind or ""),
            switches=self._switch is not None
            and plain != self._rendered([self._user], thinks=False),
        )

    def _arguments(self) -> Literal["object", "string", "neither"]:
        """An object is tried first: where a template takes both, it writes that one itself."""
        for kind, value in (("object", {"key": VALUE}), ("string", json.dumps({"key": VALUE}))):
            text = self._rendered([self._user, self._own(value), self._result()], tools=TOOLS)
            if VALUE in (text or ""):
                return kind  # type: ignore[return-value]  # one of the two
        return "neither"

    def _keeps_prefix(self, own: Json, *, thinks: bool) -> bool:
        turns: list[Json] = [self._user]
        prompts = []
        for _ in range(3):
            prompts.append(self._rendered(turns, tools=TOOLS, thinks=thinks))
            turns = [*turns, own if thinks else _without_thought(own), self._result()]
        first, second, third = prompts
        if first is None or second is None or third is None:
            return False
        return second.startswith(first) and third.startswith(second)

    def _own(self, arguments: object) -> Json:
        """A turn of the model's with a thought, a text and a call."""
        call = {"type": "function", "id": "call_probe0", "function": {"name": TOOL}}
        call["function"] |= {"arguments": arguments}  # type: ignore[operator]  # a dict
        thoughts = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), THOUGHT)
        return {"role": "assistant", "content": TEXT, **thoughts, "tool_calls": [call]}

    def _result(self) -> Json:
        return {"role": "tool", "content": RESULT, "name": TOOL, "tool_call_id": "call_probe0"}

    def _rendered(
        self, messages: Sequence[Json], tools: list[Json] | None = None, *, thinks: bool = True
    ) -> str | None:
        """The prompt; None where the template refuses it."""
        switch = self._switch
        switches = {} if switch is None else {switch.name: switch.on if thinks else switch.off}
        try:
            return self._render(messages, tools, **switches)
        except TemplateLimitError:
            raise
        except TemplateError:
            return None

    def _fault(self, messages: Sequence[Json]) -> str:
        try:
            self._render(messages)
        except TemplateError as error:
            return str(error)
        return "it takes it only without the switch for thinking."

    @staticmethod
    def _seen(word: str, prompt: str | None) -> Seen:
        if prompt is None:
            return "refused"
        return "shown" if word in prompt else "dropped"


def _without_thought(own: Json) -> Json:
    return own | dict.fromkeys(("reasoning_content", "reasoning", "thinking"), "")
