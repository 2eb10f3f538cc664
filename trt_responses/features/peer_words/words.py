"""Fields of vLLM's and llama.cpp's APIs: what each asks for, or why it is refused.

A table, and what reads a constraint into the form of an answer. Knows no run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trt_responses.accept.accepted import AnswerFormat
from trt_responses.errors import InvalidRequest, invalid_value, unsupported_value
from trt_responses.wire.fields import Field, nothing

Read = Callable[[str, Any], AnswerFormat]

MOST_CHOICES = 1000


def _schema(place: str, value: Any) -> AnswerFormat:
    if isinstance(value, str):  # which vLLM takes too
        try:
            value = json.loads(value)
        except ValueError:
            raise invalid_value(place, "it is a string, and not of JSON") from None
    if not isinstance(value, dict):
        raise invalid_value(place, "it must be a JSON schema")
    return AnswerFormat(place, "answer", None, value, strict=True)


def _any_object(place: str, value: Any) -> AnswerFormat:
    if value is not True:
        raise invalid_value(place, "it must be true or false")
    return AnswerFormat(place, "json_object", "A JSON object.", None)


def _choice(place: str, value: Any) -> AnswerFormat:
    texts = value if isinstance(value, list) else []
    if not all(isinstance(text, str) and text for text in texts) or not texts:
        raise invalid_value(place, "it must be a list of texts")
    if len(texts) > MOST_CHOICES:
        raise invalid_value(place, f"it has {len(texts)} texts, limit {MOST_CHOICES}")
    return _lark(place, "start: " + " | ".join(json.dumps(text) for text in texts))


def _regex(place: str, value: Any) -> AnswerFormat:
    expression = _text(place, value).removeprefix("^")
    if expression.endswith("$") and not expression.endswith("\\$"):
        expression = expression[:-1]
    escaped = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", expression)
    return _lark(place, f"start: /{escaped}/")


def _grammar(place: str, value: Any) -> AnswerFormat:
    grammar = _text(place, value)
    return _lark(place, lark_of(grammar) if "::=" in grammar else grammar)


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise invalid_value(place, "it must be a text")
    return value


def _lark(place: str, grammar: str) -> AnswerFormat:
    return AnswerFormat(place, "answer", None, None, strict=True, grammar=grammar)


GBNF = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<comment>\#[^\n]*)"""
    r"|(?P<rule>[A-Za-z][\w-]*)(?P<defines>\s*::=\s*)?|(?P<any>\.)|(?P<line>\n\s*)"
)


def lark_of(grammar: str) -> str:
    """A grammar of llama.cpp in Lark. Rules may go on in the next line."""

    def written(found: re.Match[str]) -> str:
        if (rule := found["rule"]) is not None:
            name = "start" if rule == "root" else "r_" + rule.replace("-", "_").lower()
            return f"\n{name}: " if found["defines"] else name
        if found["set"] is not None:
            return "/" + found["set"].replace("/", r"\/") + "/"
        if found["any"] is not None:
            return "/./"
        return found["string"] or " "

    return GBNF.sub(written, grammar).strip()


CONSTRAINTS: Mapping[str, Read] = {
    "guided_json": _schema,
    "guided_choice": _choice,
    "guided_regex": _regex,
    "guided_grammar": _grammar,
    "json_schema": _schema,
    "grammar": _grammar,
}
STRUCTURED = "structured_outputs"
PARTS: Mapping[str, Read] = {
    "json": _schema,
    "json_object": _any_object,
    "choice": _choice,
    "regex": _regex,
    "grammar": _grammar,
}
"""The keys of `structured_outputs`."""

NONE = "this server has nothing like it"
REFUSED: Mapping[str, str] = {
    "guided_whitespace_pattern": NONE,
    "echo": NONE,
    "prompt_token_ids": NONE,
    "continue_final_message": NONE,
    "enable_response_messages": "use `include: [messages]`",
}
"""Each with the reason."""

FOLLOWED = (
    "the answer's form, as vLLM or llama.cpp names it, in all three APIs; refused if the engine "
    "cannot guide to it"
)
EXTRA = "where the engine has it: llama.cpp, vLLM, SGLang{}; else refused"
SAMPLED: Mapping[str, str] = {
    "min_tokens": "not with an answer that has a form",
    "stop_token_ids": "at most 64",
    "repetition_penalty": EXTRA.format(", TensorRT-LLM"),
    "logit_bias": f"at most 1024 ids; -100 everywhere, other values {EXTRA.format('')}",
}
"""The options of sampling, each with what bounds it."""
FIELDS = (
    *(Field(name, "honoured", why, ours=True) for name, why in SAMPLED.items()),
    *(Field(name, "honoured", FOLLOWED, ours=True) for name in (*CONSTRAINTS, STRUCTURED)),
    *(Field(name, "refused", why, ours=True, harmless=nothing) for name, why in REFUSED.items()),
)


def answer_of(ignored: Mapping[str, Any]) -> AnswerFormat | None:
    """The form of the answer that these fields ask for. Raises for what cannot be done."""
    for field, why in REFUSED.items():
        if field in ignored and not nothing(ignored[field]):
            raise unsupported_value(field, f"{why}. Leave the field out")
    forms = list(_forms(ignored))
    if len(forms) > 1:
        raise _two(forms[1].place, forms[0].place)
    return forms[0] if forms else None


def _forms(ignored: Mapping[str, Any]) -> Iterator[AnswerFormat]:
    for field, read in CONSTRAINTS.items():
        if ignored.get(field) is not None:
            yield read(field, ignored[field])
    parts = ignored.get(STRUCTURED)
    if parts is None:
        return
    if not isinstance(parts, dict):
        raise invalid_value(STRUCTURED, "it must be an object")
    for key, value in parts.items():
        if not nothing(value):
            if key not in PARTS:
                keys = ", ".join(PARTS)
                raise unsupported_value(f"{STRUCTURED}.{key:.40}", f"this server has {keys}")
            yield PARTS[key](f"{STRUCTURED}.{key}", value)


def _two(field: str, other: str) -> InvalidRequest:
    return InvalidRequest(
        f"'{field}' and '{other}' exclude each other: an answer has one form.",
        param=field,
        code="mutually_exclusive_parameters",
    )


def check_alone(answer: AnswerFormat, standing: AnswerFormat | None) -> None:
    """Refuse a second form beside the one that the request has in the API's own words."""
    if standing is not None and standing is not answer:
        raise _two(answer.place, standing.place)
