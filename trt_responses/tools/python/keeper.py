"""The keeper: runs one of the model's commands in a sandbox and controls its process tree.

The command and its descendants are one process group that their seccomp filter does not let them
leave, so a signal to the group reaches them all. The keeper is outside the group, adopts orphans,
and answers the filter's requests: whether another process may start, and whether a signal's target
is allowed. It kills the group when the command ends, uses too much memory, or the server closes its
pipe or dies. It reports the status when the whole tree is gone.
Runs under the server's own interpreter before any of the model's input, with the standard library
only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from trt_responses.children import die_with
from trt_responses.tools import box

LOOK_MS = 100
"""Interval of memory checks."""
NICE = 10
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RECEIVE, SEND, ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
"""ioctl numbers of a seccomp listener, from `linux/seccomp.h`."""
QUESTION, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
CONTINUE = 1
SIGNALS = {"x86_64": (62, 234), "aarch64": (129, 131)}
"""System call numbers of `kill` and `tgkill`; any other request starts a process or a thread."""


class Member(NamedTuple):
    """A process of the group."""

    pid: int
    tasks: int
    resident_bytes: int


def main() -> None:
    """Run the command that the server sends, and report its status. The argument is a
    descriptor."""
    results = int(sys.argv[1])
    request = json.loads(_line(0))
    box.adopt_orphans()
    ours, theirs = socket.socketpair()
    group = os.fork()
    if not group:
        os.close(results)
        ours.close()
        _become(request, theirs)
    theirs.close()
    _forget_output()
    why, listeners, _, _ = socket.recv_fds(ours, 4096, 1)
    if not listeners:
        os.waitpid(group, 0)
        _write(results, {"why": why.decode() or "the box could not be made"})
        return
    _write(results, {"group": group})
    tree = Tree(group, listeners[0], request["processes"])
    ours.send(b"go")
    ended_for = watched(tree, request["memory_bytes"])
    _write(results, {"status": tree.end(), "ended_for": ended_for})


def watched(tree: Tree, memory_bytes: int) -> str | None:
    """Wait until the command ends (None), or return why it must be killed."""
    leader = os.pidfd_open(tree.group)
    poll = select.poll()
    for descriptor in (0, tree.listener, leader):
        poll.register(descriptor, select.POLLIN)
    looked_s = time.monotonic()
    while True:
        ready = dict(poll.poll(LOOK_MS))
        if 0 in ready and not os.read(0, 4096):
            return "server"
        if leader in ready:
            return None
        if ready.get(tree.listener, 0) & select.POLLIN:
            tree.answer()
        if time.monotonic() - looked_s > LOOK_MS / 1000:
            looked_s = time.monotonic()
            if sum(each.resident_bytes for each in members(tree.group)) > memory_bytes:
                return "memory"


class Tree:
    """The command's process tree."""

    def __init__(self, group: int, listener: int, most: int) -> None:
        self.group = group
        self.listener = listener
        self._most = most
        self._counted = self._granted = 0

    def answer(self) -> None:
        """Answer one request of the filter."""
        question = bytearray(QUESTION.size)
        try:
            fcntl.ioctl(self.listener, RECEIVE, question)
        except OSError:  # the requesting process has ended
            return
        number, asking, _, call, _, _, *arguments = QUESTION.unpack(question)
        kill, tgkill = SIGNALS[os.uname().machine]
        if call == kill:
            verdict = self._signal(_signed(arguments[0]), _signed(arguments[1]))
        elif call == tgkill:
            verdict = self._own(asking, arguments[0], number)
        else:
            verdict = None if self._may_begin() else errno.EAGAIN
        answer = (number, 0, -(verdict or 0), CONTINUE if verdict is None else 0)
        with suppress(OSError):  # the requesting process has ended
            fcntl.ioctl(self.listener, SEND, ANSWER.pack(*answer))

    def end(self) -> int:
        """Kill the tree and wait for all of it. Returns the command's status."""
        os.close(self.listener)
        os.killpg(self.group, signal.SIGKILL)  # not waited for yet, so its number is not reused
        ended = 0
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return ended
            if pid == self.group:
                ended = os.waitstatus_to_exitcode(status)

    def _may_begin(self) -> bool:
        """Whether another process may start. Counts again only near the limit, since that is
        slow."""
        if self._counted + self._granted >= self._most:
            self._counted = sum(each.tasks for each in members(self.group))
            self._granted = 0
        self._granted += 1
        return self._counted + self._granted <= self._most

    def _signal(self, target: int, number: int) -> int | None:
        """Send a signal to a process of the group. Returns an error number, 0, or None to let the
        kernel send it, which is safe only for the group itself: process ids may be reused."""
        if target in (0, -self.group):
            return None
        if target < 0:
            return errno.EPERM
        try:
            process = os.pidfd_open(target)
        except OSError:
            return errno.ESRCH
        try:
            if _group_of(target) != self.group:
                return errno.EPERM
            signal.pidfd_send_signal(process, number)
        except OSError as fault:
            return fault.errno or errno.EPERM
        finally:
            os.close(process)
        return 0

    def _own(self, asking: int, target: int, number: int) -> int | None:
        """Judge a signal to a thread: allowed within the requesting process, which lives during its
        request."""
        try:
            with open(f"/proc/{asking}/status") as status:
                mine = next(line.split()[1] for line in status if line.startswith("Tgid:"))
            fcntl.ioctl(self.listener, ID_VALID, struct.pack("=Q", number))
        except OSError:
            return errno.ESRCH
        return None if int(mine) == target else errno.EPERM


