"""Shows a response in a terminal as it streams: thoughts dimmed, calls named, then figures.

Colours and rendered Markdown only on a terminal. Knows events; sends nothing.
"""

from __future__ import annotations

import base64
import os
import time
from typing import Any, TextIO

from trt_responses.cli.client import printable
from trt_responses.cli.terminal.markdown import MarkdownStream

Json = dict[str, Any]

RESET, BOLD, DIM, RED, CYAN = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[36m"
TEXTS = {
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_text.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
    "response.code_interpreter_call_code.delta",
    "response.shell_call_command.delta",
    "response.mcp_call_arguments.delta",
}


class Terminal:
    """The terminal or file that a chat writes to."""

    def __init__(self, out: TextIO, err: TextIO, *, quiet: bool = False) -> None:
        """If `out` is not a terminal, it gets only answers and `err` gets the rest. `quiet` drops
        the rest."""
        self._out = out
        self._aside = out if out.isatty() else err
        self._quiet = quiet
        self.colours = out.isatty() and not os.environ.get("NO_COLOR")
        self._markdown: MarkdownStream | None = None

    def answer(self, text: str) -> None:
        """Write the next piece of an answer."""
        if not self._out.isatty():
            _write(self._out, printable(text))
            return
        self._markdown = self._markdown or MarkdownStream(self._out)
        self._markdown.add(printable(text))

    def end_answer(self) -> None:
        if self._markdown is not None:
            self._markdown.close()
            self._markdown = None
        else:
            _write(self._out, "\n")

    def copy(self, text: str) -> None:
        """Have the terminal put a text on the clipboard, also over SSH."""
        coded = base64.b64encode(text.encode()).decode()
        _write(self._aside, f"\x1b]52;c;{coded}\x07")

    def aside(self, text: str, style: str = "") -> None:
        """Write text beside the answer, such as a thought."""
        if not self._quiet:
            self._styled(text, style)

    def note(self, text: str) -> None:
        self.aside(f"{text}\n", DIM)

    def fault(self, text: str) -> None:
        self._styled(f"{text}\n", RED)

    def _styled(self, text: str, style: str) -> None:
        text = printable(text)
        _write(self._aside, f"{style}{text}{RESET}" if style and self.colours else text)


def _write(out: TextIO, text: str) -> None:
    out.write(text)
    out.flush()


def _called(item: Json) -> str:
    """How a call of a function or of an MCP server begins; empty for other items."""
    names = [item[key] for key in ("server_label", "name") if key in item]
    return f"calls {'.'.join(names)}" if "name" in item else ""


def _result(item: Json) -> str:
    """The result of a call; its arguments where they come in no event of their own."""
    match item["type"]:
        case "code_interpreter_call":
            return "".join(output.get("logs", "") for output in item.get("outputs") or ())
        case "shell_call_output":
            return "".join(one["stdout"] + one["stderr"] for one in item["output"])
        case "mcp_call":
            return str(item.get("output") or item.get("error") or "")
        case "mcp_approval_request":
            return str(item["arguments"])
        case "web_search_call":
            action = item["action"]
            return f"searches {action.get('query') or action.get('url') or action.get('pattern')}"
    return ""


class AnswerView:
    """Shows one response while it comes. `text` is the part that the client may repeat when it is
    stopped."""

    def __init__(self, terminal: Terminal) -> None:
        self.text = ""
        self.last: Json | None = None
        self.error: str | None = None
        self._terminal = terminal
        self._kind = ""
        self._begun_s = time.monotonic()
        self._first_s: float | None = None

    def take(self, event: Json) -> None:
        kind = event["type"]
        if kind == "response.output_item.added":
            self._begin(event["item"])
        elif kind in TEXTS:
            self._say(event["delta"])
        elif kind == "response.output_item.done":
            self._end(event["item"])
        elif kind == "error":
            self.error = event.get("message") or event.get("error", {}).get("message")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self.last = event["response"]

    def _begin(self, item: Json) -> None:
        self._kind = item["type"]
        if name := _called(item):
            self._terminal.aside(f"{name} ", CYAN + BOLD)

    def _say(self, delta: str) -> None:
        self._first_s = self._first_s or time.monotonic()
        if self._kind == "message":
            self.text += delta
            self._terminal.answer(delta)
        else:
            self._terminal.aside(delta, DIM if self._kind == "reasoning" else CYAN)

    def _end(self, item: Json | None = None) -> None:
        if self._kind == "message":
            self._terminal.end_answer()
        else:
            self._terminal.aside("\n")
        if item is not None and (result := _result(item)):
            self._terminal.note(result.rstrip("\n"))
        self._kind = ""

    def close(self) -> None:
        """Show how the response ended and what it took."""
        if self._kind:
            self._end()
        if self.last is None:
            return
        if self.last["status"] == "incomplete":
            self._terminal.note("(incomplete: out of tokens)")
        if usage := self.last.get("usage"):
            self._terminal.note(self._figures(usage))

    def _figures(self, usage: Json) -> str:
        read, written = usage["input_tokens"], usage["output_tokens"]
        cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
        figures = [f"{read} in ({100 * cached // max(1, read)} % cached)", f"{written} out"]
        if self._first_s is not None:
            figures.append(f"first token {1000 * (self._first_s - self._begun_s):.0f} ms")
            spent = time.monotonic() - self._first_s
            if written > 1 and spent > 0:
                figures.append(f"{(written - 1) / spent:.0f} tokens/s")
        return ", ".join(figures)
