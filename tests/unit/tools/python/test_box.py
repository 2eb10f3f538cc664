"""What code in the box cannot do, as root and as an ordinary user, with old and new Landlock."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.support.boxed import Ran, interpreter, no_box, outsider, ran, ran_as

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

LIBRARY = "library.py"
"""Beside the container's directory: code may read it."""

HELPERS = """
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
def refused(x86, arm, *arguments):
    result = libc.syscall(x86 if X86 else arm, *arguments)
    return result == -1 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS)
"""

REFUSED = {
    "the key file": "open({secret!r}).read()",
    "the key file by a symlink": "os.symlink({secret!r}, 'there'); open('there').read()",
    "the key file by a hard link": "os.link({secret!r}, 'here')",
    "a foreign directory": "os.listdir({outside!r})",
    "a write beside": "open({outside!r} + '/mine', 'w')",
    "a rename beside": "open('a', 'w').close(); os.rename('a', {outside!r} + '/a')",
    "a removal": "os.unlink({secret!r})",
    "a truncation": "os.truncate({secret!r}, 0)",
    "a truncation of what may be read": "os.open({library!r}, os.O_RDONLY | os.O_TRUNC)",
    "the server's environment": "open('/proc/{parent}/environ').read()",
    "the server's memory": "open('/proc/{parent}/mem', 'rb')",
    "passwords": "open('/etc/shadow').read()",
    "a socket": "import socket; socket.socket()",
    "a signal": "os.kill({parent}, 0)",
    "a signal to a group": "os.killpg(os.getpgid({parent}), 0)",
    "a signal by a descriptor": "import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, {parent})",
    "limits of the server": "import resource; resource.prlimit({parent}, resource.RLIMIT_CPU)",
    "its own limits": "import resource; m = 2**40; resource.setrlimit(resource.RLIMIT_AS, (m, m))",
    "a fork": "os.fork()",
    "a program": "os.execv('/bin/true', ['true'])",
    "a child": "import subprocess; subprocess.run(['/bin/true'])",
    "a session": "os.setsid()",
    "memory that no limit counts": "os.memfd_create('x')",
    "3 GB": "bytearray(3 * 2**30)",
    "a file of 100 MB": "open('big', 'wb').write(bytes(100 * 2**20))",
    "a root of its own": "os.chroot('.')",
    "another user": "os.setuid(65534 if os.getuid() == 0 else 0)",
    "a device": "open('/dev/mem', 'rb')",
    "datagrams": "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
}
"""Each raises. Were the box broken, only what is the test's own would be harmed."""

TRUE = {
    "vfork": "refused(58, 9999)",
    "clone": "refused(56, 220, 17, 0, 0, 0, 0)",
    "clone3": "refused(435, 435, 0, 0)",
    "unshare": "refused(272, 97, 0x10000000)",
    "connect": "refused(42, 203, 0, 0, 0)",
    "sendmsg": "refused(46, 211, 0, 0, 0)",
    "ptrace": "refused(101, 117, 16, {parent}, 0, 0)",
    "process_vm_readv": "refused(310, 270, {parent}, 0, 0, 0, 0, 0)",
    "bpf": "refused(321, 280, 0, 0, 0)",
    "io_uring_setup": "refused(425, 425, 1, 0)",
    "keyctl": "refused(250, 219, 0, 0)",
    "shmget": "refused(29, 194, 0, 4096, 0o1600)",
    "setpriority": "refused(141, 140, 0, {parent}, 19)",
    "sched_setaffinity": "refused(203, 122, {parent}, 8, b'\\1' + bytes(7))",
    "pidfd_open": "refused(434, 434, {parent}, 0)",
    "mount": "refused(165, 40, 0, 0, 0, 0, 0)",
    "timer_create": "refused(222, 107, 0, 0, 0)",
    "no word of the server": "'SERVER_SECRET' not in os.environ",
    "chmod does nothing": "os.chmod({secret!r}, 0o777) is None",
    "chown does nothing": "os.chown({secret!r}, 1, 1) is None",
    "utime does nothing": "os.utime({secret!r}, (1, 1)) is None",
}
"""Each is true."""

