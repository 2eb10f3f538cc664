"""Reads out of a chat template how its model writes calls and thoughts, by rendering and comparing.

Each probe renders a conversation with unique words and looks at the text around them. What two
renders have in common is a mark, where they differ is a name, a key or a value. Deterministic, and
knows no family. The caller renders within limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from trt_responses.dialects.templates.families import READ, TEXT_ONLY, Calls, Family, Switch, Tags
from trt_responses.dialects.templates.pieces import CALL_ID, common, core, is_mark, pieces
from trt_responses.dialects.templates.probes import contradictions, rendered, results_of
from trt_responses.dialects.templates.write.conversation import THOUGHT_KEYS
from trt_responses.dialects.templates.write.template import TemplateError, TemplateLimitError
from trt_responses.frozen import dataclass

Json = dict[str, Any]
Render = Callable[..., str]

TEXT, THOUGHT, USER = "~Text~", "~Thought~", "~Question~"
FIRST, SECOND = "probe_one", "probe_two"
KEY, OTHER_KEY, VALUE, NUMBER = "kappa", "lambda", "~Value~", 404
ARGUMENTS: Json = {KEY: VALUE, OTHER_KEY: NUMBER}
QUESTION: Json = {"role": "user", "content": USER}
SWITCHES = (Switch("enable_thinking"), Switch("thinking"))
LONGEST_END = 80
"""Maximum length of the marks that end a turn."""
KNOWN_THOUGHTS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""Marks of thoughts in templates that show the thoughts of no earlier turn."""

_THOUGHT_WORD = re.compile("think|thought|reason", re.IGNORECASE)
_BRACKETS = {"(": ")", "{": "}"}


