"""Plays transcripts through a judged server whose engine is a mock: chat and Responses, plain and
stream, each reply held against the law. With the mock's record, prompts are judged too."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from responses_conformance import prompts
from responses_conformance.checks.base import Check, Failure, NotJudged, NotOffered
from responses_conformance.laws import READERS, Read, broken, same
from responses_conformance.transcripts import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from responses_conformance.checks.kit import Kit
    from responses_conformance.client import Exchange, Server
    from responses_conformance.prompts import Conversation
    from responses_conformance.transcripts import Transcript

    Extra = Callable[[Transcript], Mapping[str, Any]]

ABSENT = (404, 405, 501)
CLAUSE = "Harmony, and the laws of the kit's transcripts"


@dataclass
class Case:
    """One transcript over one API."""

    transcript: Transcript
    api: str
    broken: list[tuple[str, str]] = field(default_factory=list)
    """The laws that were broken, each with how."""
    exchanges: list[Exchange] = field(default_factory=list)


def checks(transcripts: Sequence[Transcript], record: Path | None = None) -> Iterator[Check]:
    """A check for each transcript and each API; with a record, for each prompt too."""
    for api in READERS:
        for each in transcripts:
            run = partial(_check, each, api)
            yield Check(f"{api}.transcript.{each.name}", each.why, CLAUSE, run, by_model=False)
        for conversation in prompts.CONVERSATIONS if record else ():
            judges = f"The prompt of `{conversation.name}` has the ids that openai-harmony renders."
            run = partial(_prompt, conversation, api, record)
            yield Check(f"{api}.prompt.{conversation.name}", judges, CLAUSE, run, by_model=False)


def play(
    server: Server,
    transcripts: Sequence[Transcript],
    apis: Iterable[str] = READERS,
    extra: Extra | None = None,
) -> dict[str, list[Case] | str]:
    """The cases of each API, or why it is not offered. `extra`: further fields of a request."""
    return {api: _api(server, transcripts, api, extra) for api in apis}


def _api(
    server: Server, transcripts: Sequence[Transcript], api: str, extra: Extra | None
) -> list[Case] | str:
    cases = []
    for transcript in transcripts:
        cases.append(case(server, transcript, api, extra(transcript) if extra else {}))
        if cases[0].exchanges[0].status in ABSENT:
            return f"{cases[0].exchanges[0].status} for POST {READERS[api][0]}"
    return cases


def case(
    server: Server, transcript: Transcript, api: str, extra: Mapping[str, Any] | None = None
) -> Case:
    """One transcript over one API, plain and streamed."""
    made, server.trace = Case(transcript, api), []
    plain = _exchanged(server, transcript, api, {**(extra or {}), "stream": False})
    streamed = _exchanged(server, transcript, api, {**(extra or {}), "stream": True})
    made.exchanges = list(server.trace)
    for place, seen in (("plain", plain), ("stream", streamed)):
        made.broken += [(law, f"{place}: {how}") for law, how in broken(seen, transcript)]
    made.broken += same(plain, streamed)
    return made


def _check(transcript: Transcript, api: str, kit: Kit) -> None:
    found = case(kit.server, transcript, api)
    first = found.exchanges[0]
    if first.status in ABSENT:
        raise NotOffered(f"{first.status} for POST {first.path}")
    if found.broken:
        plain = any(how.startswith("plain") for _, how in found.broken)
        why = "; ".join(f"{law}: {how}" for law, how in found.broken)
        raise Failure(why, found.exchanges[not plain])


def _prompt(conversation: Conversation, api: str, record: Path | None, kit: Kit) -> None:
    body = prompts.body(conversation, api) | {"model": kit.server.model}
    exchange = kit.server.call("POST", READERS[api][0], body)
    if exchange.status in ABSENT:
        raise NotOffered(f"{exchange.status} for POST {exchange.path}")
    if exchange.status != 200:
        raise Failure(f"status {exchange.status}: {exchange.reply[:300]!r}", exchange)
    try:
        found = prompts.last_prompt(record or Path())
    except (OSError, IndexError) as fault:
        raise NotJudged(f"the mock noted no prompt in {record}") from fault
    if (why := prompts.difference(found, conversation)) is not None:
        raise Failure(why, exchange)


def _exchanged(
    server: Server, transcript: Transcript, api: str, fields: Mapping[str, Any], tries: int = 2
) -> Read:
    """What a client reads of the reply; of another one, if the first is late, for the machine may
    be busy."""
    path, read, read_stream = READERS[api]
    body = request(server.model, transcript.wish, transcript.tools, api) | dict(fields)
    try:
        if fields["stream"]:
            with server.stream("POST", path, body) as reply:
                exchange = reply.exchange
                if exchange.status == 200:
                    seen: Read = read_stream(e.json for e in reply if e.data != "[DONE]")
                    return seen
                list(reply)  # the client keeps what is read
        else:
            exchange = server.call("POST", path, body)
            if exchange.status == 200:
                found: Read = read(exchange.json)
                return found
        return Read(error=f"{exchange.status} {exchange.reply[:200]!r}")
    except ConnectionRefusedError:
        raise  # the server is gone: no law is broken
    except (OSError, http.client.HTTPException) as fault:
        if isinstance(fault, TimeoutError) and tries > 1:
            del server.trace[-1:]
            return _exchanged(server, transcript, api, fields, tries - 1)
        return Read(error=f"the connection broke: {fault or type(fault).__name__}")
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        return Read(error=f"a reply of another shape: {type(fault).__name__} {fault}")


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


def all_checks(script: Path | None = None, record: Path | None = None) -> list[Check]:
    """The checks of a script's transcripts; None for those of the kit."""
    return list(checks(load(script), record))
