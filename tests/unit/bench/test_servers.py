"""Servers in processes of their own, played here by one of the standard library. Budget: 4 s."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar
from xml.etree import ElementTree

import orjson
import pytest
from responses_conformance.peers.installed import Absent
from responses_conformance.peers.model import model
from responses_conformance.peers.start import Server, handshake_port

from bench.check import Wrong
from bench.script import script
from bench.servers.measure import Results, Row, Run, faults, measured
from bench.servers.ours import numbered
from bench.servers.picture import svg
from bench.servers.plays import PACED, REQUESTS, SATURATED, given, plays
from bench.servers.start import CHAT, Contender
from bench.servers.table import BEGIN, END, markdown, short, write_into
from bench.servers.texts import checked
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench.script import Script
    from bench.servers.plays import Play
    from bench.servers.start import Starter
    from trt_responses.tokens.vocabulary import Vocabulary


def chat(said: Script, *, answer: str | None = None, tokens: int | None = None) -> bytes:
    """A chat completion's stream, with the thought and the answer in a frame each."""
    deltas = [{"reasoning": said.reasoning}, {"content": said.answer if answer is None else answer}]
    frames: list[object] = [{"choices": [{"delta": delta}]} for delta in deltas]
    frames.append({"choices": [], "usage": {"completion_tokens": tokens or len(said)}})
    return b"".join(b"data: %b\n\n" % orjson.dumps(frame) for frame in frames) + b"data: [DONE]\n\n"


@pytest.fixture
def said(vocabulary: Vocabulary) -> Script:
    return script(vocabulary, 16, analysis_tokens=4)


def test_a_reply_is_right_letter_for_letter(said: Script) -> None:
    reply = checked(chat(said), said)
    assert (reply.frames, reply.thought) == (4, True)


@pytest.mark.parametrize("fault", ["answer", "tokens"])
def test_a_reply_that_differs_is_wrong(said: Script, fault: str) -> None:
    stream = chat(said, answer=said.answer[:-1]) if fault == "answer" else chat(said, tokens=999)
    with pytest.raises(Wrong, match=fault):
        checked(stream, said)


def test_a_stream_of_responses_may_leave_out_the_thought(said: Script) -> None:
    events = [
        {"type": "response.output_text.delta", "delta": said.answer},
        {"type": "response.completed", "response": {"usage": {"output_tokens": len(said)}}},
    ]
    stream = b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events)
    assert not checked(stream, said).thought


class Says(BaseHTTPRequestHandler):
    """Answers a request with the play that its output limit names."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    known: ClassVar[Mapping[int, bytes]] = {}

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        stream = self.known[orjson.loads(self.rfile.read(length))["max_completion_tokens"]]
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(stream), stream))

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class Standing(ThreadingHTTPServer):
    request_queue_size = 128


def standing(answer: str | None = None) -> Starter:
    """A server of this process. `answer`: what it says in place of the script's."""

    @contextmanager
    def start(_: Vocabulary, known: Mapping[str, Play]) -> Iterator[Server]:
        replies = {play.most_tokens: chat(play.script, answer=answer) for play in known.values()}
        handler = type("Handler", (Says,), {"known": replies})
        server = Standing(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Server(server.server_address[1], (), ())
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    return start


@contextmanager
def missing(_: Vocabulary, __: Mapping[str, Play]) -> Iterator[Server]:
    raise Absent("pip: no such package")
    yield


@pytest.mark.slow  # 1 s: a server and its load generator
def test_a_server_that_is_absent_or_wrong_is_its_own_row(vocabulary: Vocabulary) -> None:
    starters = {"right": standing(), "wrong": standing("Something else."), "none": missing}
    known = {name: (Contender(name, start, CHAT, (REQUESTS,)),) for name, start in starters.items()}
    results = measured(
        *(vocabulary, list(known)), streams=(2,), repeats=1, kinds=(REQUESTS,), contenders=known
    )
    (row,) = results.rows
    assert (row.who, row.streams, len(row.runs), row.fault) == ("right", 2, 1, None)
    assert 0 < row.runs[0].first_p50_ms <= row.runs[0].first_p99_ms
    assert "answer" in results.absent["wrong"]
    assert results.absent["none"] == "pip: no such package"


def rows() -> Results:
    runs = [Run(us, 1000.0, 1.0, 2.0) for us in (10.0, 12.0, 14.0, 16.0)]
    kept = [Run(20.0, 900.0, 1.0, 2.0, 0.5)]
    return Results(
        [
            Row("ours", PACED, 64, runs),
            Row("ours", PACED, 256, kept),
            Row("theirs", PACED, 64, fault="3 of 64 streams had not ended after 30 s"),
            Row("ours", REQUESTS, 64, runs),
        ],
        absent={"others": "pip: none"},
    )


def test_a_table_has_quartiles_and_the_faults() -> None:
    table = markdown(rows())
    assert "| paced | 64 | ours | 4 | 13.0 (11.5–14.5) |" in table
    assert list(faults(rows())) == [
        "others: absent or void (pip: none)",
        "ours, paced, 256 streams: only 50% of its pace kept",
        "theirs, paced, 64 streams: 3 of 64 streams had not ended after 30 s",
    ]


def test_a_page_gets_the_short_table_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n")
    write_into(page, rows())
    assert page.read_text() == f"Before.\n{BEGIN}\n{short(rows())}\n{END}\nAfter.\n"
    assert "| theirs |" in page.read_text()


def test_the_picture_has_a_point_for_each_row_that_ran() -> None:
    picture = ElementTree.fromstring(svg(rows().rows, "Title", "More"))
    circles = [each for each in picture.iter() if each.tag.endswith("circle")]
    assert len(circles) == 2 + 1 + 2  # requests stand in two panels, one with two lines


def test_a_request_chooses_its_play_by_its_limit(vocabulary: Vocabulary) -> None:
    known = plays(vocabulary)
    data = given(known)["plays"]
    assert {known[kind].steps_a_second for kind in (SATURATED, REQUESTS)} == {0}
    for kind, play in known.items():
        assert data[str(play.most_tokens)]["ids"] == play.script.token_ids, kind
        assert len(play.script) < play.most_tokens


def test_unlike_answers_have_a_number_in_each_message() -> None:
    first, second = (numbered([CONTROL.message, 5], number) for number in (1, 101))
    assert first != second
    assert first[-1] == second[-1] == 5


def test_smg_awaits_its_engine_on_a_port_by_its_socket() -> None:
    assert handshake_port("/run/worker.sock") == 27392


def test_a_model_without_weights_has_every_id(vocabulary: Vocabulary, tmp_path: Path) -> None:
    few = vocabulary.token_bytes[:300]
    folder = model(few, tmp_path)
    tokenizer = orjson.loads((folder / "tokenizer.json").read_bytes())
    assert sorted(tokenizer["model"]["vocab"].values()) == list(range(300))
    assert len(tokenizer["model"]["merges"]) == 300 - 256
    assert model(few, tmp_path) == folder
