"""Families of models as rows of data: the marks of thoughts, calls and turn ends.

The operator's setting chooses a row, else the checkpoint's `response_template`, else the marks in
the template and the vocabulary. Without a row the model gets text alone: no tools, no thoughts.
Nothing is guessed while serving. No ids here, and no rendering.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass

Body = Literal["json", "named", "tags", "literal"]
"""The form of a call between its marks:

- `json`: one object with the name and the arguments;
- `named`: NAME, a separator, and the arguments as JSON;
- `tags`: NAME, then each key and value as text between tags;
- `literal`: `NAME(key='value', other=2)`, or with other brackets and quotes.
"""


@dataclass(frozen=True, slots=True)
class Tags:
    """The texts around keys and values, as the template writes them."""

    open: str
    """The text before a key."""
    key_end: str
    """The text between a key and its value."""
    value_end: str
    other: str = ""
    """`key_end` before a value that is no string, where that differs."""
    quotes: str = ""
    """The mark on both sides of a string, in a `literal` body."""
    cdata: bool = False
    """Whether texts with special signs stand in `<![CDATA[` `]]>`."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The form of calls. `section` encloses all calls of a turn.

    Without `open` a call begins with its body: anywhere in its section, or at the start of a turn.
    """

    open: str
    close: str
    body: Body
    section: tuple[str, str] | None = None
    before_name: str = ""
    """The text between the opening mark and the name."""
    after_name: str = ""
    """The text between name and arguments."""
    after_arguments: str = ""
    """The text between the arguments and the closing mark."""
    keys: tuple[str, str] = ("name", "arguments")
    """The keys of a `json` body. Without the first, the name itself is the key of the arguments."""
    tags: Tags | None = None
    several: bool = True
    """Whether a turn may have several calls."""

    @property
    def bare(self) -> bool:
        """Whether nothing but its body shows that a call begins."""
        return not self.open and self.section is None


def json_calls(open_mark: str, close_mark: str) -> Calls:
    """A call as a JSON object between two marks, as Qwen and Hermes write it."""
    name = '\n{"name": "'
    return Calls(open_mark, close_mark, "json", None, name, '", "arguments": ', "}\n")


def xml_calls(open_mark: str, close_mark: str) -> Calls:
    """`<function=NAME>` with a `<parameter=KEY>` for each argument."""
    tags = Tags("<parameter=", ">\n", "\n</parameter>\n")
    name = "\n<function="
    return Calls(open_mark, close_mark, "tags", None, name, ">\n", "</function>\n", tags=tags)


def key_value_calls(open_mark: str, close_mark: str) -> Calls:
    """A name, then `<arg_key>` and `<arg_value>` for each argument."""
    tags = Tags("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n")
    return Calls(open_mark, close_mark, "tags", None, "", "\n", "", tags=tags)


@dataclass(frozen=True, slots=True)
class Switch:
    """The template variable that switches thinking on and off."""

    name: str
    on: bool = True
    off: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models."""

    name: str
    terminators: tuple[str, ...]
    """Marks that end a turn, besides those in the checkpoint's `generation_config.json`."""
    foreign: tuple[str, ...] = ()
    """Marks that begin another author's turn: they end the model's turn."""
    thought: tuple[str, str] | None = None
    calls: Calls | None = None
    switch: Switch | None = None
    arguments: Literal["object", "string"] = "object"
    """The form in which the template expects the arguments of earlier calls."""
    shows_tools: bool = True
    """Whether its templates show tools; if False, the probe decides."""
    numbers_calls: bool = False
    """Whether call ids are `functions.NAME:INDEX`, counted over the conversation."""
    short_ids: bool = False
    """Whether call ids have nine letters or digits."""
    frames: tuple[str, ...] = ()
    """Marks around the text of an answer, which are no part of it."""
    empty_tools: bool = False
    """Whether the template wants an empty list where there are no tools."""
    describes_tools: bool = False
    """Whether the system message describes the tools, because the template shows none."""
    no_calls: str = ""
    """Why there are no calls."""
    merges_users: bool = False
    """Whether the template refuses two user messages in a row: they become one."""
    folds_system: bool = False
    """Whether the template has no system message: its text begins the first user message."""
    seen_in: tuple[str, ...] = ()
    """Texts that identify the family: all occur in its templates."""

    def variables(self, *, thinks: bool) -> dict[str, bool]:
        """The template's variables for a prompt with or without thinking."""
        needed = {"empty_tools": True} if self.empty_tools else {}
        if self.switch is not None:
            needed[self.switch.name] = self.switch.on if thinks else self.switch.off
        return needed


class OtherForm(StartupError):
    """A card's form that another release wrote."""


_FAMILY = TypeAdapter(Family)
_THINK = ("<think>", "</think>")
_THINKING = Switch("enable_thinking")
_DEEPSEEK_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")

