"""Markdown that streams: what is complete is printed once, whatever the pieces are."""

from __future__ import annotations

import io

import pytest

from trt_responses.cli.terminal.markdown import MarkdownStream, split

TEXT = """\
# Title

A paragraph with **bold** text
and [a link](https://example.org).

1. one
   - nested
2. two

```python
x = 1

y = 2
```

| a | b |
|---|---|
| 1 | 2 |

The end."""


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", ""),
        ("one", ""),
        ("one\n\n", ""),
        ("one\n\ntwo", "one\n\n"),
        ("- a\n\n- b\n", ""),
        ("- a\n\nafter", "- a\n\n"),
        ("```\none\n\ntwo", ""),
        ("```\none\n```\nt", "```\none\n```\n"),
    ],
)
def test_split(text: str, complete: str) -> None:
    assert split(text) == (complete, text.removeprefix(complete))


def rendered(*pieces: str) -> str:
    out = io.StringIO()
    stream = MarkdownStream(out)
    for piece in pieces:
        stream.add(piece)
    stream.close()
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_pieces_render_as_the_whole() -> None:
    whole = rendered(TEXT)
    assert "https://example.org" in whole, "a link shows where it leads"
    assert "**" not in whole
    assert rendered(*TEXT) == whole
    assert rendered(*TEXT.splitlines(keepends=True)) == whole
