"""Renders a checkpoint's chat template in jinja's sandbox, with limits.

A template is code that comes with a checkpoint. It receives plain JSON values and a dozen
functions. This module limits its length and the length of its output; `render_process.py` limits
time and memory. No ids and no family here.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trt_responses.dialects.templates.marks import SHIELDS
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2.compiler import Frame
    from jinja2.parser import Parser
    from jinja2.runtime import Macro

Json = dict[str, Any]

TEMPLATE_CHARACTERS = 150_000
"""Maximum length of a template. The longest known has 30,000."""
OUTPUT_CHARACTERS = 16_000_000
"""Maximum length of a rendered conversation: more than a million tokens."""

_NOT_ASCII = re.compile(f"[^\x00-\x7f{SHIELDS}]+")
"""The characters that `ensure_ascii` escapes, except the shields, which are removed later."""

GGUF_TEMPLATE = "tokenizer.chat_template"


class TemplateError(Exception):
    """The template refused a conversation, or failed on it. The message is for people."""


class TemplateLimitError(TemplateError):
    """The template exceeded its time or memory."""


class _Generation(Extension):
    """`{% generation %}` marks model output for training. Here it returns its body unchanged."""

    tags = {"generation"}  # noqa: RUF012  # jinja's own form

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return str(caller())


def _raise_exception(message: str) -> str:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as in models' training: no HTML escapes, keys in the given order."""
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return _NOT_ASCII.sub(_escape, text) if ensure_ascii else text


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


class _Generator(CodeGenerator):
    """Folds no constants: a constant may become a gigabyte, and the server compiles the template
    before any limit is set."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData | nodes.Const):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _Environment(ImmutableSandboxedEnvironment):
    code_generator_class = _Generator


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        extensions=[_Generation, loopcontrols],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class Template:
    """One template. `special`: the tokens that it may name, such as `bos_token`."""

    def __init__(self, source: str, special: Mapping[str, str] | None = None) -> None:
        if len(source) > TEMPLATE_CHARACTERS:
            raise TemplateError(
                f"The chat template is too long: {len(source)} characters, limit "
                f"{TEMPLATE_CHARACTERS}."
            )
        self.source = source
        self.special = dict(special or {})
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"The chat template is not jinja: {error} (line {error.lineno})"
            ) from None
        except (RecursionError, OverflowError, MemoryError) as error:
            raise TemplateError(f"The chat template cannot be compiled: {error}") from None

    def render(
        self,
        messages: Sequence[Json],
        tools: Sequence[Json] | None = None,
        *,
        add_generation_prompt: bool = True,
        empty_tools: bool = False,
        **switches: object,
    ) -> str:
        """The conversation as text. `empty_tools`: without tools, the template gets an empty list.
        Raises a `TemplateError` for any failure of the template."""
        pieces, length = [], 0
        try:
            for piece in self._template.generate(
                **self.special,
                **switches,
                messages=list(messages),
                tools=list(tools) if tools else [] if empty_tools else None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            ):
                pieces.append(piece)
                length += len(piece)
                if length > OUTPUT_CHARACTERS:
                    raise TemplateError(
                        "The chat template's output is too long: limit "
                        f"{OUTPUT_CHARACTERS} characters."
                    )
        except TemplateError:
            raise
        except Exception as error:  # a template is code: it may raise anything
            raise TemplateError(
                f"The chat template failed: {type(error).__name__}: {error!s:.300}"
            ) from None
        return "".join(pieces)


def template_of_gguf(metadata: Mapping[str, object], tokens: Sequence[str]) -> Template | None:
    """The template in a GGUF file's metadata, or None. `tokens`: the spelling of each id."""
    special = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")):
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and 0 <= number < len(tokens):
            special[name] = tokens[number]
    source = metadata.get(f"{GGUF_TEMPLATE}.tool_use") or metadata.get(GGUF_TEMPLATE)
    if source is None:
        return None
    if not isinstance(source, str):
        raise StartupError("The GGUF file's chat template is not a text.")
    try:
        return Template(source, special)
    except TemplateError as error:
        raise StartupError(f"the GGUF file: {error}") from None