FAMILIES = (
    Family(
        "qwen3-xml",
        terminators=("<|im_end|>",),
        foreign=("<|im_start|>",),
        thought=_THINK,
        calls=xml_calls("<tool_call>", "</tool_call>"),
        switch=_THINKING,
        seen_in=("<|im_start|>", "<tool_call>", "<function=", "<parameter="),
    ),
    Family(
        "qwen3",
        terminators=("<|im_end|>",),
        foreign=("<|im_start|>",),
        thought=_THINK,
        calls=json_calls("<tool_call>", "</tool_call>"),
        switch=_THINKING,
        seen_in=("<|im_start|>", "<tool_call>", '\\"name\\":'),
    ),
    Family(
        "glm",
        terminators=("<|user|>", "<|observation|>", "<|endoftext|>"),
        foreign=("<|system|>", "<|assistant|>"),
        thought=_THINK,
        calls=key_value_calls("<tool_call>", "</tool_call>"),
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
"""In the order of the search: a family with more required texts comes first."""

BY_NAME: Mapping[str, Family] = {family.name: family for family in FAMILIES}
OWN_WORDS = "response_template"
"""The family name of a checkpoint that has its own `response_template`."""
TEXT_ONLY = "text"
"""The setting for text alone."""
READ = "template"
"""The family of a model whose form was read out of its template."""


def find(
    template: str,
    controls: Collection[str],
    *,
    response_template: Mapping[str, Any] | None = None,
    setting: str | None = None,
    terminators: Collection[str] = (),
) -> Family:
    """The family of a checkpoint. `terminators`: spellings of the end ids in its own files."""
    if setting in (TEXT_ONLY, READ):
        return Family(setting, tuple(terminators))
    if setting == OWN_WORDS and response_template is None:
        raise StartupError(f"The checkpoint has no {OWN_WORDS}: name the model's family.")
    if setting not in (None, OWN_WORDS):
        return _named(setting, controls)
    if response_template is not None:
        return of_response_template(response_template, terminators)
    for family in FAMILIES:
        if all(text in template for text in family.seen_in) and not _missing(family, controls):
            return family
    return text_only(terminators)


def to_dict(family: Family) -> dict[str, Any]:
    """A family as JSON values, for a card."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(family)))
    return values


def from_dict(values: Mapping[str, Any]) -> Family:
    """The family of a card. Raises an `OtherForm` for other fields than these."""
    try:
        return _FAMILY.validate_python(values, extra="forbid")
    except ValidationError as error:
        raise OtherForm(f"{error.error_count()} fields of the card's form are unknown.") from None


def text_only(terminators: Collection[str]) -> Family:
    """The family of a model with known turn ends and nothing else."""
    return Family(TEXT_ONLY, tuple(terminators))


def _named(setting: str, controls: Collection[str]) -> Family:
    family = BY_NAME.get(setting)
    if family is None:
        raise StartupError(
            f"No family named {setting!r}: use one of {', '.join(BY_NAME)}, {TEXT_ONLY}."
        )
    if missing := _missing(family, controls):
        raise StartupError(
            f"The family {setting!r} needs tokens for {', '.join(missing)}, and the checkpoint's "
            "vocabulary has none: name another family, or none."
        )
    return family


def _missing(family: Family, controls: Collection[str]) -> list[str]:
    """The family's required control strings that the vocabulary lacks. Marks of thoughts are
    optional: some models of a family do not think."""
    needed = [family.terminators[0]]
    if family.calls is not None:
        needed += [family.calls.open, family.calls.close]
    return [text for text in needed if text not in controls]


THOUGHT_FIELDS = ("thinking", "reasoning_content", "reasoning")
_LITERAL = re.compile(r"(?:[^\\.^$*+?{}\[\]|()]|\\[^\w\s])*")
"""The literal beginning of a pattern."""


def of_response_template(template: Mapping[str, Any], terminators: Collection[str]) -> Family:
    """The family that a checkpoint's own `response_template` describes."""
    fields = template.get("fields")
    if template.get("version", 1) != 1 or not isinstance(fields, dict):
        raise StartupError(
            "The checkpoint's response_template has no fields, or a version other than 1: name "
            "the model's family."
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
    """The marks of a thought. If `open` is only a pattern, the prompt opens the thought."""
    close = _needed(field, "close")
    return _mark(field, "open") or close.replace("/", "", 1), close


def _calls(field: Mapping[str, Any]) -> Calls:
    form, opening = field.get("content", "json"), str(field.get("open_pattern", ""))
    tags = str((field.get("content_args") or {}).get("tag_pattern", ""))
    if form == "json" and "(?P<name>" not in opening:
        calls = json_calls
    elif form == "xml-inline" and "<function=" in opening and tags.startswith("<parameter="):
        calls = xml_calls
    elif form == "xml-inline" and tags.startswith("<arg_key>"):
        calls = key_value_calls
    else:
        raise StartupError(
            f"The checkpoint's response_template writes calls as {form!r} in an unsupported way: "
            f"name the model's family ({', '.join(BY_NAME)}, {TEXT_ONLY})."
        )
    return calls(_needed(field, "open"), _needed(field, "close"))


def _needed(field: object, side: str) -> str:
    if not (text := _mark(field, side)):
        raise StartupError(
            f"The checkpoint's response_template has a field without {side!r}: name the model's "
            "family."
        )
    return text


def _mark(field: object, side: str) -> str:
    """A field's mark on one side: its text, or the literal beginning of its pattern."""
    if not isinstance(field, dict):
        return ""
    if isinstance(text := field.get(side), str):
        return text.strip()
    pattern = field.get(f"{side}_pattern")
    literal = _LITERAL.match(pattern) if isinstance(pattern, str) else None
    return re.sub(r"\\(.)", r"\1", literal[0]).strip() if literal else ""
