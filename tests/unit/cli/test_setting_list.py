"""The settings as `serve --help` and `serve --print-settings` list them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from trt_responses.cli.main import main
from trt_responses.cli.setting_list import groups
from trt_responses.settings import PREFIX, secrets, variables

if TYPE_CHECKING:
    Output = pytest.CaptureFixture[str]


def printed(capsys: Output) -> dict[str, tuple[str, str]]:
    """Each setting's value and source, as `--print-settings` has told them."""
    rows = re.findall(rf"^{PREFIX}(\w+)=(.*)  # (.*)$", capsys.readouterr().out, re.MULTILINE)
    return {name.lower(): (value, source) for name, value, source in rows}


def test_every_setting_is_in_one_group() -> None:
    assert [name for _, names in groups() for name in names] == list(variables())
    assert set(variables()) >= secrets()


def test_help_has_every_setting_with_its_default(capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    out = capsys.readouterr().out
    for name in variables():
        assert re.search(rf"^  {name.upper()}( \[.*\])?$", out, re.MULTILINE), name
    assert "\nHistory of responses:\n" in out
    assert "  STORE_BYTES [268435456]\n" in out


def test_what_is_in_force_is_told_with_where_it_came_from(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_MAX_CALLS", "7")
    monkeypatch.setenv("TRT_RESPONSES_PORT", "9")
    assert main(["serve", "--port", "8001", "--print-settings"]) == 0
    shown = printed(capsys)
    assert list(shown) == list(variables())
    assert shown["max_calls"] == ("7", "environment")
    assert shown["port"] == ("8001", "option --port")
    assert shown["host"] == ("127.0.0.1", "default")


def test_what_is_named_as_a_secret_is_one() -> None:
    named = {name for name in variables() if re.search("_(key|keys|secret|token)$", name)}
    assert named - secrets() == {"store_keys"}, "a file, or a command"


def test_keys_and_passwords_are_not_printed(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in secrets():
        monkeypatch.setenv(PREFIX + name.upper(), "ann:hush")
    monkeypatch.setenv("TRT_RESPONSES_STORE", "redis://me:hush@127.0.0.1:6379/0")
    assert main(["serve", "--print-settings"]) == 0
    out = capsys.readouterr().out
    assert "hush" not in out
    assert "redis://…@127.0.0.1:6379/0" in out


@pytest.mark.parametrize("password", ["hu@sh", "hu/sh", "hu,sh", "hu@s/h,sh"])
def test_no_part_of_a_password_is_printed(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_STORE", f"redis://me:{password}@127.0.0.1/0")
    monkeypatch.setenv("TRT_RESPONSES_MCP_URLS", "https://a.example,https://me:hu@b.example")
    assert main(["serve", "--print-settings"]) == 0
    shown = printed(capsys)
    assert shown["store"] == ("redis://…@127.0.0.1/0", "environment")
    assert shown["mcp_urls"] == ("https://a.example,https://…@b.example", "environment")


def test_what_cannot_be_used_is_told_instead(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRT_RESPONSES_MAX_CALLS", "many")
    assert main(["serve", "--print-settings"]) == 2
    assert "TRT_RESPONSES_MAX_CALLS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "engine"),
    [
        ("--script=a.yaml", "script://a.yaml"),
        ("--script=auto --fault-header", "script://auto#faults"),
        ("--record=https://a.example/v1", "record://cassette.jsonl#https://a.example/v1"),
        ("--replay=c.jsonl", "replay://c.jsonl"),
        ("--replay=c.jsonl --recorded-pace", "replay://c.jsonl#paced"),
    ],
)
def test_what_stands_for_a_model_takes_any_name_and_stores_nothing(
    capsys: Output, typed: str, engine: str
) -> None:
    assert main(["serve", *typed.split(), "--print-settings"]) == 0
    shown = printed(capsys)
    assert shown["engine"][0] == engine
    assert (shown["model"][0], shown["store"][0]) == ("script,*", "memory://")
