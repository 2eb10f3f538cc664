"""A hook of MkDocs: links from `docs/` to the rest of the repository, which is not on the site.

`[the unit](../deploy/systemd)` becomes the unit (`deploy/systemd`).
"""

from __future__ import annotations

import re

OUTSIDE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?:\.\./|decisions/)([^)\s]*)\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page's Markdown for the site."""
    return OUTSIDE.sub(_plain, markdown)


def _plain(found: re.Match[str]) -> str:
    text, target = found[1], found[2].partition("#")[0]
    path = target if found[0].rpartition("(")[2].startswith("../") else f"docs/decisions/{target}"
    return text if text.strip("`") == path else f"{text} (`{path}`)"
