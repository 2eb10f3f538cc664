"""The smallest script that repeats what a check did: curl for one request, Python for several."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from responses_conformance.client import WEBSOCKET, Exchange, Server

MOST_STEPS = 8
MOST_BYTES = 4000
IDS = r'"(?:call_)?id": *"([^"]+)'
HEAD = """\
import http.client, os, re
def call(method, path, body=None, read=None):
    link = http.client.{kind}({host!r}, {port})
    link.request(method, {base!r} + path, body and body.encode(), {headers})
    reply = link.getresponse()
    print(reply.status, text := reply.read(read).decode())
    return re.findall({ids!r}, text)
"""


def script(server: Server, exchanges: Sequence[Exchange]) -> str:
    """A script for a shell or for Python, which reads the key from `KEY`."""
    steps = list(exchanges)[-MOST_STEPS:]
    if not steps:
        return ""
    if steps[-1].method == WEBSOCKET:
        frames = (steps[-1].body or b"").decode("utf-8", "replace").splitlines()
        return shlex.join(["python", "-m", "responses_conformance.sockets", server.url, *frames])
    if len(steps) == 1 or any(len(step.body or b"") > MOST_BYTES for step in steps):
        return _curl(server, steps[-1])
    return _python(server, steps)


def _headers(server: Server, exchange: Exchange) -> dict[str, str]:
    keyed = server.keyed(exchange)
    if server.key:
        keyed = {name: text.replace(server.key, "$KEY") for name, text in keyed.items()}
    return {"content-type": "application/json", **keyed}


def _curl(server: Server, exchange: Exchange) -> str:
    words = ["curl", "-sNi", "-X", exchange.method]
    words += ["--max-time", "1"] if exchange.hung_up else []
    line = f"{shlex.join(words)} {shlex.quote(server.url + exchange.path)}"
    for name, text in _headers(server, exchange).items():
        line += f' \\\n  -H "{name}: {text}"'
    body = exchange.body
    if body is None:
        return line
    if len(body) > MOST_BYTES:
        line = f"# The middle of the body, which has {len(body)} bytes, is left out.\n{line}"
        body = body[:80] + b" ... " + body[-80:]
    return f"{line} \\\n  -d {shlex.quote(body.decode('utf-8', 'replace'))}"


def _python(server: Server, steps: Sequence[Exchange]) -> str:
    kind = "HTTPSConnection" if server.secure else "HTTPConnection"
    headers = repr(_headers(server, steps[0])).replace("$KEY'", "' + os.environ['KEY']")
    place = {"host": server.host, "port": server.port, "base": server.base}
    lines = [HEAD.format(kind=kind, headers=headers, ids=IDS, **place).rstrip()]
    known: dict[str, str] = {}
    for number, step in enumerate(steps, 1):
        given = [repr(step.method), _literal(step.path, known)]
        if step.body is not None:
            given.append(_literal(step.body.decode("utf-8", "replace"), known))
        given += ["read=300"] if step.hung_up else []
        lines.append(f"r{number} = call({', '.join(given)})")
        found = re.findall(IDS, step.reply.decode("utf-8", "replace"))
        for name in reversed(found):
            known[name] = f"r{number}[{found.index(name)}]"
    return "\n".join(lines)


def _literal(text: str, known: dict[str, str]) -> str:
    """A text whose ids are those of the repetition's own replies."""
    ids = [name for name in known if name in text and len(name) > 8]
    if not ids:
        return repr(text)
    either = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
    parts = re.split(f"({either})", text)
    return " + ".join(known.get(part) or repr(part) for part in parts if part)
