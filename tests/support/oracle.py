"""openai-harmony as the judge of the reader: random generations, both readings, and their laws."""

from __future__ import annotations

import random
import re
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import openai_harmony as harmony
import orjson

from trt_responses.harmony.read.reader import Reader
from trt_responses.language.fragments import Closed, Opened, Repaired, Text
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trt_responses.harmony.read.reader import Tables
    from trt_responses.language.fragments import Fragment, RepairKind
    from trt_responses.tokens.vocabulary import Vocabulary

LAWFUL_BEFORE_CHANNEL = re.compile(r"(<\|start\|>)?(assistant)?( to=\S+)?")
STOPS = (CONTROL.end, CONTROL.return_, CONTROL.call)


def merge(fragments: Iterable[Fragment]) -> list[Fragment]:
    """The same fragments with adjacent texts joined into one of one piece."""
    merged: list[Fragment] = []
    for is_text, run in groupby(fragments, lambda fragment: isinstance(fragment, Text)):
        if not is_text:
            merged += run
        elif joined := b"".join(p for text in run if isinstance(text, Text) for p in text.pieces):
            merged.append(Text([joined]))
    return merged


def said(pieces: Iterable[bytes]) -> str:
    """What pieces of JSON say. Raises when they are not JSON."""
    text = orjson.loads(b'"' + b"".join(pieces) + b'"')
    assert isinstance(text, str)
    return text


class Told(NamedTuple):
    """A message as fragments tell it."""

    opened: Opened
    text: str
    whole: bool | None  # None while it is open


def told(fragments: Iterable[Fragment]) -> list[Told]:
    """The messages in fragments. Fails unless they are lawful: nested, and all text inside one."""
    messages: list[Told] = []
    opened: Opened | None = None
    pieces: list[bytes] = []
    for fragment in fragments:
        if isinstance(fragment, Opened):
            assert opened is None, "opened inside a message"
            opened, pieces = fragment, []
        elif isinstance(fragment, Text):
            assert opened is not None, "text outside a message"
            assert all(fragment.pieces), "an empty piece"
            assert fragment.pieces, "no pieces"
            pieces += fragment.pieces
        elif isinstance(fragment, Closed):
            assert opened is not None, "closed outside a message"
            messages.append(Told(opened, said(pieces), fragment.whole))
            opened = None
    if opened is not None:
        messages.append(Told(opened, said(pieces), None))
    return messages


def repairs(fragments: Iterable[Fragment]) -> list[RepairKind]:
    return [fragment.kind for fragment in fragments if isinstance(fragment, Repaired)]


def read_in_chunks(
    tables: Tables, chunks: Iterable[Sequence[int]], *, stopped: bool
) -> tuple[list[Fragment], Reader]:
    reader = Reader(tables)
    fragments = [fragment for chunk in chunks for fragment in reader.feed(chunk)]
    return fragments + reader.finish(stopped=stopped), reader


def split(token_ids: Sequence[int], rng: random.Random) -> Iterator[Sequence[int]]:
    """Chunks of random sizes, some of them empty."""
    at = 0
    while at < len(token_ids):
        size = rng.choice((0, 1, 1, 2, 3, 5, 16, 100))
        yield token_ids[at : at + size]
        at += size