def tool(name: str) -> Json:
    """A tool with two arguments, in the form of templates."""
    properties = {
        KEY: {"type": "string", "description": "a text"},
        OTHER_KEY: {"type": "integer", "description": "a number"},
    }
    parameters = {"type": "object", "properties": properties, "required": [KEY]}
    function = {"name": name, "description": "a probe", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [tool(FIRST), tool(SECOND)]


def fitted(row: Family, render: Render, source: str) -> Family:
    """A row of the table as far as it fits the template; the rest is read out of the template."""
    form = _Form(render, source)
    read = form.family(row.name)
    if row.name in (TEXT_ONLY, READ):
        ends = tuple(dict.fromkeys((*row.terminators, *read.terminators)))
        name = READ if read.calls or read.thought else row.name
        family = replace(read, terminators=ends, name=name)
    else:
        switch = row.switch if row.switch and form.switches(row.switch) else read.switch
        family = replace(
            read,
            terminators=row.terminators,
            foreign=row.foreign,
            switch=switch,
            thought=row.thought if switch == row.switch else read.thought,
            numbers_calls=row.numbers_calls or read.numbers_calls,
        )
    family = _with_tools(family, render)
    if row.calls is not None and family.calls is None:
        family = replace(family, name=READ if family.thought else TEXT_ONLY)
    return family


def _with_tools(family: Family, render: Render) -> Family:
    """The family, with its tools in the system message if the template shows none; or without
    calls, if the template contradicts itself."""
    if family.calls is None:
        return family
    if results_of(render, family).tools != "shown":
        if family.calls.body not in ("json", "named"):
            return replace(family, calls=None, no_calls="its template shows it no tools")
        family = replace(family, describes_tools=True)
    if faults := contradictions(results_of(render, family), family):
        return replace(family, calls=None, no_calls="; ".join(faults))
    return family


@dataclass(frozen=True, slots=True)
class _Around:
    """The texts around one call and between two."""

    before: str
    after: str
    between: str | None
    """None if a second call is refused or dropped."""

    def split(self) -> tuple[tuple[str, str], str, str]:
        """The marks of the section, and those of each call."""
        if self.between is None:
            return ("", ""), self.before, self.after
        before, after, middle = map(pieces, (self.before, self.after, self.between))
        opening = common(before[::-1], middle[::-1])[::-1]
        closing = common(after, middle[: len(middle) - len(opening)])
        section = before[: len(before) - len(opening)], after[len(closing) :]
        return ("".join(section[0]), "".join(section[1])), "".join(opening), "".join(closing)


class _Form:
    """The probes of one template's form."""

    def __init__(self, render: Render, source: str) -> None:
        self._render, self._source = render, source
        self._empty: Json = {}
        self._arguments: Callable[[Json], object] = dict

    def family(self, name: str) -> Family:
        if self._try([QUESTION]) is None:
            self._empty = {"empty_tools": True}
        plain, prompt = self._try([QUESTION], prompts=False), self._try([QUESTION])
        answer = self._try([QUESTION, _own(TEXT)])
        opening, answer = _opened(plain or "", prompt or "", answer or "")
        switch = next((one for one in SWITCHES if self.switches(one)), None)
        thought = self._thought(opening)
        before, _, end = answer.partition(TEXT)
        header = before.removeprefix(plain or "")
        if header == before:  # the template writes the question otherwise
            header = "".join(pieces(before)[-1:])
        terminator, frame = self._end(end)
        parts = pieces(frame)
        frames = (
            _frame(header, opening, thought),
            *(parts if all(map(is_mark, parts)) else [frame]),
        )
        own = Family(
            name,
            terminators=(terminator,) if terminator else (),
            foreign=tuple(filter(is_mark, pieces(opening)))[:1],
            thought=thought,
            switch=switch,
            frames=tuple(one for one in frames if any(map(is_mark, pieces(one)))),
            empty_tools=bool(self._empty),
            folds_system=self._folds(),
            merges_users=self._try([QUESTION, QUESTION]) is None,
        )
        return _settled(self._with_calls(own, answer))

    # --- calls ----------------------------------------------------------------------------------

    def _with_calls(self, own: Family, answer: str) -> Family:
        """The family with the form of its calls, or the same if the template shows none."""
        forms: tuple[tuple[Literal["object", "string"], Callable[[Json], object]], ...]
        forms = (("object", dict), ("string", json.dumps))
        for form, arguments in forms:
            self._arguments = arguments
            calls = self._calls(answer)
            if calls is not None:
                text, found = calls
                numbers = re.search(rf"functions\.{FIRST}:\d", text) is not None
                short = self._part(answer, self._call(FIRST, {}, "call_0")) is None
                found, ends = _bounded(found, text, (*own.frames, *(own.thought or ())))
                return replace(
                    own,
                    calls=found,
                    arguments=form,
                    numbers_calls=numbers,
                    short_ids=short,
                    terminators=tuple(dict.fromkeys((*own.terminators, *ends))),
                )
        self._arguments = dict
        return replace(own, no_calls=self._why())

    def _why(self) -> str:
        """Why no calls were found."""
        call = _own("", tool_calls=[self._call(FIRST)])
        try:
            turns = [QUESTION, call]
            shown = self._render(turns, TOOLS, add_generation_prompt=False, **self._empty)
        except TemplateLimitError:
            raise
        except TemplateError as error:
            return f"its template refuses a call: {error!s:.120}"
        if FIRST not in shown or VALUE not in shown:
            return "its template shows no earlier calls"
        return "its template writes calls in a form that is not read"

    def _calls(self, answer: str) -> tuple[str, Calls] | None:
        one = self._part(answer, self._call(FIRST))
        if one is None or FIRST not in one or VALUE not in one:
            return None
        two = self._part(answer, self._call(FIRST), self._call(SECOND))
        if two is not None and not (FIRST in two and SECOND in two):
            two = None
        calls = _json(one, two) or _named(one, two) or _tagged(one, two)
        if calls is not None and calls.body == "tags":
            calls = self._with_values(calls, answer)
        return None if calls is None else (one, calls)

    def _with_values(self, calls: Calls, answer: str) -> Calls | None:
        """The form, with how texts of special signs are written; None if lists are no JSON."""
        listed = self._part(answer, self._call(FIRST, {KEY: [1, 2]}))
        special = self._part(answer, self._call(FIRST, {KEY: "<&>"}))
        if listed is None or "[1, 2]" not in listed or calls.tags is None:
            return None
        quoted = special is not None and "<![CDATA[<&>]]>" in special
        return replace(calls, tags=replace(calls.tags, cdata=quoted))

    def _call(self, name: str, arguments: Json = ARGUMENTS, call_id: str = CALL_ID) -> Json:
        function = {"name": name, "arguments": self._arguments(arguments)}
        return {"type": "function", "id": call_id, "function": function}

    def _part(self, answer: str, *calls: Json) -> str | None:
        """The text of calls in a turn, without what stands around the text of an answer."""
        turn = self._try([QUESTION, _own("", tool_calls=[*calls])], tools=TOOLS)
        with_tools = self._try([QUESTION, _own(TEXT)], tools=TOOLS) or answer
        if turn is None:
            return None
        begin, _, end = map(pieces, with_tools.partition(TEXT))
        part = pieces(turn)
        part = part[len(common(begin, part)) :]
        last = len(common(end[::-1], part[::-1]))
        return "".join(part[: len(part) - last])

    # --- thoughts and turns ---------------------------------------------------------------------

    def _thought(self, opening: str) -> tuple[str, str] | None:
        """The marks around a thought."""
        thinks = dict.fromkeys(THOUGHT_KEYS, THOUGHT)
        call = [self._call(FIRST, {})]
        result = {"role": "tool", "content": "1", "name": FIRST, "tool_call_id": CALL_ID}
        for turn in ([_own(TEXT, **thinks)], [_own("", **thinks, tool_calls=call), result]):
            shown = self._try([QUESTION, *turn], tools=TOOLS) or ""
            before, found, behind = shown.partition(THOUGHT)
            if found:
                begun = opening.rstrip().rpartition("\n")[2]
                mark = _opening(before)
                if mark in opening and _THOUGHT_WORD.search(begun) and mark not in begun:
                    mark = begun
                return mark, _closing(behind)
        known = (marks for marks in KNOWN_THOUGHTS if all(mark in self._source for mark in marks))
        return next(known, None)

    def _end(self, end: str) -> tuple[str, str]:
        """The mark that ends a turn, and the text between an answer and that mark."""
        marks = [one for one in pieces(end) if is_mark(one)]
        if not marks:
            text = self._try([QUESTION, _own(TEXT), QUESTION]) or ""
            return next(filter(is_mark, pieces(text.partition(TEXT)[2])), ""), ""
        return marks[-1], end[: end.rindex(marks[-1])].strip()

    def switches(self, switch: Switch) -> bool:
        """Whether this variable changes a prompt."""
        on: Json = {switch.name: switch.on}
        off: Json = {switch.name: switch.off}
        return self._try([QUESTION], **on) != self._try([QUESTION], **off)

    def _folds(self) -> bool:
        shown = self._try([{"role": "system", "content": TEXT}, QUESTION])
        return shown is None or TEXT not in shown

    def _try(
        self,
        messages: Sequence[Json],
        tools: list[Json] | None = None,
        *,
        prompts: bool | None = None,
        **switches: Any,
    ) -> str | None:
        """The render; None if the template refuses the conversation. A prompt follows a user."""
        if prompts is None:
            prompts = messages[-1]["role"] == "user"
        options = {"add_generation_prompt": prompts, **self._empty, **switches}
        return rendered(self._render, messages, tools, **options)


def _own(text: str, **fields: object) -> Json:
    return {"role": "assistant", "content": text, **fields}


def _bounded(calls: Calls, text: str, others: Sequence[str]) -> tuple[Calls, list[str]]:
    """The calls with a section that ends at its first mark, and the marks behind it, which end the
    turn."""
    if calls.section is None:
        return calls, []
    begin, end = calls.section
    marks = [one for one in pieces(end) if is_mark(one)]
    if not core(begin):
        return replace(calls, section=None), [one for one in marks if one != calls.close]
    begin = _without(begin, others)
    if marks and text.count(marks[0]) == 1:
        own = end[: end.index(marks[0]) + len(marks[0])]
        return replace(calls, section=(begin, own)), marks[1:]
    return replace(calls, section=(begin, end)), []


def _without(text: str, marks: Sequence[str]) -> str:
    for mark in marks:
        text = text.replace(mark, "")
    return text


def _settled(family: Family) -> Family:
    """The family without marks that mean two things."""
    calls, ends = family.calls, {*family.terminators}
    if family.thought is not None and ends & {*family.thought}:
        return replace(family, thought=None, calls=None, no_calls="a thought ends its turn")
    if calls is not None and (ends & {calls.open, core((calls.section or ("",))[0])}):
        return replace(family, calls=None, no_calls="a call begins another turn")
    if calls is not None and calls.bare and calls.body != "json":
        return replace(family, calls=None, no_calls="nothing marks where a call begins")
    marks = (*family.frames, *(family.thought or ()))
    if calls is not None:
        marks += (calls.open, calls.before_name, calls.close, *(calls.section or ()))
    foreign = tuple(one for one in family.foreign if not any(one in mark for mark in marks))
    return replace(family, foreign=tuple(one for one in foreign if one not in ends))


def _opened(plain: str, prompt: str, answer: str) -> tuple[str, str]:
    """The end of a prompt, and the answer without it: some templates always write one."""
    always = "".join(common(pieces(plain)[::-1], pieces(answer)[::-1])[::-1][1:])
    if plain == prompt:
        return always, answer.removesuffix(always)
    if len(always) > LONGEST_END:  # an instruction, which is not the turn's
        answer = answer.removesuffix(always)
    return prompt.removeprefix(plain), answer


def _frame(header: str, opening: str, thought: tuple[str, str] | None) -> str:
    """The text between the head of a turn, with its thought, and an answer."""
    if thought is not None and thought[1] in header:
        return header.partition(thought[1])[2].strip()
    if header in opening:
        return ""
    parts = pieces(header)
    return "".join(parts[len(common(parts, pieces(opening))) :]).strip()


# --- bodies -------------------------------------------------------------------------------------


def _json(one: str, two: str | None) -> Calls | None:
    """A call as an object with its name and arguments."""
    found = next(_objects(one, FIRST), None)
    if found is None:
        return None
    begin, end, keys = found
    between = None
    if two is not None and (second := next(_objects(two, SECOND), None)) is not None:
        first = next(_objects(two, FIRST))
        between = two[first[1] : second[0]]
    around = _Around(one[:begin], one[end:], between)
    text = one[begin:end]
    at = text.index(FIRST)
    value = re.search(rf'\{{\s*"{KEY}"', text)
    if value is None:  # the arguments are a string
        return _form("json", around, text[:at], '": ' if not keys[0] else '", "arguments": ', keys)
    inside = text[at + len(FIRST) : value.start()]
    return _form("json", around, text[:at], inside, keys, text[_object_end(text, value.start()) :])


def _objects(text: str, name: str) -> Iterator[tuple[int, int, tuple[str, str]]]:
    """The places of a call's object, and its keys for name and arguments."""
    for match in re.finditer(r"\{", text):
        try:
            value, size = json.JSONDecoder().raw_decode(text[match.start() :])
        except (ValueError, RecursionError):
            continue
        at = match.start(), match.start() + size
        keys = {_kind(one, name): key for key, one in value.items()}
        if "name" in keys and "arguments" in keys:
            yield *at, (keys["name"], keys["arguments"])
        elif name in value and _kind(value[name], name) == "arguments":
            yield *at, ("", "")


def _kind(value: object, name: str) -> str:
    if value == name:
        return "name"
    return "arguments" if value == ARGUMENTS or value == json.dumps(ARGUMENTS) else ""


def _object_end(text: str, at: int) -> int:
    return at + json.JSONDecoder().raw_decode(text[at:])[1]


def _named(one: str, two: str | None) -> Calls | None:
    """A name, and the arguments as an object behind it."""
    found = _named_place(one)
    if found is None:
        return None
    name, value, end = found
    between = None
    if two is not None and (first := _named_place(two)) is not None:
        between = two[first[2] : two.index(SECOND)]
    around = _Around(one[:name], one[end:], between)
    return _form("named", around, "", one[name + len(FIRST) : value])


def _named_place(text: str) -> tuple[int, int, int] | None:
    """The places of the first call's name and arguments, and their end."""
    at = text.index(FIRST)
    for match in re.finditer(r"\{", text[at:]):
        value = at + match.start()
        try:
            if json.loads(text[value : (end := _object_end(text, value))]) == ARGUMENTS:
                return at, value, end
        except (ValueError, RecursionError):
            continue
    return None


def _tagged(one: str, two: str | None) -> Calls | None:
    """A name, and keys and values as text behind it."""
    parts = re.split(f"({FIRST}|{KEY}|{re.escape(VALUE)}|{OTHER_KEY}|{NUMBER})", one)
    named = parts[1::2]
    words = [FIRST, KEY, VALUE, OTHER_KEY, str(NUMBER)]
    if named[:5] != words and named != [FIRST, KEY, VALUE, KEY, OTHER_KEY, str(NUMBER), OTHER_KEY]:
        return None
    repeats = len(named) > 5
    """Whether a key is written again behind its value."""
    behind = "".join(parts[2 * len(words) :]) if not repeats else ""
    before, head, key_end, value_end = parts[0], parts[2], parts[4], parts[6]
    other = parts[8]
    if repeats:
        value_end = f"{parts[6]}{{key}}{parts[8]}"
        other, behind = parts[10], f"{parts[12]}{{key}}{parts[14]}"
    shared = common(pieces(head)[::-1], pieces(value_end)[::-1])[::-1]
    opening = "".join(shared).lstrip()
    value_end = value_end[: len(value_end) - len(opening)]
    after_name = head[: len(head) - len(opening)]
    quotes, body = _quotes(key_end, other), "tags"
    last = value_end if behind.startswith(value_end) else value_end.rstrip()
    end = ""
    if quotes:
        body, key_end, value_end = "literal", other, value_end.removeprefix(quotes)
        end = _BRACKETS.get(after_name.strip()[-1:], "")
        last = end
        if not end:
            return None
    after, between = behind.removeprefix(last), None
    if two is not None:
        rest = re.split(str(NUMBER), two)[1]
        between = rest.replace(OTHER_KEY, "{key}").removeprefix(last).partition(SECOND)[0]
    around = _Around(before, after, between)
    tags = Tags(opening, key_end, value_end, "" if other == key_end else other, quotes)
    return _form(body, around, "", after_name, end=end, tags=tags)


def _quotes(key_end: str, other: str) -> str:
    """The mark before a string and not before a number."""
    mark = key_end.removeprefix(other)
    return mark if key_end.startswith(other) and mark in ("'", '"', '<|"|>') else ""


# --- marks --------------------------------------------------------------------------------------


def _form(
    body: Any,
    around: _Around,
    name: str,
    inside: str,
    keys: tuple[str, str] = ("name", "arguments"),
    end: str = "",
    tags: Tags | None = None,
) -> Calls:
    """The form of calls. `name`, `inside`, `end`: the body's own texts around the name and the
    arguments."""
    section, opening, closing = around.split()
    own, rest = _first_mark(opening, around.before)
    white = opening[: len(opening) - len(opening.lstrip())]
    section = section[0] + white, section[1]
    close, before_close = _last_mark(closing, around.after)
    return Calls(
        own,
        close,
        body,
        section if core(section[0]) or core(section[1]) else None,
        rest + name,
        inside,
        end + before_close,
        keys,
        tags,
        around.between is not None,
    )


def _first_mark(text: str, whole: str) -> tuple[str, str]:
    """The mark that begins a call, and the text behind it."""
    marks = [one for one in pieces(text) if is_mark(one)]
    if not marks:
        return "", text.lstrip()
    if whole.count(marks[0]) > 1:
        return text.strip(), ""
    begin = text.index(marks[0])
    return text[begin : begin + len(marks[0])], text[begin + len(marks[0]) :]


def _last_mark(text: str, whole: str) -> tuple[str, str]:
    """The mark that ends a call, and the text before it."""
    marks = [one for one in pieces(text) if is_mark(one)]
    if not marks:
        return "", text if text.strip() else ""
    if any(whole.count(mark) > 1 for mark in marks):
        return text.strip(), ""
    end = text.rindex(marks[-1])
    return marks[-1], text[:end]


def _opening(before: str) -> str:
    """The mark before a thought: a line of text, or as many pieces as name it."""
    parts = pieces(before.rstrip())
    if not parts or not is_mark(parts[-1]):
        return before.rstrip().rpartition("\n")[2]
    for count in range(1, 5):
        text = "".join(parts[-count:])
        if is_mark(text) and _THOUGHT_WORD.search(text):
            return text
    return parts[-1]


def _closing(behind: str) -> str:
    """The mark behind a thought."""
    parts = pieces(behind.lstrip())
    if not parts or not is_mark(parts[0]):
        return behind.lstrip().partition("\n")[0]
    for count in range(1, 5):
        text = "".join(parts[:count])
        if (
            is_mark(text)
            and is_mark(parts[min(count, len(parts)) - 1])
            and (_THOUGHT_WORD.search(text))
        ):
            return text
    return parts[0]
