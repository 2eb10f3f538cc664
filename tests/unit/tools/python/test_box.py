"""What code in the box cannot do, as root and as an ordinary user, with old and new Landlock."""

from __future__ import annotations

import asyncio
import platform
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.attacks import HELPERS, Places, refused_codes, true_codes
from tests.support.boxed import Outsider, Ran, interpreter, no_box, ran, ran_as

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

USEFUL = {
    "state": ("x = 20\nx + 22", "42\n"),
    "files": ("open('f', 'w').write('hi'); open('f').read()", "'hi'\n"),
    "copies": ("import shutil; shutil.copy2('f', 'g')", "'g'\n"),
    "room for a file": (
        "f = os.open('r', os.O_RDWR | os.O_CREAT); os.posix_fallocate(f, 0, 9999); "
        "os.fstat(f).st_size",
        "9999\n",
    ),
    "temporary files": ("import tempfile; tempfile.TemporaryFile().write(b'x')", "1\n"),
    "threads": (
        "import threading; t = threading.Thread(target=print, args=('t',)); t.start(); t.join()",
        "t\n",
    ),
    "asyncio": ("import asyncio; asyncio.run(asyncio.sleep(0, 'a'))", "'a'\n"),
    "sqlite3": ("import sqlite3; sqlite3.connect('d').execute('select 1').fetchone()", "(1,)\n"),
}


def run(user: Outsider | None, places: Places, abi: int, codes: list[str]) -> list[Ran]:
    if user is None:
        how = interpreter(abi=abi, readable=[str(places.library)])
        return asyncio.run(ran(places.inside, how, codes))
    asked = {"abi": abi, "readable": [str(places.library)], "codes": codes}
    return [Ran(*each) for each in ran_as(user, places.inside, asked)]


@pytest.mark.parametrize("abi", [1, 2, 4, 6])
def test_nothing_beyond_its_directory_is_harmed(
    abi: int, user: Outsider | None, places: Places
) -> None:
    refused, true = refused_codes(places), true_codes(places)
    useful = [code for code, _ in USEFUL.values()]
    codes = [HELPERS, *refused.values(), *true.values(), *useful]
    done = iter(run(user, places, abi, codes))
    assert (helped := next(done)).fine, helped
    for name in refused:
        one = next(done)
        assert not one.fine, name
        assert "Error" in one.text, (name, one.text)
        assert "secret" not in one.text.replace(str(places.secret), ""), name
    for name in true:
        one = next(done)
        assert one.fine, (name, one.text)
    for name, (_, text) in USEFUL.items():
        assert next(done).text == text, name
    places.check_unharmed()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are of x86_64")
def test_a_unix_socket_is_out_of_reach_by_every_way(tmp_path: Path) -> None:
    """Landlock does not judge a connection by path: `/run/docker.sock` would be open."""
    (tmp_path / "inside").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        server.listen()
        server.settimeout(0)
        code = f"""
import ctypes, socket, struct
address = struct.pack('H', 1) + {str(tmp_path / "sock")!r}.encode() + bytes(1)
libc = ctypes.CDLL(None, use_errno=True)
a, b = socket.socketpair()
libc.syscall(42, a.fileno(), address, len(address))
libc.syscall(44, a.fileno(), b'x', 1, 0, address, len(address))
"""
        (one,) = asyncio.run(ran(tmp_path / "inside", interpreter(), [code]))
        assert one.text == "-1\n"
        with pytest.raises(BlockingIOError):
            server.accept()