LAWFUL_HEADERS = (
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
    "<|channel|>commentary<|message|>",
    "<|message|>",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
    " to=functions.get_weather<|channel|>commentary<|constrain|>json<|message|>",
    "<|channel|>analysis to=python code<|message|>",
    "<|channel|>analysis to=functions.f<|message|>",
    "<|channel|>commentary to=functions.web-browsing <|constrain|>json<|message|>",
    "<|channel|>thoughts<|message|>",
)
ODD_HEADERS = (
    "<|channel|>commentary<|channel|>final<|message|>",
    "<|channel|>final <|constrain|>json<|message|>",
    "<|channel|>commentary json<|message|>",
    "<|channel|>commentary? <|message|>",
    "<|channel|>commentary to=functions.f to=functions.f<|message|>",
    "<|channel|>final Hello there<|message|>",
    "<|channel|>final Hello there",
    "<|channel|><|message|>",
    "<|channel|>commentary to=<|message|>",
    "<|start|>assistant<|channel|>final<|message|>",
    "<|channel|>final<|end|><|start|>assistant<|channel|>final<|message|>",
    "assistant<|channel|>final<|message|>",
    "Hello",
    "",
)
LAWFUL_STARTS = ("<|start|>assistant",)
ODD_STARTS = (
    "",
    "<|return|>",
    "<|start|>",
    "<|start|>user",
    "<|start|>functions.f to=assistant",
    "<|start|>final",
    "assistant",
    " Hello there",
    "<|end|>",
    "\n",
    "<|channel|>",
)


