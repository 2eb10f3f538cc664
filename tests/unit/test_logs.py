"""A line of text: time, level, verb, shortened id, values. A line of JSON has whole ids."""

from __future__ import annotations

import logging

import orjson
import pytest

from trt_responses.logs import JsonLines, TextLines

PLAIN = f"resp_1a2b3c4d{'0' * 40}"
OF_VERSION = f"resp_00000a1a2b3c4d{'0' * 40}"
"""In the form of ids before they had 22 letters."""


def record(message: str, *given: object, **values: object) -> logging.LogRecord:
    made = logging.LogRecord("trt_responses.run", logging.WARNING, "", 0, message, given, None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    made.__dict__["fields"] = values
    return made


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        (PLAIN, "resp_1a2b3c4d"),
        (OF_VERSION, "resp_00000a1a2b3c4d"),
        (f"conv_1a2b3c4d{'f' * 40}", "conv_1a2b3c4d"),
        (f"resp_1aZb3Cxd{'0' * 14}", "resp_1aZb3Cxd"),
        (f"resp_00000a1aZb3Cxd{'f' * 14}", "resp_00000a1aZb3Cxd"),
        (f"conv_1aZb3Cxd{'f' * 14}", "conv_1aZb3Cxd"),
        (f"req_1a2b3c4d{'f' * 40}", f"req_1a2b3c4d{'f' * 40}"),
        ("resp_none", "resp_none"),
        ("resp_1a2b3c4d", "resp_1a2b3c4d"),
    ],
)
def test_a_line_of_text_has_the_beginning_of_an_id(whole: str, short: str) -> None:
    line = TextLines().format(record("resuming %s after %d tokens", whole, 3, engine=None))
    assert line == f"2023-11-14T22:13:20.250Z WARNING resuming {short} after 3 tokens engine=-"
    assert whole.startswith(short)


def test_a_line_of_json_has_whole_ids_and_each_value_as_a_key() -> None:
    line = orjson.loads(JsonLines().format(record("finished %s", PLAIN, status="failed")))
    assert line == {
        "at": "2023-11-14T22:13:20.250+00:00",
        "level": "warning",
        "logger": "trt_responses.run",
        "message": f"finished {PLAIN}",
        "status": "failed",
    }


@pytest.mark.parametrize("value", ["keys\udcff.json", {"\ud800": 1}, {1: 2}, 2**70, float("nan")])
def test_what_json_cannot_say_is_a_line_of_json_all_the_same(value: object) -> None:
    line = orjson.loads(JsonLines().format(record("loaded %s", value, given=value)))
    assert line["message"].startswith("loaded ")
    assert line.keys() == {"at", "level", "logger", "message", "given"}


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b[2J", "\x9b2J", "\u2028", "\x00", "\x85"])
def test_no_name_of_a_client_begins_a_line_or_drives_a_terminal(character: str) -> None:
    line = TextLines().format(record("ignoring %s", f"a{character}b", tool=f"c{character}d"))
    escaped = character.encode("unicode_escape").decode()
    assert line.endswith(f"WARNING ignoring a{escaped}b tool=c{escaped}d")


def test_the_lines_of_an_exception_stay_apart() -> None:
    failed = record("failed to load %s", "demo")
    failed.exc_info = (ValueError, ValueError("broken"), None)
    assert TextLines().format(failed).endswith("failed to load demo\nValueError: broken")
