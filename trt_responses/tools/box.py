"""Sandboxes its own process: after `shut`, the process can do no harm outside.

Landlock restricts files by path, a seccomp allow-list restricts what Landlock does not cover, and
resource limits bound memory and file size. It needs no package and no privilege, and is permanent.
Runs before any of the model's code, with the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Sequence
from typing import NamedTuple

from trt_responses.tools.syscalls import MACHINES, instructions, packed

PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 24, 36, 38
SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 8, 32
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITIES_V3, CAPABILITIES = 0x20080522, 64

EXECUTE, WRITE, READ, READ_DIRECTORY = 1, 2, 4, 8
READS = READ | READ_DIRECTORY
REFER, TRUNCATE, IOCTL = 1 << 13, 1 << 14, 1 << 15
FIRST_ABI = (1 << 13) - 1
"""The accesses that Landlock's first version handles: reading, writing, adding and removing
entries."""
NETWORK, SCOPES = 0b11, 0b11
"""TCP bind and connect; signals and abstract UNIX sockets."""
IN_DIRECTORIES = READ_DIRECTORY | REFER | sum(1 << n for n in range(4, 13))
"""Access rights that a rule for a file cannot contain."""
HIGHEST_ABI = 6
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


class Limits(NamedTuple):
    """Resource limits of one process."""

    memory_bytes: int
    file_bytes: int
    open_files: int = 256


class NoBox(Exception):
    """This machine cannot sandbox a process; the message is the reason."""


_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """The kernel's Landlock version. Raises `NoBox`."""
    if platform.system() != "Linux" or platform.machine() not in MACHINES:
        raise NoBox(f"{platform.system()} on {platform.machine()} is not supported")
    abi = _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if abi < 1:
        raise NoBox("the kernel has no Landlock, or its `lsm=` parameter disables it")
    return int(abi)


def shut(
    directory: str, readable: Sequence[str], limits: Limits, *, at_most_abi: int = HIGHEST_ABI
) -> int:
    """Sandbox this process for good: it writes in `directory` only, and reads there and in
    `readable`. Returns the Landlock version. Raises `NoBox`. `at_most_abi` is for tests."""
    abi = _confine(directory, readable, READS, limits, at_most_abi)
    _filter_calls(os.getpid())
    return abi


def shut_tree(
    directory: str, programs: Sequence[str], limits: Limits, *, at_most_abi: int = HIGHEST_ABI
) -> int:
    """Sandbox this thread, before it runs another program, and all its descendants. They read and
    run files in `programs` and in `directory`. Returns the seccomp listener: another process must
    answer its requests to start processes and send signals, or both fail.
    """
    _confine(directory, programs, READS | EXECUTE, limits, at_most_abi)
    return _filter_calls(None)


def _confine(
    directory: str, readable: Sequence[str], access: int, limits: Limits, at_most_abi: int
) -> int:
    abi = min(landlock_abi(), at_most_abi, HIGHEST_ABI)
    for which, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(which, (most, most))
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    _drop_capabilities()
    _landlock(abi, directory, readable, access)
    return abi


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that this process can wait for all."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def _drop_capabilities() -> None:
    for capability in range(CAPABILITIES):  # fails harmlessly without capabilities
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    head = struct.pack("=Ii", CAPABILITIES_V3, 0)
    none = bytes(24)
    _check(_libc.syscall(CAPSET[platform.machine()], head, none), "capset")


def _landlock(abi: int, directory: str, readable: Sequence[str], access: int) -> None:
    files = FIRST_ABI
    files |= REFER if abi >= 2 else 0
    files |= TRUNCATE if abi >= 3 else 0
    files |= IOCTL if abi >= 5 else 0
    known = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = struct.pack("=QQQ", files, NETWORK, SCOPES)[:known]
    rules = _libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    _check(rules, "landlock_create_ruleset")
    for path in readable:
        _allow(rules, path, access)
    for path in DEVICES:
        _allow(rules, path, READ | WRITE)
    _allow(rules, directory, files & ~IOCTL & (access | ~EXECUTE))
    _check(_libc.syscall(LANDLOCK_RESTRICT, rules, 0), "landlock_restrict_self")
    os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):
        access &= ~IN_DIRECTORIES
    rule = struct.pack("=Qi", access, place)
    _check(_libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0), f"landlock_add_rule {path}")
    os.close(place)


def _filter_calls(pid: int | None) -> int:
    """Install the filter of one process, or of a tree. Returns the listener of a tree."""
    machine = platform.machine()
    program = packed(instructions(machine, pid))
    program_buffer = ctypes.create_string_buffer(program, len(program))
    bpf = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(program_buffer))
    descriptor = -1
    # before Linux 5.19 a signal during the request repeats the call
    for flags in (0,) if pid is not None else (NEW_LISTENER | WAIT_KILLABLE, NEW_LISTENER):
        if descriptor < 0:
            descriptor = _libc.syscall(SECCOMP[machine], SET_MODE_FILTER, ctypes.c_uint(flags), bpf)
    _check(descriptor, "seccomp")
    return int(descriptor)


def _check(result: int, what: str) -> None:
    if result < 0:
        error = os.strerror(ctypes.get_errno())
        raise NoBox(f"{what}: {error}")
