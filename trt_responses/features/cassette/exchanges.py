"""A cassette: a JSONL file with an exchange of a client and a server a line, without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trt_responses.errors import UsageError

KEPT = ("content-type", "retry-after", "anthropic-version", "x-should-retry")
KEPT_BEGINNINGS = ("openai-", "x-ratelimit-", "anthropic-beta")
"""The headers that a cassette keeps; all others may hold secrets."""
HEADER = re.compile(r"[!#-'*+.^`|~\w-]+:[\t -~\xa0-\xff]*", re.ASCII)
SECRET = "[secret]"
_NAMES = (
    r"(?:x[-_])?api[-_]?key|(?:proxy[-_])?authorization(?:_token)?|password|(?:client[-_])?secret"
    r"|(?:access|auth|refresh|bearer)[-_]?token|(?:set[-_])?cookie"
)
SECRET_FIELDS = re.compile(_NAMES, re.IGNORECASE)
IN_JSON = re.compile(rf'("(?:{_NAMES})"\s*:\s*")(?:[^"\\]|\\.)+"', re.IGNORECASE)
SECRETS = re.compile(
    r"(?<![\w-])(?:(?:sk|rk|pk)-[\w-]{16,}|xox[a-z]-[\w-]{10,}|gh[a-z]_\w{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|hf_\w{20,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|(?:sk|rk)_(?:live|test)_\w{10,}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})|(?<=Bearer )[\w.~+/-]{12,}=*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    re.DOTALL,
)


class Request(NamedTuple):
    """What a client sent."""

    method: str
    path: str
    body: Any
    """The JSON; text where it is none."""


class Reply(NamedTuple):
    """What the upstream answered."""

    status: int
    headers: Mapping[str, str]
    pieces: Sequence[tuple[float, str]]
    """The body as it came, each piece with its seconds since the request."""
    ended: bool = True
    """False: the connection broke."""

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self.pieces)


class Exchange(NamedTuple):
    """A request and its reply."""

    request: Request
    reply: Reply

    def line(self) -> str:
        parts = {"request": self.request._asdict(), "reply": self.reply._asdict()}
        return json.dumps(parts, separators=(",", ":")) + "\n"


class Cleaner:
    """Takes secrets out of texts and JSON: those with a known shape or name, and `own` ones."""

    def __init__(self, *own: str) -> None:
        known = sorted(filter(None, own), key=len, reverse=True)
        self._own = re.compile("|".join(map(re.escape, known)) or r"(?!)")

    def text(self, text: str) -> str:
        text = IN_JSON.sub(rf'\g<1>{SECRET}"', self._own.sub(SECRET, text))
        return SECRETS.sub(SECRET, text)

    def value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {key: self._field(key, each) for key, each in value.items()}
            case Sequence():
                return [self.value(each) for each in value]
        return value

    def _field(self, key: str, value: Any) -> Any:
        if SECRET_FIELDS.fullmatch(key) and isinstance(value, str):
            return SECRET
        return self.value(value)

    def path(self, path: str) -> str:
        return self.text(re.sub(r"(?<=[?&])([^=&]+)=[^&]*", _parameter, path))

    def exchange(self, exchange: Exchange) -> Exchange:
        method, path, body = exchange.request
        reply = exchange.reply
        whole = reply.text
        clean = self.text(whole)
        pieces = reply.pieces if clean == whole else [(reply.pieces[-1][0], clean)]
        request = Request(method, self.path(path), self.value(body))
        return Exchange(request, reply._replace(headers=kept(reply.headers), pieces=pieces))


def _parameter(found: re.Match[str]) -> str:
    name = found[1]
    return f"{name}={SECRET}" if name == "key" or SECRET_FIELDS.fullmatch(name) else found[0]


def kept(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that hold no secret."""
    return {
        name: value
        for name, value in headers.items()
        if name in KEPT or name.startswith(KEPT_BEGINNINGS)
    }


def parsed(text: str) -> Any:
    """The JSON of a text; None for none, the text itself for what is not JSON, or too deep."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


class Cassette:
    """A file to which whole exchanges are added. Raises a `UsageError` if it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._write(b"")
        except OSError as fault:
            raise UsageError(f"The cassette {path} cannot be written ({fault.strerror}).") from None

    def add(self, exchange: Exchange) -> None:
        """Keep it: what is written when this returns outlives the process."""
        self._write(exchange.line().encode())

    def _write(self, line: bytes) -> None:
        with self._path.open("a+b") as file:
            if file.tell():
                file.seek(-1, 2)
                if file.read(1) != b"\n":  # a kill or a full disk left a part of a line
                    file.write(b"\n")
            file.write(line)


def read(path: Path) -> list[Exchange]:
    """The exchanges of a file; a line that was cut short is left out. Raises a `UsageError`."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as fault:
        raise UsageError(f"The cassette {path} cannot be read ({fault.strerror}).") from None
    found = list[Exchange]()
    for number, line in enumerate(lines, 1):
        try:
            parts = json.loads(line)
        except (ValueError, RecursionError):
            continue
        try:
            found.append(_checked(Exchange(Request(**parts["request"]), Reply(**parts["reply"]))))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"The cassette {path} was changed: line {number} is no exchange."
            ) from None
    if not found:
        raise UsageError(f"The cassette {path} holds no whole exchange.")
    return found


def _checked(exchange: Exchange) -> Exchange:
    """The same exchange, if its reply can be sent."""
    reply = exchange.reply
    heads = [name + ":" + value for name, value in reply.headers.items()]
    if reply.status not in range(200, 600) or not all(map(HEADER.fullmatch, heads)):
        raise ValueError
    for at, piece in reply.pieces:
        piece.encode("utf-8", "surrogateescape")
        abs(at)
    return exchange
