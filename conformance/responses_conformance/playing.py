"""Plays transcripts through a judged server whose engine is a mock: chat and Responses, plain and
stream, each reply held against the law."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from responses_conformance.laws import READERS, Said, broken, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from responses_conformance.client import Exchange, Server
    from responses_conformance.transcripts import Transcript

ABSENT = (404, 405, 501)


@dataclass
class Case:
    """One transcript over one API."""

    transcript: Transcript
    api: str
    broken: list[tuple[str, str]] = field(default_factory=list)
    """The laws that were broken, each with how; the place of the fault before it."""
    exchanges: list[Exchange] = field(default_factory=list)


def play(
    server: Server,
    transcripts: Sequence[Transcript],
    apis: Iterable[str] = READERS,
    seen: Callable[[Case], object] = lambda case: None,
) -> dict[str, list[Case] | str]:
    """The cases of each API, or why it is not offered."""
    return {api: _api(server, transcripts, api, seen) for api in apis}


def _api(
    server: Server, transcripts: Sequence[Transcript], api: str, seen: Callable[[Case], object]
) -> list[Case] | str:
    cases = []
    for transcript in transcripts:
        case = _case(server, transcript, api)
        first = case.exchanges[0]
        if not cases and first.status in ABSENT:
            return f"not offered: {first.status} for POST {first.path}"
        cases.append(case)
        seen(case)
    return cases


def _case(server: Server, transcript: Transcript, api: str) -> Case:
    case, server.trace = Case(transcript, api), []
    plain = _said(server, transcript, api, stream=False)
    streamed = _said(server, transcript, api, stream=True)
    case.exchanges = list(server.trace)
    for place, said in (("plain", plain), ("stream", streamed)):
        case.broken += [(law, f"{place}: {how}") for law, how in broken(said, transcript)]
    case.broken += same(plain, streamed)
    return case


def _said(server: Server, transcript: Transcript, api: str, *, stream: bool) -> Said:
    path, read, read_stream = READERS[api]
    body = request(server.model, transcript.wish, transcript.tools, api) | {"stream": stream}
    try:
        if stream:
            with server.stream("POST", path, body) as reply:
                if reply.exchange.status == 200:
                    said: Said = read_stream(e.json for e in reply if e.data != "[DONE]")
                    return said
                list(reply)  # the client keeps what is read
                exchange = reply.exchange
        else:
            exchange = server.call("POST", path, body)
            if exchange.status == 200:
                found: Said = read(exchange.json)
                return found
        return Said(error=f"{exchange.status} {exchange.reply[:200]!r}")
    except ConnectionRefusedError:
        raise  # the server is gone: no law is broken
    except (OSError, http.client.HTTPException) as fault:
        return Said(error=f"the connection broke: {fault or type(fault).__name__}")
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        return Said(error=f"a reply of another shape: {type(fault).__name__} {fault}")


def request(model: str, text: str, tools: Sequence[str], api: str) -> dict[str, Any]:
    """A request whose engine plays what the text asks for."""
    functions = [_function(name) for name in tools]
    if api == "chat":
        body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
        functions = [{"type": "function", "function": each} for each in functions]
    else:
        body = {"input": text, "store": False}
        functions = [{"type": "function", **each} for each in functions]
    return {"model": model, **body} | ({"tools": functions} if functions else {})


def _function(name: str) -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in ("city", "q")}
    return {
        "name": name,
        "description": f"The tool {name}.",
        "parameters": {"type": "object", "properties": properties},
    }
