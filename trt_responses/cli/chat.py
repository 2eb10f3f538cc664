"""`trt-responses chat`: a chat in the terminal, over any server of the Responses API.

Ctrl-C stops an answer, and leaves at the second time; Ctrl-D leaves. Piped input is one question.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.console import Console

from trt_responses.cli.client import (
    NoAnswer,
    Server,
    ServerFault,
    add_server,
    own_server,
    server_of,
)
from trt_responses.cli.commands import add_command
from trt_responses.cli.explain import show
from trt_responses.cli.terminal import conversation as chats
from trt_responses.cli.terminal.conversation import Conversation, result_of, user_message
from trt_responses.cli.terminal.typed import FENCE, reader
from trt_responses.cli.terminal.view import AnswerView, Terminal
from trt_responses.errors import StartupError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.cli.commands import Commands
    from trt_responses.cli.terminal.typed import Read

    Json = dict[str, Any]

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
HELP = f"""\
/model NAME          model of the next answers; without NAME, the models of the server
/effort LEVEL        reasoning effort: {", ".join(EFFORTS)}, or off
/system TEXT         system instructions, or off; /instructions is the same
/temperature NUMBER  0 to 2, or off
/schema FILE         JSON schema of the answers, or off
/tools NAME… FILE    tools that the server runs, by name, or a JSON list of functions whose results
                     you enter; without a name, the tools of the server; off
/retry               answer the last question again
/edit                change the last question and send it again
/copy                copy the last answer to the clipboard
/explain             how the last response was made
/save FILE           save the conversation: Markdown, or items if FILE ends in .json
/load FILE           continue a conversation that was saved as .json
/new                 start a new conversation
/quit                quit, as Ctrl-D does
Alt-Enter, or \\ at the end of a line, starts a new line; {FENCE} starts and ends a long text.
Ctrl-C stops an answer; twice, it quits."""


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `chat` and its options."""
    parser = add_command(
        commands, name, text, _chat, example='chat "What is the capital of France?"'
    )
    parser.add_argument(
        "question",
        nargs="*",
        metavar="QUESTION",
        help="One question, instead of a chat; `-` reads it from standard input and prints the "
        "answer alone",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="Only the text of answers")
    parser.add_argument(
        "--model", metavar="NAME", help="Model name (default: the server's first model)"
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        const="",
        metavar="MODEL",
        help="Start a server of MODEL for this chat (default of MODEL: as `serve` without one)",
    )
    add_server(parser)


