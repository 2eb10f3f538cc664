"""`trt-responses completion`: completion of commands, options and engines by the shell.

The script that a shell loads calls this command again for each Tab, so that it never goes stale.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from trt_responses.cli.commands import add_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trt_responses.cli.commands import Commands

SCRIPTS = {
    "bash": """\
_trt_responses() {
  local IFS=$'\\n'
  COMPREPLY=($(trt-responses completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _trt_responses trt-responses
""",
    "zsh": """\
_trt_responses() {
  local -a found
  found=(${(f)"$(trt-responses completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _trt_responses trt-responses
""",
    "fish": """\
complete -c trt-responses -a \\
  '(trt-responses completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
ENGINES = ("NAME", "ENGINE", "MODEL")
"""Arguments that may be a prepared engine."""


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `completion` and its argument."""
    parser = add_command(commands, name, text, _completion, example="completion bash")
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=[*SCRIPTS, "words"],
        help="Shell: bash, zsh or fish. Its start file loads the script: "
        "`source <(trt-responses completion bash)`, or `trt-responses completion fish | source`",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _completion(options: argparse.Namespace) -> int:
    if options.shell == "words":
        words = options.words[options.words[:1] == ["--"] :]  # argparse may leave it or take it
        print("\n".join(candidates(words)))
    else:
        print(SCRIPTS[options.shell], end="")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What the last of these words may become. Nothing means a file."""
    from trt_responses.cli.main import parser_of

    *before, begun = words or [""]
    parser = parser_of(before[0] if before else "")
    for word in before:
        parser = _choices(parser).get(word, parser)
    option = parser._option_string_actions.get(before[-1]) if before else None
    if option is not None and option.nargs != 0:
        found = [str(choice) for choice in option.choices or _engines(option)]
    elif begun.startswith("-"):
        found = [name for action in parser._actions for name in action.option_strings]
    else:
        found = [*_choices(parser), *_arguments(parser)]
    return [word for word in found if word.startswith(begun)]


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands behind a parser's own words."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            yield from map(str, action.choices or _engines(action))


def _engines(action: argparse.Action) -> list[str]:
    """The prepared engines of the settings, if the argument may be one."""
    if action.metavar not in ENGINES:
        return []
    from trt_responses.prepare.shelf import shelf
    from trt_responses.settings import Settings

    return sorted({card.name for card in shelf.entries(Settings.from_environment().engines_dir)})