def members(group: int) -> list[Member]:
    """The processes of a group."""
    return [
        Member(int(name), int(facts[17]), int(facts[21]) * PAGE_BYTES)
        for name in os.listdir("/proc")
        if name.isdigit() and (facts := _facts(name)) is not None and int(facts[2]) == group
    ]


def _group_of(pid: int) -> int | None:
    facts = _facts(str(pid))
    return None if facts is None else int(facts[2])


def _facts(pid: str) -> list[str] | None:
    """The fields of `/proc/PID/stat` after the name."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return None


def _become(request: dict[str, Any], keeper: socket.socket) -> NoReturn:
    """Enter the sandbox, wait for the keeper, and become the command."""
    try:
        die_with(os.getppid())
        os.setsid()
        os.nice(NICE)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # the first process to be killed when memory runs out
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        _shut_in(request, keeper)
        keeper.recv(2)
        os.chdir(request["workdir"])
        os.execvpe(request["cmd"][0], request["cmd"], request["env"])
    except box.NoBox as fault:
        keeper.send(str(fault).encode())
    except (OSError, ValueError) as fault:
        os.write(2, f"{request['cmd'][0]}: {fault}\n".encode(errors="replace"))
        os._exit(127 if isinstance(fault, FileNotFoundError) else 126)
    finally:
        os._exit(125)


def _shut_in(request: dict[str, Any], keeper: socket.socket) -> None:
    """Install the filter and send its listener to the keeper. The filter forbids this thread to
    send descriptors, so another thread, without the filter, does it."""
    ready: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def send() -> None:
        if (listener := ready.get()) is not None:
            socket.send_fds(keeper, [b"listener"], [listener])

    sending = threading.Thread(target=send)
    sending.start()
    limits = box.Limits(request["address_bytes"], request["file_bytes"], request["open_files"])
    listener = None
    try:
        listener = box.shut_tree(
            request["directory"], request["programs"], limits, at_most_abi=request["abi"]
        )
    finally:
        ready.put(listener)
        sending.join()
    os.close(listener)


def _line(pipe: int) -> bytes:
    """The first line of a pipe."""
    read = bytearray()
    while not read.endswith(b"\n"):
        part = os.read(pipe, 65536)
        if not part:
            sys.exit()
        read += part
    return bytes(read)


def _forget_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


def _signed(argument: int) -> int:
    """A 64-bit argument as the C `int` of a system call."""
    return int(struct.unpack("=i", struct.pack("=I", argument & 0xFFFFFFFF))[0])


def _write(results: int, value: object) -> None:
    with suppress(BrokenPipeError):
        os.write(results, json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