class Generations:
    """Random generations: lawful for the most part, wrong in every way that models have shown."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self.rng = random.Random(seed)
        self._vocabulary = vocabulary
        self._partial = [i for i, raw in enumerate(vocabulary.token_bytes) if not is_text(raw)]
        self._encoded: dict[str, list[int]] = {}

    def next(self) -> list[int]:
        rng, ids = self.rng, list[int]()
        oddness = rng.choice((0.0, 0.02, 0.3))
        for number in range(rng.randint(1, 6)):
            if number:
                ids += self._pick(LAWFUL_STARTS, ODD_STARTS, oddness)
            ids += self._pick(LAWFUL_HEADERS, ODD_HEADERS, oddness)
            ids += self.content()
            if rng.random() >= oddness / 2:
                ids += rng.choices(STOPS, (10, 1, 1))
        if rng.random() < 0.3:  # cut anywhere
            del ids[rng.randint(0, len(ids)) :]
        return ids

    def content(self) -> list[int]:
        """45 % of the ids are not valid UTF-8 alone, some are control ids that end nothing."""
        return [self._content_id(self.rng.random()) for _ in range(self.rng.randint(0, 60))]

    def _content_id(self, draw: float) -> int:
        if draw < 0.45:
            return self.rng.choice(self._partial)
        if draw < 0.5:
            special = self.rng.choice((*range(FIRST_CONTROL_ID, 200_020), VOCABULARY_SIZE - 1))
            return CONTROL.start if special in STOPS else special
        return self.rng.randrange(FIRST_CONTROL_ID)

    def _pick(self, lawful: Sequence[str], odd: Sequence[str], oddness: float) -> list[int]:
        return self.ids(self.rng.choice(odd if self.rng.random() < oddness else lawful))

    def ids(self, text: str) -> list[int]:
        if text not in self._encoded:
            encode = self._vocabulary.encoding.encode
            self._encoded[text] = encode(text, allowed_special="all")
        return self._encoded[text]


def is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class Verdict(NamedTuple):
    ids: int  # on which the two agreed, one by one
    refused: bool  # by openai-harmony, the reader having seen no fault before
    repaired: tuple[RepairKind, ...]


class Judge:
    """Reads a generation with both, id by id, and asserts that they agree wherever they must."""

    def __init__(self, vocabulary: Vocabulary, tables: Tables) -> None:
        self._encoding = vocabulary.encoding
        self._tables = tables

    def judge(self, token_ids: Sequence[int], *, stopped: bool) -> Verdict:
        ids, refused = self._agree(token_ids, stopped)
        fragments, reader = read_in_chunks(self._tables, [token_ids], stopped=stopped)
        told(fragments)
        check_spans(reader, fragments)
        repaired = tuple(repairs(fragments))
        assert repaired or not refused, "openai-harmony refuses what the reader does not repair"
        return Verdict(ids, refused, repaired)

    def _agree(self, token_ids: Sequence[int], stopped: bool) -> tuple[int, bool]:
        """Both side by side, up to the first repair or refusal."""
        oracle = Oracle(self._encoding)
        reader = Reader(self._tables)
        fragments: list[Fragment] = []
        for at, token_id in enumerate(token_ids):
            new = reader.feed([token_id])
            refused = not oracle.process(token_id)
            if refused or repairs(new):
                assert refused or oracle.excuses_a_repair(token_id)
                assert _closed(fragments) == oracle.messages()
                return at, refused
            fragments += new
            if oracle.in_content:  # at a terminator the reader tells bytes the oracle never tells
                assert said(p for f in new if isinstance(f, Text) for p in f.pieces) == oracle.delta
            if reader.ended:
                break
        fragments += reader.finish(stopped=stopped)
        if not oracle.finish():
            return len(token_ids), bool(token_ids)
        assert _closed(fragments) == oracle.messages()
        return len(token_ids), False


def _closed(fragments: Sequence[Fragment]) -> list[tuple[Opened, str]]:
    return [(m.opened, m.text) for m in told(fragments) if m.whole is not None]


class Oracle:
    """openai-harmony's parser over one generation, without what it computes slowly."""

    def __init__(self, encoding: harmony.HarmonyEncoding) -> None:
        self._parser = harmony.StreamableParser(encoding, role=harmony.Role.ASSISTANT)
        self._process = self._parser._inner.process  # private: `process` is slower
        self._encoding = encoding
        self._header: list[int] = []
        self.in_content = False
        self.delta = ""

    def process(self, token_id: int) -> bool:
        """False when openai-harmony refuses the id."""
        try:
            self._process(token_id)
        except harmony.HarmonyError:
            return False
        self.delta = (self._parser.last_content_delta or "") if self.in_content else ""
        if self.in_content:
            self.in_content = token_id not in STOPS
            self._header = []
        else:
            self.in_content = token_id == CONTROL.message
            self._header.append(token_id)
        return True

    def excuses_a_repair(self, token_id: int) -> bool:
        """Whether openai-harmony has just let a fault pass."""
        if not self.in_content:
            before = self._encoding.decode(self._header[:-1])
            branches = token_id == CONTROL.channel and not LAWFUL_BEFORE_CHANNEL.fullmatch(before)
            return token_id in (*STOPS, CONTROL.start) or branches or len(self._header) > 64
        parser = self._parser
        channel, recipient = parser.current_channel, parser.current_recipient
        content_type = (parser.current_content_type or "").removeprefix("<|constrain|>")
        header = self._encoding.decode(self._header)
        return (
            parser.current_role != harmony.Role.ASSISTANT
            or re.fullmatch(r"[\w-]+", channel or "none", re.ASCII) is None
            or recipient == ""
            or (recipient is not None and f" to={recipient} " not in re.sub("<|>", " ", header))
            or re.fullmatch(r"[\w.+/-]*", content_type, re.ASCII) is None
        )

    def finish(self) -> bool:
        try:
            self._parser.process_eos()
        except harmony.HarmonyError:
            return False
        return True

    def messages(self) -> list[tuple[Opened, str]]:
        return [
            (
                Opened(
                    message.channel,
                    message.recipient,
                    (message.content_type or "").removeprefix("<|constrain|>") or None,
                ),
                "".join(part.text for part in message.content),
            )
            for message in self._parser.messages
        ]


def check_spans(reader: Reader, fragments: Sequence[Fragment]) -> None:
    """A span for each message, in order, within the kept ids, not overlapping."""
    messages = told(fragments)
    assert len(reader.messages) == len(messages)
    at = 0
    for span, message in zip(reader.messages, messages, strict=True):
        assert at <= span.start <= span.body_start <= span.end <= len(reader.kept)
        assert (span.channel, span.recipient, span.content_type) == message.opened
        assert span.content_tokens >= 0
        if span.terminator is not None:
            assert reader.kept[span.end - 1] == span.terminator
        if not span.repaired:
            assert reader.kept[span.body_start - 1] == CONTROL.message
            body = reader.kept[span.body_start : span.body_start + span.content_tokens]
            assert max(body, default=0) < FIRST_CONTROL_ID
            assert span.start == 0 or reader.kept[span.start] == CONTROL.start
        at = span.end
