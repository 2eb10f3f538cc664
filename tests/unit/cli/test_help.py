"""The help of every command: noun phrases, a default in brackets, and an example that parses."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from trt_responses.cli.commands import FLAGS
from trt_responses.cli.main import COMMANDS, module_of
from trt_responses.settings import whole

if TYPE_CHECKING:
    from collections.abc import Iterator


class Recorded(argparse.ArgumentParser):
    """A parser whose commands, and theirs, are listed by their whole names."""

    of_commands: ClassVar[dict[str, Recorded]] = {}

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.of_commands[self.prog] = self


def parser_of_all() -> Recorded:
    parser = Recorded(prog="trt-responses")
    commands = parser.add_subparsers(required=True)
    for name, text in COMMANDS.items():
        importlib.import_module(module_of(name)).add(commands, name, text)
    return parser


ALL = parser_of_all()
NAMES = [name for name in Recorded.of_commands if name != ALL.prog]


def entries(name: str) -> Iterator[tuple[str, str]]:
    """The flags or the name of each option and argument, and its text."""
    text = re.split("\n(?:Settings are|Example:)", Recorded.of_commands[name].format_help())[0]
    for line in re.split(r"\n(?=  \S)", text):
        form = re.fullmatch(r"  (\S.*?)(?:  +|\n +)(\S[^\n]*)(?:\n.*)?", line, re.DOTALL)
        if form and "--help" not in form[1] and form[1] != "COMMAND":
            yield form[1], form[2]


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_an_example_that_parses(name: str) -> None:
    *_, head, example = Recorded.of_commands[name].format_help().splitlines()
    assert head == "Example:"
    assert example.strip().startswith(name)
    ALL.parse_args(shlex.split(example)[1:])


@pytest.mark.parametrize("name", NAMES)
def test_each_option_has_a_phrase_and_its_default_in_brackets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    for option, text in entries(name):
        flag = re.search(r"--([a-z-]+)", option)
        assert re.match(r"[A-Z]", text), option
        assert not text.endswith("."), option
        default = Recorded.of_commands[name].get_default(flag[1].replace("-", "_")) if flag else 0
        if isinstance(default, (int, str)) and default:
            assert f"(default: {default})" in text, option


def test_the_default_of_each_flag_is_the_settings() -> None:
    for name, (_, text) in FLAGS.items():
        found = re.search(r"\(default: ([^)]*)\)$", text)
        assert found is not None, name
        default = whole().model_fields[name].default
        assert default in (None, ()) or found[1] == str(default)
