"""Citations: the model's marks, `【3†L5-L7】`, become links to where the cited lines stand.

Text is held back exactly as long as it may be the beginning of a mark. A mark of what was never
shown stays text. Offsets count code points of the text that the client gets. Knows no item and no
token.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal
from urllib.parse import quote, urlsplit

import orjson

from trt_responses.features.tool_items.output import ContainerFileCitation
from trt_responses.frozen import dataclass, replace
from trt_responses.log.item_events import NewStep
from trt_responses.tokens.pieces import escaped
from trt_responses.tools.containers import WrittenFile
from trt_responses.tools.session import Source
from trt_responses.wire.events import FolderEvent, OfContent
from trt_responses.wire.output import Annotation, OutputItem, OutputMessage, Phase, UrlCitation

FindSource = Callable[[int, int], Source | None]
"""Where a line of the display with a cursor stands; None for what was never shown."""

MARK = re.compile("【([0-9]{1,4})†L([0-9]{1,7})(?:[-–—]L?([0-9]{1,7}))?】")
BEGUN = re.compile("【(?:[0-9]{1,4}(?:†(?:L(?:[0-9]{1,7}(?:[-–—](?:L?[0-9]{0,7})?)?)?)?)?)?$")
"""The end of a text with which a mark may begin."""


@dataclass(frozen=True)
class AnnotationAdded(OfContent, FolderEvent):
    """An annotation of text that earlier events have sent."""

    annotation_index: int
    annotation: Annotation
    type: Literal["response.output_text.annotation.added"] = "response.output_text.annotation.added"

    def changed(self, item: OutputItem) -> OutputItem:
        if not isinstance(item, OutputMessage):
            raise TypeError(f"a {item.type} has no annotations")
        place, parts = self.content_index, item.content
        part = parts[place]
        noted = replace(part, annotations=(*part.annotations, self.annotation))
        return replace(item, content=(*parts[:place], noted, *parts[place + 1 :]))


class CitationText:
    """Makes citations of the marks in one message's text."""

    def __init__(self, source: FindSource) -> None:
        self._source = source
        self._waiting = ""
        self._length = 0
        """The length of the text sent, in code points."""
        self._last = ""
        """The last letter sent."""

    def feed(self, pieces: Sequence[bytes]) -> list[bytes | UrlCitation]:
        """What can be sent now: texts, and citations of the text before them. Pieces are bodies of
        JSON strings, here and there."""
        text = self._waiting + "".join(orjson.loads(b'"%b"' % piece) for piece in pieces)
        begun = BEGUN.search(text)
        end = begun.start() if begun is not None else len(text)
        self._waiting = text[end:]
        return list(self._split(text[:end]))

    def finish(self) -> list[bytes | UrlCitation]:
        """The text that was held back, which was no mark, since the text has ended."""
        waiting, self._waiting = self._waiting, ""
        return list(self._plain(waiting))

    def _split(self, text: str) -> Iterator[bytes | UrlCitation]:
        at = 0
        for mark in MARK.finditer(text):
            cursor, first, last = int(mark[1]), int(mark[2]), int(mark[3] or mark[2])
            source = self._source(cursor, first)
            if source is None or last < first or self._source(cursor, last) is None:
                continue
            yield from self._plain(text[at : mark.start()])
            at = mark.end()
            if self._last and not self._last.isspace():
                yield from self._plain(" ")
            link, begin = link_to(source.url), self._length
            yield from self._plain(link)
            yield UrlCitation(begin, begin + len(link), source.url, source.title)
        yield from self._plain(text[at:])

    def _plain(self, text: str) -> Iterator[bytes]:
        if text:
            self._length += len(text)
            self._last = text[-1]
            yield escaped(text)


@dataclasses.dataclass(slots=True)
class FileCitations:
    """Cites the files that code has written in this response, behind a message. The final answer
    cites all of them, up to `MOST_CITED`, other messages those that they name."""

    files: Callable[[], Sequence[WrittenFile]]
    text: CitationText | None
    """Makes the other citations of the message."""
    phase: Phase
    _sent: list[bytes] = dataclasses.field(default_factory=list)

    def feed(self, pieces: Sequence[bytes]) -> Sequence[bytes | Annotation]:
        return self._noted(pieces if self.text is None else self.text.feed(pieces))

    def finish(self) -> Sequence[bytes | Annotation]:
        left = () if self.text is None else self._noted(self.text.finish())
        return [*left, *self._citations()] if self.files() else left

    def _noted(self, parts: Sequence[bytes | UrlCitation]) -> Sequence[bytes | UrlCitation]:
        self._sent += [part for part in parts if isinstance(part, bytes)]
        return parts

    def _citations(self) -> Iterator[ContainerFileCitation]:
        text: str = orjson.loads(b'"%b"' % b"".join(self._sent))
        for container_id, file_id, path in self.files()[:MOST_CITED]:
            named = place_of(path, text)
            if named is not None or self.phase == "final_answer":
                start, end = named or (len(text), len(text))
                name = path.rpartition("/")[2]
                yield ContainerFileCitation(container_id, file_id, name, start, end)


class CitedText:
    """Sends the text of one message with its citations."""

    found: str | None = None

    def __init__(self, text: CitationText | FileCitations) -> None:
        self._text = text
        self._count = itertools.count()

    def feed(self, pieces: Sequence[bytes]) -> list[bytes | NewStep]:
        return list(map(self._part, self._text.feed(pieces)))

    def finish(self, *, whole: bool) -> list[bytes | NewStep]:
        return list(map(self._part, self._text.finish()))

    def _part(self, part: bytes | Annotation) -> bytes | NewStep:
        if isinstance(part, bytes):
            return part
        number = next(self._count)
        return lambda item_id, index: AnnotationAdded(item_id, index, 0, number, part)


MOST_CITED = 100
"""Files that a message may cite: code can write 10,000."""
LOOKS = 10
"""Places in a text at which a file's path is looked at."""
BEFORE = 540
"""Characters before a path that `NAMED` may match."""
NAMED = r"(?<![\w.-])(?:sandbox:)?(?:/[\w.-]{{1,64}}){{0,8}}/?{}\Z"
"""A file's path in a text, with what models write before it, such as `sandbox:/mnt/data/`."""

LONGER = re.compile(r"[\w-]|\.\w")
"""What stands behind a path that is the beginning of another."""


def place_of(path: str, text: str) -> tuple[int, int] | None:
    """Where a text names a file first."""
    at = -1
    for _ in range(LOOKS):
        if (at := text.find(path, at + 1)) < 0:
            return None
        named, end = re.compile(NAMED.format(re.escape(path))), at + len(path)
        found = named.search(text, max(0, at - BEFORE), end)
        if found and not LONGER.match(text, end):
            return found.span()
    return None


def link_to(url: str) -> str:
    """A link in Markdown, in parentheses, whose text is the domain."""
    host = (urlsplit(url).hostname or url).removeprefix("www.")
    return f"([{host}]({quote(url, safe=SAFE)}))"


SAFE = "%/:?#[]@!$&'*+,;=~-._"
"""The characters that stand in a link as they are: parentheses would end it."""
