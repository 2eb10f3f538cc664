"""Keys are nowhere to be found: not in what a server says, answers, writes or is started with."""

from __future__ import annotations

import asyncio
import base64
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import until
from tests.support.serving import child
from trt_responses.features.limits.key_file import changing
from trt_responses.features.limits.keys import Key, digest_of, new_key

if TYPE_CHECKING:
    from tests.support.serving import Address

GIVEN, LISTED, REVOKED, FOREIGN = (new_key() for _ in range(4))
SECRETS = {"given": GIVEN, "listed": LISTED, "revoked": REVOKED, "foreign": FOREIGN}


def _request(key: str, path: str = "/v1/responses", body: bytes = b"", *more: str) -> bytes:
    head = [
        f"{'POST' if body else 'GET'} {path} HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {key}",
        "connection: close",
        f"content-length: {len(body)}",
        *(more or ("content-type: application/json",)),
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def requests(key: str) -> list[bytes]:
    """Good ones, and each kind of bad one: refusals and faults are where a key would be said."""
    return [
        _request(key, body=b'{"model": "tiny", "input": "Hi", "max_output_tokens": 4}'),
        _request(key, body=b'{"model": "tiny", "input": "Hi", "stream": true, "temperature": 9}'),
        _request(key, body=b'{"model": "tiny", "input": '),
        _request(key, "/v1/responses", b"a=b", "content-type: text/plain"),
        _request(key, "/v1/models", b"", "origin: https://evil.example"),
        _request(key, "/v1/models"),
        _request(key, "/v1/responses/resp_none"),
        _request(key, "/nowhere"),
        _request(key, "/v1/models", b"", "broken header"),
        _request(key, "/v1/models", b"", "x: " + "y" * 70_000),
    ]


async def _answer(address: Address, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionResetError:  # it closed on bytes that it did not want
        return b""
    finally:
        writer.close()


def _hold(path: Path, *secrets: str) -> None:
    with changing(path) as write:
        write([Key(owner="ann", name=f"n{n}", sha256=digest_of(s)) for n, s in enumerate(secrets)])


def found(secrets: dict[str, str], text: bytes) -> set[str]:
    """The names of the secrets that stand in it, as they are or as base64 would show them."""
    return {
        name
        for name, secret in secrets.items()
        if secret.encode() in text or base64.b64encode(secret.encode())[:24] in text
    }


def test_the_scan_finds_what_is_there() -> None:
    assert found(SECRETS, f"x{GIVEN}y".encode()) == {"given"}
    assert found(SECRETS, base64.b64encode(LISTED.encode())) == {"listed"}


@pytest.mark.xdist_group("embedded")
def test_keys_stand_in_no_log_answer_file_or_process_list(
    tmp_path: Path, small_engines_dir: Path
) -> None:
    """Budget: 10 s."""
    data, keys = tmp_path / "data", tmp_path / "keys.json"
    _hold(keys, LISTED, REVOKED)
    settings = {
        "API_KEYS": f"eve:{GIVEN}",
        "KEYS_FILE": str(keys),
        "DATA_DIR": str(data),
        "STORE": f"sqlite:///{data / 'history.db'}",
        "CONTEXT_TOKENS": "4096",
        "LOG_LEVEL": "debug",
    }

    async def story() -> bytes:
        arguments = ("serve", "--port", "0", "--engines-dir", str(small_engines_dir))
        environment = {f"TRT_RESPONSES_{name}": value for name, value in settings.items()}
        async with child(*arguments, environment=environment) as server:
            address = await server.ready()
            heard = []
            for secret in SECRETS.values():
                heard += [await _answer(address, request) for request in requests(secret)]
            _hold(keys, LISTED)
            while b" 401 " not in await _answer(address, _request(REVOKED, "/v1/models")):
                pass  # the file is looked at every second
            keys.write_text(f'{{"keys": [{{"owner": "ann", "name": "a", "sha256": "{FOREIGN}"}}]}}')
            await until(lambda: b"keys.refused" in (data / "audit.jsonl").read_bytes())
            heard += [await _answer(address, request) for request in requests(LISTED)]
            commands = _commands([server.pid, *server.children()])
            assert any(b"serve" in command for command in commands)
            assert len(commands) > 1, "the embedded engine is a process of its own"
            server.signal(signal.SIGTERM)
            status, out, err = await server.ended()
        assert status == 0, err
        assert b"200 OK" in heard[0]
        assert b"401 " in heard[-len(requests(LISTED)) * 2], "a foreign key was let in"
        return b"\n".join([*heard, *commands, out.encode(), err.encode()])

    heard = asyncio.run(story())
    keys.unlink()  # what stands in it now, the test has put there
    written = b"\n".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert b"keys.loaded" in written
    assert found(SECRETS, heard + written) == set()
    assert b"Bearer trt_" not in heard + written


def _commands(pids: list[int]) -> list[bytes]:
    return [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
