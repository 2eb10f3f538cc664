"""Shields user text in a rendered prompt, so that no part of it becomes a control string.

A template renders text, and its control strings become control ids afterwards. So each user text is
shielded before it is rendered: a `SHIELD` character goes into each control string, and into each
text that could form one together with its neighbours. A control string with a shield inside is no
longer one; the shields are removed before the text is encoded as ordinary ids. No ids here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]

SHIELD = "\U0010fffd"
_ESCAPE = "\U0010fffc"
"""Two private-use characters. If a user's text contains one, the second escapes it."""
SHIELDS = SHIELD + _ESCAPE
_SPELLED = ((_ESCAPE, f"{_ESCAPE}e"), (SHIELD, f"{_ESCAPE}s"))
KEYWORDS = frozenset(
    (
        *("$defs", "$ref", "additionalProperties", "allOf", "anyOf", "arguments", "const"),
        *("default", "description", "enum", "examples", "exclusiveMaximum"),
        *("exclusiveMinimum", "format", "function", "id", "items", "maximum", "maxItems"),
        *("maxLength", "minimum", "minItems", "minLength", "multipleOf", "name", "not"),
        *("oneOf", "parameters", "pattern", "prefixItems", "properties", "required"),
        *("strict", "text", "title", "type", "uniqueItems"),
    )
)
"""Keys that templates look up; users do not choose them."""
_CORE = re.compile(r"[^\W_](?:.*[^\W_])?", re.DOTALL)
"""A control string without surrounding punctuation: `tool_call` of `</tool_call>`."""


class Marks:
    """The control strings of a vocabulary, and the shielding of text against them."""

    def __init__(self, controls: Iterable[str]) -> None:
        self.controls = frozenset(controls)
        self._longest = max(map(len, self.controls), default=0)
        self._whole = re.compile(_either(self.controls))
        self._begun = re.compile(f"(?:{_either(_starts(self.controls))})\\Z")
        self._ended = re.compile(_either(_ends(self.controls)))
        self._cores = {part for control in self.controls for part in _cores(control)}

    def shielded(self, text: str) -> str:
        """The text, safe for a template; `plain` reverses it."""
        for sign, spelled in _SPELLED:
            if sign in text:
                text = text.replace(sign, spelled)
        if text in self._cores:  # a template may write a key between `<` and `>`
            return _broken(text)
        text = self._whole.sub(lambda match: _broken(match[0]), text)
        if self._begun.search(text, max(0, len(text) - self._longest)):
            text += SHIELD
        if self._ended.match(text):
            text = SHIELD + text
        return text

    def shielded_json(self, value: Any) -> Any:
        """The JSON value with all texts shielded, and all keys except those of schemas."""
        if isinstance(value, str):
            return self.shielded(value)
        if isinstance(value, dict):
            return {
                key if key in KEYWORDS else self.shielded(key): self.shielded_json(one)
                for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.shielded_json(one) for one in value]
        return value

    def shielded_messages(self, messages: Iterable[Json]) -> list[Json]:
        """The messages of a conversation, shielded except for their roles."""
        return [
            {key: one if key == "role" else self._field(key, one) for key, one in message.items()}
            for message in messages
        ]

    def shielded_tools(self, tools: Iterable[Json]) -> list[Json]:
        """Tools in the form of templates, shielded except for the form's own keys."""
        return [{**tool, "function": self.shielded_json(tool["function"])} for tool in tools]

    def _field(self, key: str, value: Any) -> Any:
        if key == "tool_calls" and value:
            return [self._call(call) for call in value]
        return self.shielded_json(value)

    def _call(self, call: Json) -> Json:
        return {key: one if key == "type" else self.shielded_json(one) for key, one in call.items()}

    def pieces(self, rendered: str) -> Iterator[tuple[str, bool]]:
        """A rendered prompt in pieces, and whether each is a control string of the template."""
        at = 0
        for match in self._whole.finditer(rendered):
            if match.start() > at:
                yield plain(rendered[at : match.start()]), False
            yield match[0], True
            at = match.end()
        if at < len(rendered):
            yield plain(rendered[at:]), False


def plain(text: str) -> str:
    """The text without its shields."""
    if SHIELD in text:
        text = text.replace(SHIELD, "")
    for sign, spelled in reversed(_SPELLED):
        if _ESCAPE in text:
            text = text.replace(spelled, sign)
    return text


def _broken(text: str) -> str:
    """The text with a shield around each character."""
    return SHIELD.join(("", *text, ""))


def _starts(controls: Iterable[str]) -> set[str]:
    return {control[:end] for control in controls for end in range(1, len(control))}


def _ends(controls: Iterable[str]) -> set[str]:
    return {control[at:] for control in controls for at in range(1, len(control))}


def _cores(control: str) -> Iterator[str]:
    """The parts that punctuation alone can complete to the control string: `think`, `/think`."""
    core = _CORE.search(control)
    first, last = core.span() if core else (len(control) // 2, len(control) // 2 + 1)
    for start in range(first + 1):
        for end in range(last, len(control) + 1):
            if (start, end) != (0, len(control)):
                yield control[start:end]


def _either(words: Iterable[str]) -> str:
    """A pattern for the longest of these words, as a prefix tree, since there may be a thousand.
    For no words it matches nothing."""
    tree: dict[str, Any] = {}
    for word in words:
        at = tree
        for character in word:
            at = at.setdefault(character, {})
        at[""] = {}
    return _branch(tree) if tree else "(?!)"


def _branch(tree: dict[str, Any]) -> str:
    branches = []
    for character, rest in sorted(tree.items()):
        if character:
            while len(rest) == 1 and "" not in rest:
                ((one, rest),) = rest.items()
                character += one
            branches.append(re.escape(character) + (_branch(rest) if rest != {"": {}} else ""))
    group = f"(?:{'|'.join(branches)})" if len(branches) > 1 or "" in tree else branches[0]
    return f"{group}?" if "" in tree else group
