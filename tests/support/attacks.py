"""Attacks on what holds code in: what is to be refused, and what is to be true inside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
    "room without writing": "libc.syscall(285 if X86 else 47, os.open('r', 66), 0, 0, 4096) == -1"
    " and ctypes.get_errno() == errno.ENOTSUP",
    "no word of the server": "'SERVER_SECRET' not in os.environ",
    "chmod does nothing": "os.chmod({secret!r}, 0o777) is None",
    "chown does nothing": "os.chown({secret!r}, 1, 1) is None",
    "utime does nothing": "os.utime({secret!r}, (1, 1)) is None",
}
"""Each is true."""


class Places:
    """A container's directory, and one beside it that holds a secret; an outsider owns both."""

    def __init__(self, base: Path, owner: int | None) -> None:
        self.inside, self.outside, self.library = base / "inside", base / "outside", base / LIBRARY
        self.secret = self.outside / "seal.key"
        for path in (self.inside, self.outside):
            path.mkdir()
        self.library.write_text("readable")
        self.secret.write_text("secret")
        self.secret.chmod(0o600)
        if owner is not None:
            for path in (self.inside, self.outside, self.secret, self.library):
                os.chown(path, owner, owner)
            base.chmod(0o711)
        self._before = self._facts()

    @property
    def named(self) -> Mapping[str, object]:
        """What the attacks are aimed at."""
        return {
            "secret": str(self.secret),
            "outside": str(self.outside),
            "library": str(self.library),
            "parent": os.getpid(),
        }

    def check_unharmed(self) -> None:
        assert (self.secret.read_text(), self.library.read_text()) == ("secret", "readable")
        assert self._facts() == self._before
        assert [path.name for path in self.outside.iterdir()] == ["seal.key"]

    def _facts(self) -> tuple[int, ...]:
        found = self.secret.stat()
        return found.st_mode, found.st_uid, found.st_mtime_ns, found.st_nlink


def refused_codes(places: Places) -> dict[str, str]:
    """Each raises."""
    return {name: code.format(**places.named) for name, code in REFUSED.items()}


def true_codes(places: Places) -> dict[str, str]:
    """Each ends well, behind `HELPERS`."""
    return {name: f"assert {code.format(**places.named)}" for name, code in TRUE.items()}
