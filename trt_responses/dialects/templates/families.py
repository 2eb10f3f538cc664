"""Families of models as rows of data: what marks a thought, a call and a turn's end.

A row is found by what the operator says, else by the checkpoint's `response_template`, else by the
marks that stand in the template and in the vocabulary. Found nothing: text alone, with no tools and
no thoughts. Nothing is guessed while a request is served. Knows no ids and renders nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Body = Literal["json", "xml", "kv", "named"]
"""How a call is written between its marks:

- `json`: one object with the keys `name` and `arguments`;
- `xml`: `<function=NAME>`, then `<parameter=KEY>` VALUE `</parameter>`, then `</function>`;
- `kv`: NAME, then `<arg_key>` KEY `</arg_key>` `<arg_value>` VALUE `</arg_value>`;
- `named`: NAME, a separator, and the arguments as JSON.
"""


@dataclass(frozen=True, slots=True)
class Calls:
    """How calls are marked. `section` stands around all calls of a turn."""

    open: str
    close: str
    body: Body
    section: tuple[str, str] | None = None
    before_name: str = ""
    """Of a `named` body, and so are the next two: what stands before the name,"""
    after_name: str = ""
    """between the name and the arguments,"""
    after_arguments: str = ""
    """and behind them."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A variable of the template that turns thinking on and off."""

    name: str
    on: bool = True
    off: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One row."""

    name: str
    terminators: tuple[str, ...]
    """They end a turn, beside what the checkpoint's `generation_config.json` names."""
    foreign: tuple[str, ...] = ()
    """They begin a turn of somebody else: a model that writes one has nothing more to say."""
    thought: tuple[str, str] | None = None
    calls: Calls | None = None
    switch: Switch | None = None
    arguments: Literal["object", "string"] = "object"
    """How the template takes the arguments of earlier calls."""
    shows_tools: bool = True
    """Its templates show tools. Of a row that does not say so, the probe tells."""
    numbers_calls: bool = False
    """Call ids are `functions.NAME:INDEX`, counted over the conversation."""
    seen_in: tuple[str, ...] = ()
    """Texts that stand in the template, and by which the row is known."""


_THINK = ("<think>", "</think>")
_THINKING = Switch("enable_thinking")
_DEEPSEEK_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")

FAMILIES = (
    Family(
        "qwen3-xml",
        terminators=("<|im_end|>",),
        foreign=("<|im_start|>",),
        thought=_THINK,
        calls=Calls("<tool_call>", "</tool_call>", "xml"),
        switch=_THINKING,
        seen_in=("<|im_start|>", "<tool_call>", "<function=", "<parameter="),
    ),
    Family(
        "qwen3",
        terminators=("<|im_end|>",),
        foreign=("<|im_start|>",),
        thought=_THINK,
        calls=Calls("<tool_call>", "</tool_call>", "json"),
        switch=_THINKING,
        seen_in=("<|im_start|>", "<tool_call>", '\\"name\\":'),
    ),
    Family(
        "glm",
        terminators=("<|user|>", "<|observation|>", "<|endoftext|>"),
        foreign=("<|system|>", "<|assistant|>"),
        thought=_THINK,
        calls=Calls("<tool_call>", "</tool_call>", "kv"),
        switch=_THINKING,
        seen_in=("[gMASK]", "<|observation|>", "<arg_key>", "<arg_value>"),
    ),
    Family(
        "deepseek-v3.1",
        terminators=("<｜end▁of▁sentence｜>",),
        foreign=("<｜User｜>", "<｜Assistant｜>"),
        thought=_THINK,
        calls=Calls(
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
            "named",
            section=_DEEPSEEK_SECTION,
            after_name="<｜tool▁sep｜>",
        ),
        switch=Switch("thinking"),
        arguments="string",
        shows_tools=False,
        seen_in=("<｜Assistant｜>", "<｜tool▁sep｜>", "thinking"),
    ),
    Family(
        "deepseek-r1",
        terminators=("<｜end▁of▁sentence｜>",),
        foreign=("<｜User｜>", "<｜Assistant｜>"),
        thought=_THINK,
        calls=Calls(
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
            "named",
            section=_DEEPSEEK_SECTION,
            before_name="function<｜tool▁sep｜>",
            after_name="\n```json\n",
            after_arguments="\n```",
        ),
        arguments="string",
        shows_tools=False,
        seen_in=("<｜Assistant｜>", "<｜tool▁sep｜>", "```json"),
    ),
)
"""In the order in which they are looked for: the one that asks for more stands first."""

BY_NAME: Mapping[str, Family] = {family.name: family for family in FAMILIES}
OWN_WORDS = "response_template"
"""The family of a checkpoint that says itself how its answers are to be read."""
TEXT_ONLY = "text"
"""What an operator says who wants none of them."""


