"""The smallest script that repeats what a check did: curl for one request, Python for several."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from responses_conformance.client import Exchange, Json, Server

MOST_STEPS = 6
MOST_BYTES = 4000
_ID = re.compile(rb'"id":\s*"((?:resp|msg|item|fc|rs|call|chatcmpl)[_-][\w-]+)"')
HEAD = """\
import json, os, urllib.error, urllib.request as u

def call(method, path, body=None, read=-1):
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body else None
    request = u.Request({url!r} + path, data, {headers}, method=method)
    try:
        reply = u.urlopen(request)
    except urllib.error.HTTPError as error:
        reply = error
    print(reply.status, text := reply.read(read).decode())
    return text.split('"id":')[1].split('"')[1] if '"id":' in text else None
"""


def script(server: Server, exchanges: Sequence[Exchange]) -> str:
    """A script for a shell or for Python, which reads the key from `KEY`."""
    steps = list(exchanges)[-MOST_STEPS:]
    if not steps:
        return ""
    if len(steps) == 1 or any(len(step.body or b"") > MOST_BYTES for step in steps):
        return _curl(server, steps[-1])
    return _python(server, steps)


def _headers(server: Server, exchange: Exchange) -> Json:
    keyed = server.keyed(exchange.path) if exchange.has_key else {}
    plain = {name: text.replace(server.key, "$KEY") for name, text in keyed.items() if server.key}
    return {"content-type": "application/json"} | (plain or keyed) | dict(exchange.sent)


def _curl(server: Server, exchange: Exchange) -> str:
    words = ["curl", "-sNi", "-X", exchange.method]
    words += ["--max-time", "1"] if exchange.hung_up else []
    line = shlex.join(words) + " " + shlex.quote(server.url + exchange.path)
    for name, text in _headers(server, exchange).items():
        line += f' \\\n  -H "{name}: {text}"'
    body = exchange.body
    if body is not None and len(body) > MOST_BYTES:
        line = f"# of the body, which has {len(body)} bytes, the middle is left out\n{line}"
        body = body[:80] + b" ... " + body[-80:]
    if body is not None:
        line += f" \\\n  -d {shlex.quote(body.decode('utf-8', 'replace'))}"
    return line


def _python(server: Server, steps: Sequence[Exchange]) -> str:
    headers = repr(_headers(server, steps[0]))
    headers = headers.replace("$KEY'", "' + os.environ['KEY']")
    lines = [HEAD.format(url=server.url, headers=headers)]
    ids: dict[str, str] = {}
    for number, step in enumerate(steps, 1):
        given = [repr(step.method), _with_ids(step.path, ids)]
        if step.body is not None:
            given.append(_with_ids(step.body.decode("utf-8", "replace"), ids))
        if step.hung_up:
            given.append("read=300")
        lines.append(f"r{number} = call({', '.join(given)})")
        if found := _ID.search(step.reply):
            ids.setdefault(found[1].decode(), f"r{number}")
    return "\n".join(lines)


def _with_ids(text: str, ids: dict[str, str]) -> str:
    """A literal in which the ids of earlier replies are those of the repetition."""
    known = [each for each in ids if each in text]
    if not known:
        return repr(text)
    literal = repr(text)
    for each in known:
        literal = literal.replace(each, f"' + {ids[each]} + '")
    return literal if literal[0] == "'" else repr(text)
