"""`trt-responses chat`: a chat in the terminal, over any server of the Responses API.

Ctrl-C stops an answer, not the program; Ctrl-D ends it. Piped input is one question.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from trt_responses.cli.chat_view import AnswerView, Terminal
from trt_responses.cli.client import Server, ServerFault, add_server, server_of
from trt_responses.cli.commands import add_command
from trt_responses.cli.conversation import Conversation, result_of, user_message
from trt_responses.cli.explain import show
from trt_responses.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from trt_responses.cli.commands import Commands

    Json = dict[str, Any]

FENCE = '"""'
HISTORY_LINES = 1000
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
HELP = f"""\
/effort LEVEL        reasoning effort: {", ".join(EFFORTS)}, or off
/instructions TEXT   system instructions, or off
/temperature NUMBER  0 to 2, or off
/schema FILE         JSON schema of the answers, or off
/tools FILE          JSON list of function tools, or off; you enter the results of calls
/explain             how the last response was made
/save FILE           save the conversation: Markdown, or items if FILE ends in .json
/new                 start a new conversation
/quit                quit, as Ctrl-D does
End a line with \\ to continue it; {FENCE} starts and ends a text of several lines.
Ctrl-C stops an answer."""


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `chat` and its options."""
    parser = add_command(
        commands, name, text, _chat, example='chat "What is the capital of France?"'
    )
    parser.add_argument(
        "question", nargs="*", metavar="QUESTION", help="One question, instead of a chat"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="Only the text of answers")
    parser.add_argument(
        "--model", metavar="NAME", help="Model name (default: the server's first model)"
    )
    add_server(parser)


def _chat(options: argparse.Namespace) -> int:
    chat = Chat(
        server_of(options), Terminal(sys.stdout, sys.stderr, quiet=options.quiet), options.model
    )
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    question = "\n\n".join(filter(None, (" ".join(options.question), piped.strip())))
    if question:
        return 0 if chat.ask([user_message(question)]) else 1
    if not sys.stdin.isatty():
        raise UsageError("No question: standard input is empty. Pass a question as an argument.")
    return chat.loop()


class Chat:
    """One conversation, and the fields of its next request."""

    def __init__(self, server: Server, terminal: Terminal, model: str | None) -> None:
        self._server = server
        self._terminal = terminal
        self._model = model
        self._note = ""
        """What the server says of its model, for the greeting."""
        self._settings: Json = {}
        self._conversation = Conversation()
        self._commands: dict[str, Callable[[str], None]] = {
            "effort": self._effort,
            "instructions": lambda text: self._set("instructions", text),
            "temperature": self._temperature,
            "schema": self._schema,
            "tools": self._tools,
            "explain": self._explain,
            "save": self._save,
            "new": self._new,
            "help": lambda _: self._terminal.note(HELP),
        }

    # --- asking ---------------------------------------------------------------------------------

    def ask(self, items: Sequence[Json]) -> bool:
        """Send the items and show the answer as it streams. Returns whether an answer came."""
        view = AnswerView(self._terminal)
        try:
            body = self._settings | self._conversation.request(items) | {"model": self._named()}
            with closing(self._server.events("/responses", body)) as events:
                for event in events:
                    view.take(event)
        except KeyboardInterrupt:
            view.close()
            self._terminal.note("(stopped)")
            self._conversation.stopped(items, view.text)
            return False
        except ServerFault as fault:
            view.error = str(fault)
        view.close()
        if view.last is not None:
            self._conversation.ended(items, view.last)
        elif view.error is None:
            view.error = "The stream ended before the answer did."
        if view.error:
            self._terminal.fault(view.error)
        return view.error is None

    def _named(self) -> str:
        if self._model is None:
            listed = self._server.get_json("/models")["data"]
            if not listed:
                raise ServerFault("The server has no model.")
            self._model = str(listed[0]["id"])
            self._note = str(listed[0].get("description") or "")
        return self._model

    # --- the loop ---------------------------------------------------------------------------

    def loop(self) -> int:
        """Read and answer until Ctrl-D or /quit."""
        self._greet()
        with _history():
            while (text := self._read()) is not None:
                try:
                    if not self._handle(text):
                        break
                except KeyboardInterrupt:  # between two answers
                    self._terminal.aside("\n")
        return 0

    def _handle(self, text: str) -> bool:
        """Run a typed command or send a typed question. Returns False to leave."""
        name, _, rest = text.removeprefix("/").partition(" ")
        if text.startswith("/") and name == "quit":
            return False
        if text.startswith("/") and name in self._commands:
            self._obey(name, rest.strip())
        elif text.startswith("/") and name.isalpha():
            self._terminal.fault(f"Unknown command /{name}: /help lists the commands.")
        elif text.strip() and self.ask([user_message(text)]):
            self._answer_calls()
        return True

    def _greet(self) -> None:
        with suppress(ServerFault):
            self._terminal.note(f"{self._named()} at {self._server.base_url}. /help, Ctrl-D ends.")
            if self._note:
                self._terminal.note(self._note)

    def _read(self) -> str | None:
        """The typed text: a line, several lines that end in a backslash, or a fenced text."""
        lines: list[str] = []
        fenced = False
        while True:
            try:
                line = input("… " if lines or fenced else "> ")
            except KeyboardInterrupt:
                self._terminal.aside("\n")
                lines, fenced = [], False
                continue
            except EOFError:
                self._terminal.aside("\n")
                return None
            if line.strip() == FENCE:
                if fenced:
                    return "\n".join(lines)
                fenced = True
            elif not fenced and line.endswith("\\"):
                lines.append(line[:-1])
            elif fenced:
                lines.append(line)
            else:
                return "\n".join((*lines, line))

    def _answer_calls(self) -> None:
        """Prompt for the result of each call, as long as the model makes any; an empty line leaves
        a call open."""
        while calls := self._conversation.open_calls():
            results = []
            for call in calls:
                try:
                    output = input(f"result of {call['name']}> ")
                except (KeyboardInterrupt, EOFError):
                    output = ""
                if not output:
                    self._terminal.note("\n(left open)")
                    return
                results.append(result_of(call, output))
            if not self.ask(results):
                return

    def _obey(self, name: str, rest: str) -> None:
        try:
            self._commands[name](rest)
        except (ServerFault, ValueError) as fault:
            self._terminal.fault(str(fault))
        except OSError as error:
            self._terminal.fault(f"{error.filename}: {error.strerror}.")

    # --- its commands -----------------------------------------------------------------------

    def _set(self, name: str, value: Any) -> None:
        if value in ("", "off"):
            self._settings.pop(name, None)
            self._terminal.note(f"{name}: off")
        else:
            self._settings[name] = value
            self._terminal.note(f"{name}: set")

    def _effort(self, level: str) -> None:
        if level not in (*EFFORTS, "off", ""):
            raise ValueError(f"{level!r} is not an effort: use {', '.join(EFFORTS)} or off.")
        self._set("reasoning", {"effort": level} if level in EFFORTS else "")

    def _temperature(self, text: str) -> None:
        try:
            self._set("temperature", float(text) if text not in ("", "off") else "")
        except ValueError:
            raise ValueError(f"{text!r} is not a number: use 0 to 2, or off.") from None

    def _schema(self, path: str) -> None:
        schema = _json_of(path)
        form = {"type": "json_schema", "name": "answer", "schema": schema}
        self._set("text", {"format": form} if schema else "")

    def _tools(self, path: str) -> None:
        tools = _json_of(path)
        if tools and not isinstance(tools, list):
            raise ValueError(f"{path}: expected a JSON list of tools.")
        self._set("tools", tools or "")

    def _explain(self, _: str) -> None:
        last = self._conversation.last
        if last is None:
            raise ValueError("There is no response yet.")
        explanation = self._server.get_json(f"/responses/{last['id']}/explain")
        show(explanation, Console(soft_wrap=True, no_color=not self._terminal.colours))

    def _save(self, path: str) -> None:
        if not path:
            raise ValueError("/save needs a file: /save FILE")
        chat = self._conversation
        text = chat.as_json() if path.endswith(".json") else chat.as_markdown()
        Path(path).expanduser().write_text(text, "utf-8")
        self._terminal.note(f"saved {path}")

    def _new(self, _: str) -> None:
        self._conversation = Conversation()
        self._terminal.note("New conversation.")


def _json_of(path: str) -> Any:
    """The JSON of a file; None for the word `off`."""
    if path in ("", "off"):
        return None
    name = shlex.split(path)[0]
    try:
        return json.loads(Path(name).expanduser().read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{name} is not valid JSON: {error}.") from None


@contextmanager
def _history() -> Iterator[None]:
    """Keep a history of typed lines for the next chat, where the terminal has readline."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "trt_responses" / "chat_history"
    try:
        import readline  # not on every platform; to import it gives `input` its line editing
    except ImportError:
        yield
        return
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.set_history_length(HISTORY_LINES)
            readline.write_history_file(path)
            path.chmod(0o600)
