"""The kit's transcripts through our server, over sockets: as it is, and with a faulty reader."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from responses_conformance.client import Server
from responses_conformance.mocks.play import Player
from responses_conformance.playing import play
from responses_conformance.transcripts import load

from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.serving import threaded
from trt_responses.app import create_app
from trt_responses.harmony.dialect import Harmony
from trt_responses.harmony.read.reader import Reader, Tables
from trt_responses.language.fragments import Closed, Opened, Text
from trt_responses.language.reader import AS_USUAL
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trt_responses.engine import GenerateOptions
    from trt_responses.language.fragments import Fragment
    from trt_responses.language.reader import ReaderOptions
    from trt_responses.tokens.vocabulary import Vocabulary

KNOWN = {
    "doubled_message_mark": {"leak"},
    "thought_without_end": {"text"},
    "start_in_answer": {"leak"},
    "reserved_ids_in_text": {"leak"},
    "padding_id_in_text": {"leak"},
}
"""What we break, as docs/conformance.md says: marks inside a message are text, as openai-harmony
reads them. It may only become less."""


def faulty(fault: str, fragments: Sequence[Fragment], opened: list[Opened]) -> Iterator[Fragment]:
    """The fragments with a fault that clients see."""
    for each in fragments:
        made: Fragment | None = each
        if isinstance(each, Opened):
            opened[:] = [each]
            if fault == "thought shown" and each.channel == "analysis":
                made = each._replace(channel="final")
            elif fault == "call lost" and each.recipient:
                made = each._replace(recipient=None, channel="analysis")
        elif isinstance(each, Text):
            if fault == "arguments respelt" and opened[0].recipient:
                made = Text([piece.replace(b" ", b"") for piece in each.pieces])
            elif fault == "answer lost" and opened[0].channel == "final":
                made = None
        elif isinstance(each, Closed) and fault == "mark shown":
            yield Text([b"<|end|>"])
        if made is not None:
            yield made


class FaultyReader(Reader):
    """Reads as ours does, and gives out what a fault makes of it."""

    def __init__(self, tables: Tables, options: ReaderOptions, fault: str) -> None:
        super().__init__(tables, options)
        self._fault, self._last = fault, list[Opened]()

    @property
    def plain(self) -> Mapping[int, bytes]:
        return {}

    def text(self, token_ids: Sequence[int], out: list[bytes]) -> bool:
        return False

    def feed(self, token_ids: Sequence[int]) -> list[Fragment]:
        return list(faulty(self._fault, super().feed(token_ids), self._last))

    def finish(self, *, stopped: bool) -> list[Fragment]:
        return list(faulty(self._fault, super().finish(stopped=stopped), self._last))


class Judged(Harmony):
    """Our dialect; with a fault its readers are faulty."""

    fault = ""

    def reader(self, options: ReaderOptions = AS_USUAL) -> Reader:
        return (
            FaultyReader(self.tables, options, self.fault)
            if self.fault
            else super().reader(options)
        )


@contextmanager
def standing(dialect: Judged) -> Iterator[Server]:
    """Our server in a thread, whose engine plays the kit's transcripts."""
    player = Player(load())

    def written(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        made = player.play(prompt_ids, options.max_tokens, options.stop_ids)
        return Script((made.ids,), made.finish)

    engine = ScriptedEngine(written, clock=StepClock.free(), context_tokens=131_072)
    app = create_app(Settings(store="memory://", model="gpt-oss"), engine=engine, speaks=dialect)
    with threaded(app) as url:
        yield Server(url, model="gpt-oss")


@pytest.fixture(scope="module")
def dialect(vocabulary: Vocabulary) -> Judged:
    return Judged(vocabulary, Tables.of(vocabulary))


@pytest.fixture(scope="module")
def server(dialect: Judged) -> Iterator[Server]:
    with standing(dialect) as made:
        yield made


def broken(server: Server, only: Sequence[str] = ()) -> dict[str, set[str]]:
    """The laws that each transcript breaks, over both APIs."""
    chosen = [each for each in load() if not only or each.name in only]
    laws: dict[str, set[str]] = {}
    for api, cases in play(server, chosen).items():
        assert not isinstance(cases, str), f"{api}: {cases}"
        assert len(cases) == len(chosen)
        for case in cases:
            if case.broken:
                laws.setdefault(case.transcript.name, set()).update(law for law, _ in case.broken)
    return laws


def test_every_transcript_obeys_its_law_but_those_we_know(server: Server) -> None:
    assert broken(server) == KNOWN


SAMPLE = ("thought_then_final", "thought_then_call", "arguments_spaced", "plain_final", "two_calls")


def test_a_sample_of_the_transcripts_obeys_its_law(server: Server) -> None:
    assert not broken(server, SAMPLE)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("thought shown", "leak"),
        ("call lost", "call"),
        ("arguments respelt", "arguments"),
        ("answer lost", "text"),
        ("mark shown", "leak"),
    ],
)
def test_a_fault_in_our_reader_is_found(
    server: Server, dialect: Judged, fault: str, law: str
) -> None:
    dialect.fault = fault
    try:
        assert law in set().union(*broken(server, SAMPLE).values())
    finally:
        dialect.fault = ""
