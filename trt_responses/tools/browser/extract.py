"""Extracts the text of an HTML document for a model: lines, with a mark for each link.

It walks the tree of a fast parser. A hostile page can take minutes: run this only in the sandboxed
process of `parser.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urldefrag, urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from trt_responses.tools.browser.marks import CONTROL, harmless, label
from trt_responses.tools.browser.page import wrapped

MAX_CHARACTERS = 1_000_000
MAX_LINKS = 5_000
MAX_URL = 4096
UNSHOWN = """-comment audio button canvas embed head iframe noscript object script select style svg
template textarea video"""
APART = """address article aside blockquote body caption dd details dialog div dl dt fieldset
figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr html li main nav ol p pre section summary
table tbody tfoot thead tr ul"""
DISTANT = "blockquote dl figure h1 h2 h3 h4 h5 h6 ol p pre table ul"
SKIPPED, BLOCKS, SPACED = (frozenset(tags.split()) for tags in (UNSHOWN, APART, DISTANT))
"""Elements that are left out, that begin a line, and that have an empty line around them."""


class Extracted(NamedTuple):
    """The extracted text of a document."""

    title: str
    lines: list[str]
    links: list[str]
    """URLs by mark id."""
    cut: bool
    """Whether the document was longer."""


def of_html(html: str, url: str) -> Extracted:
    """The text and the links of an HTML page."""
    parser = LexborHTMLParser(html)
    title = parser.css_first("title")
    walk = _Walk(_base(parser, url), url)
    if parser.body is not None:
        walk.over(parser.body)
    name = label(title.text()) if title is not None else ""
    return Extracted(name, walk.lines(), walk.links, walk.full)


def of_text(text: str, url: str) -> Extracted:
    """The lines of a plain text document."""
    shown = harmless(text[:MAX_CHARACTERS].expandtabs(4))
    return Extracted("", wrapped(shown.splitlines()), [], len(text) > MAX_CHARACTERS)


def _base(parser: LexborHTMLParser, url: str) -> str:
    base = parser.css_first("base[href]")
    return _joined(url, (base.attributes.get("href") or "")) if base is not None else url


@lru_cache(maxsize=4096)
def _joined(url: str, reference: str) -> str:
    try:
        return urljoin(url, reference.strip())
    except ValueError:
        return ""


class _Walk:
    """One pass over a tree, without recursion, since a tree may be very deep."""

    def __init__(self, base: str, url: str) -> None:
        self.links: list[str] = []
        self.full = False
        self._base = base
        self._host = urlsplit(url).hostname
        self._here = urldefrag(url).url
        self._ids: dict[str, int] = {}
        self._done: list[str] = []
        self._line: list[str] = []
        self._size = 0
        self._images = 0
        self._pre = 0
        self._link: tuple[str, list[str]] | None = None
        """The URL of the open link, and its text so far."""

    def over(self, root: LexborNode) -> None:
        node, depth = root, 0
        while not self.full:
            child = node.child if self._enter(node) else None
            if child is not None:
                node, depth = child, depth + 1
                continue
            while True:
                self._leave(node)
                if not depth:
                    return
                following = node.next
                if following is not None:
                    node = following
                    break
                parent = node.parent
                if parent is None:
                    return
                node, depth = parent, depth - 1

    def lines(self) -> list[str]:
        self._end_link()
        self._break()
        while self._done and not self._done[-1]:
            self._done.pop()
        return wrapped(self._done)

    def _enter(self, node: LexborNode) -> bool:
        """Whether the element's content is visible."""
        tag = node.tag
        if tag == "-text":
            self._say(node.text_content or "")
            return False
        if tag in SKIPPED:
            return False
        attributes = node.attributes
        if _hidden(attributes):
            return False
        if tag in BLOCKS:
            self._block(tag)
        if tag == "a":
            self._begin_link(attributes.get("href"))
        elif tag == "br":
            self._break(hard=True)
        elif tag == "img":
            self._image(attributes.get("alt"))
        elif tag == "hr":
            self._write("---")
        elif tag in ("td", "th") and self._line:
            self._write(" | ")
        elif tag == "pre":
            self._pre += 1
        return True

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag
        if tag == "a":
            self._end_link()
        elif tag in BLOCKS:
            if tag == "pre" and self._pre:
                self._pre -= 1
            self._block(tag, ends=True)

    def _block(self, tag: str, *, ends: bool = False) -> None:
        if self._link is not None:
            self._link[1].append(" ")
            return
        self._break()
        if tag in SPACED and self._done and self._done[-1]:
            self._done.append("")
        if ends:
            return
        if tag == "li":
            self._line.append("  * ")
        elif tag[0] == "h" and tag[1:].isdigit():
            self._line.append("#" * int(tag[1]) + " ")
        elif tag == "blockquote":
            self._line.append("> ")

    def _say(self, text: str) -> None:
        if self._pre and self._link is None:
            first, *rest = harmless(text.expandtabs(4)).split("\n")
            self._write(first)
            for line in rest:
                self._break(hard=True)
                self._write(line)
            return
        words = " ".join(text.split())
        if not words:
            self._write(" " if text else "")
            return
        before = " " if text[0].isspace() else ""
        self._write(before + harmless(words) + (" " if text[-1].isspace() else ""))

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._link is not None:
            self._link[1].append(text)
            return
        if not self._pre and text[0] == " " and (not self._line or self._line[-1].endswith(" ")):
            text = text[1:]
        if text:
            self._line.append(text)
            self._size += len(text)
            self.full = self.full or self._size > MAX_CHARACTERS

    def _break(self, *, hard: bool = False) -> None:
        # Elements may have split a control token.
        line = CONTROL.sub("¦", "".join(self._line)).rstrip()
        self._line.clear()
        if line or (hard and self._done and (self._pre or self._done[-1])):
            self._done.append(line)
            self._size += 1

    def _image(self, alt: str | None) -> None:
        if text := label(alt or "", 100):
            self._images += 1
            self._write(f"[Image {self._images}: {text}]")

    def _begin_link(self, reference: str | None) -> None:
        self._end_link()
        url = urldefrag(_joined(self._base, reference or "")).url
        usable = len(url) <= MAX_URL and urlsplit(url).scheme in ("http", "https")
        if reference and usable and url != self._here and len(self.links) < MAX_LINKS:
            self._link = (url, [])

    def _end_link(self) -> None:
        if self._link is None:
            return
        url, texts = self._link
        self._link = None
        text = "".join(texts)
        if not (text_label := label(text)):
            return
        number = self._ids.setdefault(url, len(self.links))
        if number == len(self.links):
            self.links.append(url)
        before = " " if text[0] == " " else ""
        self._write(
            before + mark(number, text_label, url, self._host) + (" " if text[-1] == " " else "")
        )


def mark(number: int, text: str, url: str, here: str | None) -> str:
    """A link's mark for the model, with its domain if that differs from the page's."""
    host = urlsplit(url).hostname
    return f"【{number}†{text}】" if host == here else f"【{number}†{text}†{label(host or '')}】"


def _hidden(attributes: dict[str, str | None]) -> bool:
    """Whether an element is invisible to readers; the model does not see it either."""
    if not attributes:
        return False
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    style = (attributes.get("style") or "")[:1000].replace(" ", "").lower()
    return "display:none" in style or "visibility:hidden" in style
