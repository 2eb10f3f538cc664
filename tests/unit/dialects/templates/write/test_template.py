"""Templates: what they may use, where they are found, and that a hostile one holds nobody."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.support.idle import beside
from tests.support.processes import children_of
from tests.support.turns import turn
from trt_responses.dialects.templates.marks import SHIELD
from trt_responses.dialects.templates.write.render_process import TemplateProcess
from trt_responses.dialects.templates.write.template import (
    OUTPUT_CHARACTERS,
    TEMPLATE_CHARACTERS,
    Template,
    TemplateError,
    template_of_gguf,
)
from trt_responses.errors import StartupError

USER = [{"role": "user", "content": "Hi <b>"}]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0].content }}", "Hi <b>"),
        ("{{ {'b': 'ü<', 'a': [1]} | tojson }}", '{"b": "ü<", "a": [1]}'),
        ("{{ 'ü' | tojson(ensure_ascii=True) }}", '"\\u00fc"'),
        (f"{{{{ '{SHIELD}ü' | tojson(ensure_ascii=True) }}}}", f'"{SHIELD}\\u00fc"'),
        ("{% generation %}a{{ 1 + 1 }}{% endgeneration %}b", "a2b"),
        ("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}", "1"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ bos_token }}{{ nothing_like_this }}", "<s>"),
        ("{% if tools is none %}none{% endif %}", "none"),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
    ],
)
def test_what_a_template_may_use(source: str, text: str) -> None:
    assert Template(source, {"bos_token": "<s>"}).render(USER) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no user') }}",
        "{{ messages[0].nothing.at_all }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(100000) %}{{ '%1000d' % i }}{% endfor %}",
    ],
)
def test_what_a_template_may_not_do_is_its_error(source: str) -> None:
    with pytest.raises(TemplateError):
        Template(source).render(USER)
    assert USER == [{"role": "user", "content": "Hi <b>"}]


@pytest.mark.parametrize("source", ["{% if %}", "x" * (TEMPLATE_CHARACTERS + 1), "{{ " * 9999])
def test_a_template_that_cannot_be_one_is_refused(source: str) -> None:
    with pytest.raises(TemplateError):
        Template(source)


HOSTILE = {
    "a loop without an end": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "a text of a gigabyte": "{{ ('x' * 99999) * 99999 }}",
    "a nest that doubles": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "a number without an end": "{{ 9 ** (9 ** 9) }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_holds_neither_the_server_nor_the_next_prompt(name: str) -> None:
    async def attack() -> None:
        source = f"{{% if messages[0].content == 'now' %}}{HOSTILE[name]}{{% endif %}}fine"
        process = TemplateProcess(Template(source), render_s=30, memory_bytes=300 << 20)
        assert await process.render(USER) == "fine"
        process.render_s = 0.3
        async with beside() as others:
            with pytest.raises(TemplateError):
                await process.render([{"role": "user", "content": "now"}])
        assert others.count or "gigabyte" in name  # the loop went on; that one ends at once
        process.render_s = 30
        assert await process.render(USER) == "fine"
        await process.close()

    asyncio.run(attack())


def test_conversations_are_rendered_one_by_one_and_none_gets_anothers_text() -> None:
    async def in_turns() -> None:
        process = TemplateProcess(Template("{{ messages[0].content }}{{ tools }}{{ switch }}"))
        others = children_of(os.getpid())
        told = await asyncio.gather(
            *(process.render([{"content": f"é{n}"}], [], switch=n) for n in range(20))
        )
        assert told == [f"é{n}None{n}" for n in range(20)]
        (started,) = set(children_of(os.getpid())) - set(others)
        assert os.getsid(started) == started, "Ctrl-C does not end what a drain needs"
        leaving = asyncio.create_task(process.render([{"content": "left"}]))
        await turn()
        leaving.cancel()
        assert (await process.render([{"content": "next"}])).startswith("next")
        await process.close()

    asyncio.run(in_turns())


def test_the_output_is_bounded() -> None:
    source = "{% for i in range(99999) %}{{ '%999d' % 1 }}{% endfor %}"
    with pytest.raises(TemplateError, match=str(OUTPUT_CHARACTERS)):
        Template(source).render(USER)


@pytest.mark.parametrize(("source", "word"), [(5, "is not a text"), ("{% if", "the GGUF file: ")])
def test_a_template_that_cannot_be_read_stops_the_start(source: object, word: str) -> None:
    with pytest.raises(StartupError, match=word):
        template_of_gguf({"tokenizer.chat_template": source}, [])


def test_the_template_of_a_gguf_file() -> None:
    metadata = {
        "tokenizer.chat_template": "{{ bos_token }}",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 99,
    }
    assert (made := template_of_gguf(metadata, ["a", "<s>"])) is not None
    assert made.render([]) == "<s>"
    tools = {**metadata, "tokenizer.chat_template.tool_use": "tools"}
    assert (made := template_of_gguf(tools, [])) is not None
    assert made.render([]) == "tools"
    assert template_of_gguf({}, []) is None