def _chat(options: argparse.Namespace) -> int:
    server = server_of(options)
    alone = options.question == ["-"]
    words = "" if alone else " ".join(options.question)
    piped = sys.stdin.read() if alone or not sys.stdin.isatty() else ""
    question = "\n\n".join(filter(None, (words, piped.strip())))
    if not question and (alone or not sys.stdin.isatty()):
        raise UsageError("No question: standard input is empty. Pass a question as an argument.")
    if options.serve is not None and options.url:
        raise UsageError("--serve and --url both name a server; give one of them.")
    terminal = Terminal(sys.stdout or sys.stderr, sys.stderr, quiet=options.quiet or alone)
    with ExitStack() as stack:
        if options.serve is not None:
            try:
                server = stack.enter_context(own_server(options.serve))
            except ServerFault as fault:
                raise StartupError(str(fault)) from None
        chat = Chat(server, terminal, options.model)
        if question:
            return 0 if chat.ask([user_message(question)]) else 1
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
        self._interrupted = False
        self._read: Read
        self._commands: dict[str, Callable[[str], None]] = {
            "model": self._use_model,
            "effort": self._effort,
            "system": lambda text: self._set("instructions", text),
            "instructions": lambda text: self._set("instructions", text),
            "temperature": self._temperature,
            "schema": self._schema,
            "tools": self._tools,
            "retry": self._retry,
            "edit": self._edit,
            "copy": self._copy,
            "explain": self._explain,
            "save": self._save,
            "load": self._load,
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
            self._interrupted = True
            return False
        except ServerFault as fault:
            view.error = str(fault)
        view.close()
        if view.last is not None:
            self._conversation.ended(items, view.last)
        elif view.error is None:
            view.error = "The stream ended before the answer did."
        if view.error:
            self._conversation.failed(items)
            self._terminal.fault(view.error)
        return view.error is None

    def _named(self) -> str:
        if self._model is None:
            listed = self._server.models()
            if not listed:
                raise ServerFault("The server has no model.")
            self._model = str(listed[0]["id"])
            self._note = str(listed[0].get("description") or "")
        return self._model

    # --- the loop ---------------------------------------------------------------------------

    def loop(self) -> int:
        """Read and answer until Ctrl-D, /quit or a second Ctrl-C."""
        self._read = reader([*self._commands, "quit"])
        try:
            self._terminal.note(f"{self._named()} at {self._server.base_url}. /help, Ctrl-D ends.")
            if self._note:
                self._terminal.note(self._note)
        except NoAnswer as fault:
            self._terminal.fault(
                f"{fault} `trt-responses serve` starts a server, and `trt-responses chat --serve` "
                "one for this chat."
            )
            return 1
        except ServerFault as fault:
            self._terminal.fault(str(fault))
        while (text := self._next()) is not None:
            self._interrupted = False
            try:
                if not self._handle(text):
                    break
            except KeyboardInterrupt:  # between two answers
                self._interrupted = True
                self._terminal.aside("\n")
        return 0

    def _next(self) -> str | None:
        """The next typed text; None to leave."""
        while True:
            try:
                return self._read("> ", "")
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._interrupted:
                    return None
                self._interrupted = True
                self._terminal.note("(Ctrl-C again quits)")

    def _handle(self, text: str) -> bool:
        """Run a typed command or send a typed question. Returns False to leave."""
        name, _, rest = text.removeprefix("/").partition(" ")
        if text.startswith("/") and name == "quit":
            return False
        if text.startswith("/") and name in self._commands:
            self._obey(name, rest.strip())
        elif text.startswith("/") and name.isalpha():
            self._terminal.fault(f"Unknown command /{name}: /help lists the commands.")
        elif text.strip():
            self._send([user_message(text)])
        return True

    def _send(self, items: Sequence[Json]) -> None:
        """Send the items, and prompt for the result of each call as long as the model makes any;
        an empty line leaves a call open."""
        while self.ask(items) and (calls := self._conversation.open_calls()):
            results = []
            for call in calls:
                try:
                    output = self._read(chats.wanted_of(call), "")
                except (KeyboardInterrupt, EOFError):
                    output = ""
                if not output:
                    self._terminal.note("\n(left open)")
                    return
                results.append(result_of(call, output))
            items = results

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

    def _use_model(self, name: str) -> None:
        names = [model["id"] for model in self._server.models()]
        if name and name not in names:
            raise ValueError(f"The server does not list {name!r}; it has {', '.join(names)}.")
        self._model = name or self._named()
        self._terminal.note(f"model: {self._model}" + ("" if name else f" of {', '.join(names)}"))

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

    def _tools(self, text: str) -> None:
        card = self._server.get_json(f"/models/{quote(self._named())}")
        served = {chats.name_of(tool): tool for tool in card.get("tools") or ()}
        names = shlex.split(text)
        if not names:
            self._terminal.note(f"tools of this server: {', '.join(served) or 'none'}")
            return
        tools = [] if names == ["off"] else [one for name in names for one in _tool(name, served)]
        self._set("include", chats.OUTPUTS if tools else "")
        self._set("tools", tools or "")

    def _retry(self, _: str) -> None:
        items = self._conversation.undo()
        if not items:
            raise ValueError("There is no question yet.")
        self._send(items)

    def _edit(self, _: str) -> None:
        question = self._conversation.question()
        if question is None:
            raise ValueError("There is no question yet.")
        try:
            text = self._read("edit> ", question)
        except (KeyboardInterrupt, EOFError):
            text = ""
        if not text.strip():
            self._terminal.note("(unchanged)")
            return
        self._conversation.undo_question()
        self._send([user_message(text)])

    def _copy(self, _: str) -> None:
        text = self._conversation.answer()
        if not text:
            raise ValueError("There is no answer yet.")
        self._terminal.copy(text)
        self._terminal.note(f"copied {len(text)} characters")

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
        Path(os.path.expanduser(path)).write_text(text, "utf-8")
        self._terminal.note(f"saved {path}")

    def _load(self, path: str) -> None:
        items = _json_of(path)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ValueError("/load needs a JSON list of items, as /save FILE.json writes it.")
        self._conversation = Conversation()
        self._conversation.load(items)
        self._terminal.note(f"loaded {len(items)} items of {path}")

    def _new(self, _: str) -> None:
        self._conversation = Conversation()
        self._terminal.note("New conversation.")


def _tool(name: str, served: Mapping[str, Json]) -> list[Json]:
    """The tool of the server by this name, else the list of tools in the file of this name."""
    if name in served:
        return [served[name]]
    tools = _json_of(shlex.quote(name))
    if not isinstance(tools, list):
        raise ValueError(f"{name}: expected a JSON list of tools.")
    return tools


def _json_of(path: str) -> Any:
    """The JSON of a file; None for the word `off`."""
    if path in ("", "off"):
        return None
    name = shlex.split(path)[0]
    try:
        return json.loads(Path(os.path.expanduser(name)).read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{name} is not valid JSON: {error}.") from None
