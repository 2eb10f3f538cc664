"""What a rule has the model write, as ids, from where the prompt ends."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from trt_responses.engine import GenerateOptions, Guide
from trt_responses.errors import InvalidRequest
from trt_responses.features.script.fill import NoValue, departs, value_for
from trt_responses.features.script.malformed import malformed
from trt_responses.features.script.rules import AUTO, Call, Request, Rule, Tool, bare
from trt_responses.features.script.scene import Header, Scene
from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.vocabulary import Vocabulary

FUNCTIONS = "functions."
_ALTERNATIVES = re.compile(r"(?<!\\)\|")


class Planned(NamedTuple):
    """One message: its header behind the role, its text, and the id that ends it."""

    head: str
    text: str
    end: int


class Player:
    """Writes what one rule says, of one request."""

    def __init__(self, rule: Rule, request: Request, seed: int, vocabulary: Vocabulary) -> None:
        self._rule = rule
        self._request = request
        self._seed = seed
        self._vocabulary = vocabulary

    def ids(self, scene: Scene, options: GenerateOptions) -> list[int]:
        """The ids that follow. Raises an `InvalidRequest` for what the rule cannot give."""
        guide = options.guide
        if guide is not None and guide.kind == "regex" and scene.body is None:
            return [*self._plain(self._header(guide, scene)), CONTROL.return_]
        if scene.body is None:
            return self._from_header(scene)
        text, end = self._body(scene, guide)
        rest = self._behind(scene.body, self._plain(text))
        if guide is not None:
            return [*rest, CONTROL.return_]
        ahead = self._messages(scene)[1:] if self._in_thought(scene) else []
        return [*rest, end, *self._joined(ahead)]

    # --- where it goes on ---------------------------------------------------------------------

    def _from_header(self, scene: Scene) -> list[int]:
        if self._rule.raw is not None and not scene.written:
            return self._behind(scene.head, self._marked(self._rule.raw))
        whole = self._joined(self._messages(scene))[2:]  # behind `<|start|>assistant`
        if (shape := self._rule.harmony) is not None and not scene.written:
            whole = self._marked(malformed(shape, self._vocabulary.text(whole), self._seed))
        return self._behind(scene.head, whole)

    def _joined(self, messages: Sequence[Planned]) -> list[int]:
        made: list[int] = []
        for each in messages:
            made += [CONTROL.start, *self._plain("assistant"), *self._marked(each.head)]
            made += [CONTROL.message, *self._plain(each.text), each.end]
        return made

    def _messages(self, scene: Scene) -> list[Planned]:
        """What is left of the turn, the message that is open as the first."""
        rule, made = self._rule, []
        if rule.think is not None and not scene.written and not scene.results:
            made.append(
                Planned("<|channel|>analysis", self._filled(rule.think, scene), CONTROL.end)
            )
        calls = [self._named(call, scene) for call in rule.calls]
        left = calls[len(scene.calls) :]
        if not left:
            return [*made, Planned("<|channel|>final", self._answer(scene, None), CONTROL.return_)]
        if rule.say is not None and not scene.written:
            text = self._answer(scene, None)
            made.append(Planned("<|channel|>commentary", text, CONTROL.end))
        for tool, call in left:
            functional = tool.recipient.startswith(FUNCTIONS)
            channel = "commentary" if functional else "analysis"
            form = " <|constrain|>json" if functional and tool.parameters is not None else ""
            head = f"<|channel|>{channel} to={tool.recipient}{form or ' code' * (not functional)}"
            made.append(Planned(head, self._arguments(tool, call, scene, None), CONTROL.call))
        return made

    def _in_thought(self, scene: Scene) -> bool:
        header = self._open(scene)
        return header.channel == "analysis" and header.recipient is None

    def _open(self, scene: Scene) -> Header:
        return Header.of("assistant" + self._vocabulary.text(list(scene.head)))

    def _body(self, scene: Scene, guide: Guide | None) -> tuple[str, int]:
        """The text of the message that is open, and the id that ends it."""
        header = self._open(scene)
        if header.recipient is not None:
            tool = self._request.tool(header.recipient) or self._request.tool(
                bare(header.recipient)
            )
            tool = tool or Tool(bare(header.recipient), header.recipient, "", {})
            calls = [self._named(call, scene) for call in self._rule.calls][len(scene.calls) :]
            call = next((call for each, call in calls if each.name == tool.name), Call(name=AUTO))
            return self._arguments(tool, call, scene, guide), CONTROL.call
        if self._in_thought(scene):
            return self._filled(self._rule.think or "", scene), CONTROL.end
        return self._answer(scene, guide), CONTROL.return_

    def _header(self, guide: Guide, scene: Scene) -> str:
        """The header that the rule wants, of those that are allowed."""
        written = self._vocabulary.text(list(scene.head)).removeprefix("<|channel|>")
        allowed = [re.sub(r"\\(.)", r"\1", each) for each in _ALTERNATIVES.split(guide.source)]
        calls = [self._named(call, scene) for call in self._rule.calls][len(scene.calls) :]
        wanted = [f"to={tool.recipient} " for tool, _ in calls[:1]] or ["final"]
        for word in (*wanted, f"to={FUNCTIONS}", "to="):
            for each in allowed:
                if word in f"{each} ":
                    return each.removeprefix(written)
        return allowed[0].removeprefix(written)

    # --- what is written ----------------------------------------------------------------------

    def _named(self, call: Call, scene: Scene) -> tuple[Tool, Call]:
        if call.name != AUTO:
            found = self._request.tool(call.name)
            return found or Tool(call.name, FUNCTIONS + call.name, "", {}), call
        nearest = self._request.nearest(scene.question)
        if nearest is None:
            raise InvalidRequest("The script calls the nearest tool, and the request has none.")
        return nearest, call

    def _arguments(self, tool: Tool, call: Call, scene: Scene, guide: Guide | None) -> str:
        given, schema = call.arguments, _schema(guide)
        if given != AUTO:
            text = self._filled(given, scene) if isinstance(given, str) else _json(given)
            return self._checked(text, schema, f"The script's arguments of '{tool.name}'")
        if schema is None and tool.parameters is None:
            return scene.question
        return self._made(tool.parameters, schema, scene, f"arguments of '{tool.name}'")

    def _answer(self, scene: Scene, guide: Guide | None) -> str:
        answer, schema = self._rule.say, _schema(guide)
        if schema is not None and (answer is None or answer == AUTO or self._rule.calls):
            return self._made(self._request.answer, schema, scene, "the answer")
        if answer == AUTO:
            answer = "{tool} returned: {result}" if scene.results else "You wrote: {text}"
        text = self._filled(answer, scene) if isinstance(answer, str) else _json(answer)
        return self._checked(text if answer is not None else "", schema, "The script's answer")

    def _made(self, own: Any, guided: Any, scene: Scene, what: str) -> str:
        """A value that the client's own schema allows, of the guide's schema where it can be: that
        has the guide's order of members, but patterns as the engine spells them."""
        made, fault = [], None
        for schema in (guided, own):
            if schema is None:
                continue
            try:
                text = _json(value_for(schema, scene.question, self._seed))
            except NoValue as why:
                fault = why
                continue
            if departs(own or {}, text) is None:
                return text
            made.append(text)
        if made:
            return made[0]
        raise InvalidRequest(f"The script cannot make up {what}: {fault}: write it.")

    def _checked(self, text: str, schema: Any, what: str) -> str:
        """The text, which must follow the schema of a guide, for a model would be held to it."""
        why = departs(schema, text) if schema is not None else None
        if why is not None:
            raise InvalidRequest(f"{what} departs from its schema: {why}.")
        return text

    def _filled(self, text: str, scene: Scene) -> str:
        last = scene.results[-1] if scene.results else None
        for name, value in {
            "text": scene.question,
            "result": last.text if last else "",
            "tool": bare(last.header.role) if last else "",
        }.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    # --- ids ----------------------------------------------------------------------------------

    def _plain(self, text: str) -> list[int]:
        return self._vocabulary.encode_plain(text)

    def _marked(self, text: str) -> list[int]:
        return list(self._vocabulary.encoding.encode(text, allowed_special="all"))

    def _behind(self, written: Sequence[int], whole: list[int]) -> list[int]:
        """What follows of the ids; all of them if something else is written."""
        size = len(written)
        return whole[size:] if whole[:size] == list(written) else whole


def _schema(guide: Guide | None) -> Any:
    return json.loads(guide.source) if guide is not None and guide.kind == "json_schema" else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
