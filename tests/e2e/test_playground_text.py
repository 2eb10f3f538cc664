"""Markdown on the page: what each construct becomes, in one piece and as it streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.browser import needs_chromium, play, staged

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = needs_chromium

WHOLE = """async (text) => {
  const { rendered } = await import("/playground/markdown.js");
  const box = document.createElement("div");
  box.append(...rendered(text));
  return box.innerHTML;
}"""
PIECES = """async ([text, size]) => {
  const { Growing } = await import("/playground/markdown.js");
  const growing = new Growing();
  for (let end = size; end < text.length; end += size) growing.update(text.slice(0, end));
  growing.update(text, true);
  return growing.node.innerHTML;
}"""

CONSTRUCTS = {
    "nested list": (
        "1. one\n   - a\n   - b\n2. two\n",
        "<ol>\n<li>one<ul><li>a</li><li>b</li></ul></li><li>two</li></ol>",
    ),
    "list that starts at three": ("3. c\n4. d", '<ol start="3"><li>c</li><li>d</li></ol>'),
    "loose list": ("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    "tasks": (
        "- [x] done\n- [ ] open",
        '<ul><li><input type="checkbox" disabled="" checked="" aria-label="Done"> done</li>'
        '<li><input type="checkbox" disabled="" aria-label="Done"> open</li></ul>',
    ),
    "emphasis": (
        "*a* **b** ***c*** ~~d~~ snake_case_name 2*3*4",
        "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <s>d</s> snake_case_name "
        "2<em>3</em>4</p>",
    ),
    "code": ("`` a ` b ``", "<p><code>a ` b</code></p>"),
    "heading": ("# Title\n## Below", "<h3>Title</h3><h4>Below</h4>"),
    "quote": (
        "> one\n> > two",
        "<blockquote><p>one</p><blockquote><p>two</p></blockquote></blockquote>",
    ),
    "rule": ("a\n\n---", "<p>a</p><hr>"),
    "table": (
        "| a | b |\n|:-:|--:|\n| 1 | `2` |",
        '<div class="wide" tabindex="0" role="region" aria-label="Table"><table><thead><tr>'
        '<th style="text-align: center;">a</th><th style="text-align: right;">b</th></tr></thead>'
        '<tbody><tr><td style="text-align: center;">1</td>'
        '<td style="text-align: right;"><code>2</code></td></tr></tbody></table></div>',
    ),
    "link": (
        "[a *b*](https://x.example/y_z) <https://q.example>",
        '<p><a href="https://x.example/y_z" target="_blank" rel="noopener noreferrer nofollow">'
        'a <em>b</em></a> <a href="https://q.example" target="_blank" '
        'rel="noopener noreferrer nofollow">https://q.example</a></p>',
    ),
    "bare link": (
        "see https://x.example/a_b.",
        '<p>see <a href="https://x.example/a_b" target="_blank" '
        'rel="noopener noreferrer nofollow">https://x.example/a_b</a>.</p>',
    ),
    "link that would run": ("[x](javascript:alert)", "<p><span>x (javascript:alert)</span></p>"),
    "image": (
        "![alt](https://x.example/i.png)",
        '<p><a href="https://x.example/i.png" target="_blank" '
        'rel="noopener noreferrer nofollow">alt</a></p>',
    ),
    "lines": ("one\ntwo", "<p>one<br>two</p>"),
    "HTML": ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
    "escapes": (r"\*a\* &copy;", "<p>*a* ©</p>"),
    "reference": (
        "[a][1]\n\n[1]: https://x.example",
        '<p><a href="https://x.example" target="_blank" '
        'rel="noopener noreferrer nofollow">a</a></p>',
    ),
    "footnote": (
        "a[^1]\n\n[^1]: note",
        '<p>a<sup>[1]</sup></p><section class="footnotes"><p>1. <p>note</p></p></section>',
    ),
    "code in a list": (
        "- a\n\n  ```\n  x\n  ```",
        '<ul><li><p>a</p><div class="code-block"><div class="code-head"><span>code</span>'
        '<button type="button" class="plain">Copy</button></div><pre tabindex="0"><code>x</code>'
        "</pre></div></li></ul>",
    ),
    "coloured code": (
        "```python\nx = 'a'\n```",
        '<div class="code-block"><div class="code-head"><span>python</span>'
        '<button type="button" class="plain">Copy</button></div>'
        '<pre tabindex="0" data-language="python"><code>x = <span class="hljs-string">\'a\'</span>'
        "</code></pre></div>",
    ),
}


async def html(page: Page, text: str) -> str:
    shown: str = await page.evaluate(WHOLE, text)
    return shown


def test_each_construct_is_what_it_says() -> None:
    async def story() -> None:
        async with staged() as s:
            shown = {name: await html(s.page, text) for name, (text, _) in CONSTRUCTS.items()}
            wanted = {name: one.replace("\n", "") for name, (_, one) in CONSTRUCTS.items()}
            assert shown == wanted

    play(story)


@pytest.mark.parametrize("size", [1, 7])
def test_a_text_in_pieces_ends_as_the_whole(size: int) -> None:
    async def story() -> None:
        async with staged() as s:
            for name, (text, _) in CONSTRUCTS.items():
                grown = await s.page.evaluate(PIECES, [f"{text}\n\nThe end.", size])
                assert grown == await html(s.page, f"{text}\n\nThe end."), name

    play(story)


def test_formulas_are_drawn_and_what_is_none_stays_text() -> None:
    async def story() -> None:
        text = (
            r"Area \(\pi r^2\), it costs $5 or $6."
            "\n\n\\[\n\\frac{a}{b}\n- c\n\\]\n\n$$x_1$$ \\(\\nonsense{\\) `\\(code\\)`"
        )
        async with staged() as s:
            await s.page.evaluate(
                "async (text) => { const { rendered } = await import('/playground/markdown.js');"
                "document.body.append(...rendered(text)); }",
                text,
            )
            await s.page.locator("math").nth(2).wait_for()
            assert await s.page.locator("math").count() == 3
            assert await s.page.locator("mfrac").count() == 1
            shown = await s.page.locator("body").inner_text()
            assert "it costs $5 or $6." in shown
            assert r"\(\nonsense{\)" in shown
            assert r"\(code\)" in shown
            assert s.seen.faults == []

    play(story)
