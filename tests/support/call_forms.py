"""Forms of calls as templates describe them, and dialects over small vocabularies that write so."""

from __future__ import annotations

from tests.support import template_forms
from tests.support.template_families import vocabulary
from trt_responses.dialects.templates.dialect import TemplateDialect
from trt_responses.dialects.templates.families import Calls, Family, Tags
from trt_responses.dialects.templates.write.template import Template

FORMS = {
    "quoted": Calls(
        '<function name="',
        "</function>",
        "tags",
        after_name='">',
        tags=Tags('<param name="', '">', "</param>", cdata=True),
    ),
    "typed": Calls(
        '<|open|>call tool="',
        "<|close|>call<|sep|>",
        "tags",
        ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        after_name='" index="1"<|sep|>',
        tags=Tags(
            '<|open|>argument key="',
            '" type="string"<|sep|>',
            "<|close|>argument<|sep|>",
            '" type="number"<|sep|>',
        ),
    ),
    "python": Calls(
        "",
        "",
        "literal",
        ("<|calls|>[", "]<|calls_end|>"),
        after_name="(",
        after_arguments=")",
        tags=Tags("", "=", ", ", quotes="'"),
    ),
    "marked": Calls(
        "<|call>",
        "<call|>",
        "literal",
        before_name="call:",
        after_name="{",
        after_arguments="}",
        tags=Tags("", ":", ",", quotes='<|"|>'),
    ),
}
"""Marks that are text, types in tags, and literals with quotes that are signs or a token."""


def dialect_for(calls: Calls, thought: tuple[str, str] | None = None) -> TemplateDialect:
    family = Family("template", ("<|end|>",), thought=thought, calls=calls)
    tokeniser = vocabulary(template_forms.controls(family))
    end = tokeniser.control_id("<|end|>")
    return TemplateDialect(Template("{{ messages }}"), tokeniser, family, (end,))
