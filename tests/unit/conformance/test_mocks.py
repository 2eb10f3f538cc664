"""Mock engines on their wires, the transcripts they play, and the prompts they note."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import grpc
import pytest
from responses_conformance import prompts, table
from responses_conformance.laws import Read, broken, same
from responses_conformance.mocks import command, protobuf, rpc
from responses_conformance.mocks.play import CALL, RETURN, Player
from responses_conformance.transcripts import FILE, Law, Transcript, load
from responses_conformance.transcripts.write import filled

from tests.support.pages import ROOT
from trt_responses.engine import GenerateOptions
from trt_responses.engines.grpc.messages import Messages
from trt_responses.engines.grpc.trtllm import TrtLlmProtocol

if TYPE_CHECKING:
    from pathlib import Path

    from responses_conformance.mocks.rpc import Wire

    from trt_responses.tokens.vocabulary import Vocabulary

MARK = (7, 8)
SHORT = [Transcript("a", (1, 2, 3, RETURN, 4), mark=MARK), Transcript("b", (5, 6), "length")]


def test_the_file_holds_the_ids_of_what_it_spells(vocabulary: Vocabulary) -> None:
    lines = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
    assert len(lines) >= 90
    assert len({line["name"] for line in lines}) == len(lines)
    for number, line in enumerate(lines, 1):
        assert filled(number, line) == line, line["name"]


@pytest.mark.parametrize(
    ("prompt", "most", "stops", "ids", "finish"),
    [
        ([9, *MARK, 9], None, (), (1, 2, 3, RETURN), "stop"),
        ([*MARK], 2, (), (1, 2), "length"),
        ([*MARK], None, (2,), (1, 2), "stop"),
        ([*MARK, 200006, 173781, 1], None, (), (2, 3, RETURN), "stop"),
    ],
)
def test_a_play_ends_as_an_engine_ends_it(
    prompt: list[int], most: int | None, stops: tuple[int, ...], ids: tuple[int, ...], finish: str
) -> None:
    play = Player(SHORT).play(prompt, most, stops)
    assert (play.ids, play.finish) == (ids, finish)


def test_prompts_without_a_mark_play_in_turn_and_are_noted(tmp_path: Path) -> None:
    player = Player(SHORT, tmp_path / "record")
    assert [player.play([n], None).ids[0] for n in range(3)] == [1, 5, 1]
    assert prompts.last_prompt(tmp_path / "record") == [2]


# --- wires --------------------------------------------------------------------------------------


def test_messages_are_those_of_protobuf() -> None:
    theirs = Messages("trtllm").message("trtllm.GenerateComplete")
    ours = protobuf.message({1: [1, 300, 200_012], 3: "stop", 5: 9, 13: CALL})
    read = theirs.FromString(ours)
    assert list(read.output_token_ids) == [1, 300, 200_012]
    assert (read.finish_reason, read.prompt_tokens, read.matched_token_id) == ("stop", 9, CALL)
    assert protobuf.numbers(protobuf.read(read.SerializeToString())[1]) == [1, 300, 200_012]


async def over(wire: Wire, name: str, request: bytes) -> list[bytes]:
    """The messages of a call, as bytes."""
    server, port = await rpc.started(wire, Player(SHORT), step=2)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            kind = channel.unary_stream if name == "Generate" else channel.unary_unary
            call = kind(f"/{wire.service}/{name}")(request)
            return [part async for part in call] if name == "Generate" else [await call]
    finally:
        await server.stop(0)


async def read_by_our_client() -> None:
    server, port = await rpc.started(rpc.TRTLLM, Player(SHORT), step=2)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            protocol = TrtLlmProtocol(channel)
            assert (await protocol.describe(5)).context_tokens == rpc.CONTEXT
            assert await protocol.trouble(5) is None
            options = GenerateOptions(max_tokens=9, stop_ids=(RETURN,), request_id="r")
            request = protocol.request("r", MARK, options, 9)
            seen: list[int] = []
            async for message in protocol.generate(request):
                part = protocol.read(message, len(seen), options)
                seen += part.token_ids
            assert (seen, part.end) == ([1, 2, 3, RETURN], "stop")
            assert message.complete.matched_token_id == RETURN
    finally:
        await server.stop(0)


def test_our_own_client_reads_tensorrt_llms_mock() -> None:
    asyncio.run(read_by_our_client())


def test_sglangs_mock_speaks_its_scheduler() -> None:
    sampling = protobuf.message({8: 3, 10: [RETURN]})
    request = protobuf.message({1: "r", 2: protobuf.message({2: list(MARK)}), 4: sampling, 17: 1})
    *chunks, last = asyncio.run(over(rpc.SGLANG, "Generate", request))
    ids = [protobuf.numbers(protobuf.read(protobuf.read(c)[2][0])[1]) for c in chunks]
    complete = protobuf.read(protobuf.read(last)[3][0])
    assert ids == [[1, 2], [3]]
    assert (protobuf.numbers(complete[1]), complete[2]) == ([1, 2, 3], [b"length"])
    (about,) = asyncio.run(over(rpc.SGLANG, "GetModelInfo", b""))
    assert protobuf.read(about)[10] == [b"gpt_oss"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["trtllm-grpc", "--port=-1"], "--port -1: expected 0 to 65535"),
        (["trtllm-grpc", "--script=absent"], "--script absent: no transcripts"),
        (["trtllm-grpc", f"--script={__file__}"], "no transcripts as JSONL"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    typed: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(typed) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_vllms_mock_speaks_its_engine_core() -> None:
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    from responses_conformance.mocks import vllm

    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
    with zmq.Context() as context:
        inputs, outputs = context.socket(zmq.ROUTER), context.socket(zmq.PULL)
        ports = [each.bind_to_random_port("tcp://127.0.0.1") for each in (inputs, outputs)]
        core = vllm.Core(vllm.scripted(Player(SHORT)), context, step=3)
        core.connect(*(f"tcp://127.0.0.1:{port}" for port in ports))
        engine, ready = inputs.recv_multipart()
        assert decode(ready)["max_model_len"] == vllm.CONTEXT
        request = ["r", list(MARK), None, {"max_tokens": 9, "stop_token_ids": [RETURN]}]
        inputs.send_multipart([engine, vllm.ADD, encode(request)])
        core.turn()
        core.turn()
        found = [decode(outputs.recv())[1] for _ in range(2)]
        assert found == [[["r", [1, 2, 3]]], [["r", [RETURN], None, None, None, 0, RETURN]]]
        for socket in (inputs, outputs, *core.sockets):
            socket.close(0)


# --- laws ---------------------------------------------------------------------------------------

CALLED = Transcript("c", (), law=Law(("Hi.",), (("f", ("{}", "")),), ("Well.",), ("g",)))
RIGHT = Read("Well. Hi.", [("f", "{}"), ("g", "1")], "tool_calls")


@pytest.mark.parametrize(
    ("seen", "laws"),
    [
        (RIGHT, []),
        (Read("Hi.<|end|>", [("f", "")], "tool_calls"), ["leak"]),
        (Read("", [("f", "")], "tool_calls"), ["text"]),
        (Read("Hi.", [], "stop"), ["call", "finish"]),
        (Read("Hi.", [("f", "{ }")], "tool_calls"), ["arguments"]),
        (Read("Hi.", [("f", "{}"), ("h", "")], "tool_calls"), ["call"]),
        (Read(error="500"), ["error"]),
    ],
)
def test_each_law_is_broken_by_its_fault(seen: Read, laws: list[str]) -> None:
    assert [law for law, _ in broken(seen, CALLED)] == laws


def test_a_stream_must_say_what_the_plain_reply_says() -> None:
    assert not list(same(RIGHT, RIGHT))
    assert [law for law, _ in same(RIGHT, Read("Hi.", RIGHT.calls, "tool_calls"))] == ["stream"]


def test_a_prompt_is_compared_id_by_id(vocabulary: Vocabulary) -> None:
    for conversation in prompts.CONVERSATIONS:
        for right in prompts.rendered(conversation):
            assert prompts.difference(right, conversation) is None
    user = prompts.CONVERSATIONS[0]
    changed = vocabulary.encoding.encode(prompts.WISH.replace("Play", "Sing"))
    right = next(prompts.rendered(user))
    at = right.index(vocabulary.encoding.encode("Play")[0])
    found = prompts.difference([*right[:at], *changed, *right[at + 5 :]], user)
    assert found is not None
    assert "Sing" in found
    assert "Play" in found


def test_the_pages_show_the_results_that_are_kept() -> None:
    kept = json.loads((ROOT / "conformance" / "results.json").read_text("utf-8"))
    results = kept["results"]
    assert table.summary(results) in (ROOT / "docs" / "conformance.md").read_text("utf-8")
    assert table.failures(results) in (ROOT / "conformance" / "results.md").read_text("utf-8")
    assert kept["transcripts"] == len(load())
    assert results[0]["name"] == "ours"
    assert {each["name"] for each in results} <= set(table.PEERS)