USEFUL = {
    "state": ("x = 20\nx + 22", "42\n"),
    "files": ("open('f', 'w').write('hi'); open('f').read()", "'hi'\n"),
    "copies": ("import shutil; shutil.copy2('f', 'g')", "'g'\n"),
    "temporary files": ("import tempfile; tempfile.TemporaryFile().write(b'x')", "1\n"),
    "threads": (
        "import threading; t = threading.Thread(target=print, args=('t',)); t.start(); t.join()",
        "t\n",
    ),
    "asyncio": ("import asyncio; asyncio.run(asyncio.sleep(0, 'a'))", "'a'\n"),
    "sqlite3": ("import sqlite3; sqlite3.connect('d').execute('select 1').fetchone()", "(1,)\n"),
}


@cache
def outsider_here() -> tuple[str, int] | None:
    return outsider()


@pytest.fixture(params=["server's user", "nobody"])
def user(request: pytest.FixtureRequest) -> tuple[str, int] | None:
    """The interpreter and the uid of an outsider, or nothing for the user that runs the tests."""
    if request.param != "nobody":
        return None
    found = outsider_here()
    if found is None:
        pytest.skip("the tests cannot become another user, or it has no interpreter to run")
    return found


@pytest.fixture
def places(user: tuple[str, int] | None) -> Iterator[tuple[Path, Path]]:
    """A container's directory, and one beside it that holds a secret; an outsider owns both. They
    do not stand in pytest's own directory, which every pytest that starts shuts to outsiders."""
    with TemporaryDirectory() as made:
        base = Path(made)
        inside, outside, library = base / "inside", base / "outside", base / LIBRARY
        library.write_text("readable")
        secret = outside / "seal.key"
        for path in (inside, outside):
            path.mkdir()
        secret.write_text("secret")
        secret.chmod(0o600)
        if user is not None:
            for path in (inside, outside, secret, library):
                os.chown(path, user[1], user[1])
            base.chmod(0o711)
        yield inside, outside


def run(user: tuple[str, int] | None, inside: Path, abi: int, codes: list[str]) -> list[Ran]:
    if user is None:
        how = interpreter(abi=abi, readable=[str(inside.parent / LIBRARY)])
        return asyncio.run(ran(inside, how, codes))
    return ran_as(user[1], user[0], inside, abi, [str(inside.parent / LIBRARY)], codes)


@pytest.mark.parametrize("abi", [1, 2, 4, 6])
def test_nothing_beyond_its_directory_is_harmed(
    abi: int, user: tuple[str, int] | None, places: tuple[Path, Path]
) -> None:
    inside, outside = places
    secret = outside / "seal.key"
    before = secret.stat()
    library = outside.parent / LIBRARY
    known = {
        "secret": str(secret),
        "outside": str(outside),
        "library": str(library),
        "parent": os.getpid(),
    }
    refused = [code.format(**known) for code in REFUSED.values()]
    true = [f"assert {code.format(**known)}" for code in TRUE.values()]
    useful = [code for code, _ in USEFUL.values()]
    done = run(user, inside, abi, [HELPERS, *refused, *true, *useful])
    assert done[0].fine, done[0]
    done = done[1:]
    for name, one in zip(REFUSED, done, strict=False):
        assert not one.fine, name
        assert "Error" in one.text, (name, one.text)
        assert "secret" not in one.text.replace(str(secret), ""), name
    for name, one in zip(TRUE, done[len(REFUSED) :], strict=False):
        assert one.fine, (name, one.text)
    for (name, (_, text)), one in zip(
        USEFUL.items(), done[len(REFUSED) + len(TRUE) :], strict=True
    ):
        assert one.text == text, (name, one.text)
    after = secret.stat()
    assert (secret.read_text(), library.read_text()) == ("secret", "readable")
    assert (after.st_mode, after.st_uid, after.st_mtime_ns, after.st_nlink) == (
        before.st_mode,
        before.st_uid,
        before.st_mtime_ns,
        before.st_nlink,
    )
    assert sorted(path.name for path in outside.iterdir()) == ["seal.key"]


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
