"""The pages of `docs/` and the README as text: prose, sentences, anchors, the nav of the site."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
GROUPS = ("Tutorials", "How-to", "Reference", "Explanation")

_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_NOT_PROSE = re.compile(r"^(?:\||#|!\[).*$", re.M)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def pages() -> list[Path]:
    return sorted(DOCS.glob("*.md"))


def nav() -> dict[str, list[str]]:
    """Each group of `mkdocs.yml` with its pages, in order; what stands in none is under ""."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    found: dict[str, list[str]] = {"": []}
    group = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"  - ([\w-]+):", line):
            found[group := heading[1]] = []
        elif page := re.fullmatch(r"( {2}| {6})- ([\w.-]+\.md)", line):
            found[group if len(page[1]) == 6 else ""].append(page[2])
        else:
            raise ValueError(f"mkdocs.yml, nav: {line!r}")
    return found


def without_code(text: str) -> str:
    return _COMMENT.sub("", _FENCE.sub("\n", text))


def sentences(text: str) -> list[str]:
    """The sentences of paragraphs and lists; tables, headings and code are none."""
    prose = _LINK.sub(r"\1", _NOT_PROSE.sub("\n", without_code(text)))
    paragraphs = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", prose, flags=re.M)
    parts = (re.split(r"(?<=[.!?])[)*\"]*\s+", " ".join(one.split())) for one in paragraphs)
    return [part for one in parts for part in one if re.search(r"\w", part)]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(text), re.M):
        plain = _LINK.sub(r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found