def find(
    template: str,
    controls: Collection[str],
    *,
    response_template: Mapping[str, Any] | None = None,
    setting: str | None = None,
    terminators: Collection[str] = (),
) -> Family:
    """The row of a checkpoint. `terminators`: the end ids that its own files name, spelled."""
    if setting == TEXT_ONLY:
        return text_only(terminators)
    if setting == OWN_WORDS and response_template is None:
        raise StartupError(f"The checkpoint has no {OWN_WORDS}: name the model's family instead.")
    if setting not in (None, OWN_WORDS):
        return _named(setting, controls)
    if response_template is not None:
        return of_response_template(response_template, terminators)
    for family in FAMILIES:
        if all(text in template for text in family.seen_in) and not _missing(family, controls):
            return family
    return text_only(terminators)


def text_only(terminators: Collection[str]) -> Family:
    """A model of which nothing is known but where its turn ends."""
    return Family(TEXT_ONLY, tuple(terminators))


def _named(setting: str, controls: Collection[str]) -> Family:
    family = BY_NAME.get(setting)
    if family is None:
        raise StartupError(
            f"The family {setting!r} is not known: known are {', '.join(BY_NAME)} and {TEXT_ONLY}."
        )
    if missing := _missing(family, controls):
        raise StartupError(
            f"The family {setting!r} has the marks {', '.join(missing)}, and the checkpoint's "
            "vocabulary has no token for them: name another family, or none."
        )
    return family


def _missing(family: Family, controls: Collection[str]) -> list[str]:
    """The control strings of a row that the vocabulary lacks. A thought's marks may be missing:
    models of a family that do not think have none."""
    needed = [family.terminators[0]]
    if family.calls is not None:
        needed += [family.calls.open, family.calls.close]
    return [text for text in needed if text not in controls]


THOUGHT_FIELDS = ("thinking", "reasoning_content", "reasoning")
_LITERAL = re.compile(r"(?:[^\\.^$*+?{}\[\]|()]|\\[^\w\s])*")
"""The head of a pattern that is a text and no pattern."""


def of_response_template(told: Mapping[str, Any], terminators: Collection[str]) -> Family:
    """The row that a checkpoint's own `response_template` says."""
    fields = told.get("fields")
    if told.get("version", 1) != 1 or not isinstance(fields, dict):
        raise StartupError(
            "The checkpoint's response_template has another version than 1, or no fields: name "
            "the model's family instead."
        )
    thought = next((fields[name] for name in THOUGHT_FIELDS if name in fields), None)
    calls, content = fields.get("tool_calls"), fields.get("content")
    end = "" if content is None else _mark(content, "close")
    return Family(
        OWN_WORDS,
        terminators=tuple(dict.fromkeys(filter(None, (*terminators, end)))),
        thought=None if thought is None else _thought(thought),
        calls=None if calls is None else _calls(calls),
        switch=None if thought is None else _THINKING,
    )


def _thought(field: object) -> tuple[str, str]:
    """An opening that is a pattern alone is that of a thought that the prompt has opened."""
    close = _needed(field, "close")
    return _mark(field, "open") or close.replace("/", "", 1), close


def _calls(field: Mapping[str, Any]) -> Calls:
    form, opening = field.get("content", "json"), str(field.get("open_pattern", ""))
    tags = str((field.get("content_args") or {}).get("tag_pattern", ""))
    body: Body
    if form == "json" and "(?P<name>" not in opening:
        body = "json"
    elif form == "xml-inline" and "<function=" in opening and tags.startswith("<parameter="):
        body = "xml"
    elif form == "xml-inline" and tags.startswith("<arg_key>"):
        body = "kv"
    else:
        raise StartupError(
            f"The checkpoint's response_template writes calls as {form!r} in a way that is not "
            f"read here: name the model's family instead ({', '.join(BY_NAME)}, {TEXT_ONLY})."
        )
    return Calls(_needed(field, "open"), _needed(field, "close"), body)


def _needed(field: object, side: str) -> str:
    if not (text := _mark(field, side)):
        raise StartupError(
            f"The checkpoint's response_template has a field without {side!r}: name the model's "
            "family instead."
        )
    return text


def _mark(field: object, side: str) -> str:
    """A field's mark on one side: the text itself, or the head of its pattern."""
    if not isinstance(field, dict):
        return ""
    if isinstance(text := field.get(side), str):
        return text.strip()
    pattern = field.get(f"{side}_pattern")
    found = _LITERAL.match(pattern) if isinstance(pattern, str) else None
    return re.sub(r"\\(.)", r"\1", found[0]).strip() if found else ""
