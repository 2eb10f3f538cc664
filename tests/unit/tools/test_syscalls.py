"""The filter of system calls, run by an interpreter of BPF: for aarch64 too, which is not here."""

from __future__ import annotations

import errno
import struct

import pytest

from trt_responses.tools.syscalls import (
    ABSENT,
    ALLOW,
    ALLOWED,
    ASK,
    ERRNO,
    IN_TREES,
    KILL,
    MACHINES,
    PRETENDED,
    UNSUPPORTED,
    instructions,
    packed,
)

PID = 4321
every_machine = pytest.mark.parametrize("machine", MACHINES)


def verdict(
    machine: str,
    number: int,
    *arguments: int,
    audit: int | None = None,
    pid: int | None = PID,
) -> int:
    """What the filter says to a call: that of one process, or, without its number, of a tree."""
    data = struct.pack(
        "<IIQ6Q",
        number,
        MACHINES[machine].audit if audit is None else audit,
        0,
        *(list(arguments) + [0] * 6)[:6],
    )
    program = instructions(machine, pid)
    accumulator = place = 0
    while True:
        operation, if_true, if_false, value = program[place]
        place += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                place += if_true if accumulator == value else if_false
            case 0x35:
                place += if_true if accumulator >= value else if_false
            case 0x45:
                place += if_true if accumulator & value else if_false
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
            case _:
                raise AssertionError(f"no such operation: {operation:#x}")


def number_of(name: str, machine: str, table: str = ALLOWED) -> int | None:
    row = next(row for row in table.split() if row.startswith(f"{name}:"))
    number = row.split(":")[MACHINES[machine].column]
    return None if number == "-" else int(number)


@every_machine
def test_each_table_is_answered_as_it_says(machine: str) -> None:
    for table, expected in (
        (ALLOWED, ALLOW),
        (PRETENDED, ERRNO),
        (UNSUPPORTED, ERRNO | errno.ENOTSUP),
        (ABSENT, ERRNO | errno.ENOSYS),
    ):
        for row in table.split():
            number = row.split(":")[MACHINES[machine].column]
            if number != "-":
                assert verdict(machine, int(number)) == expected, row


@every_machine
def test_what_is_not_named_is_refused(machine: str) -> None:
    named = {
        row.split(":")[MACHINES[machine].column]
        for table in (ALLOWED, PRETENDED, UNSUPPORTED, ABSENT)
        for row in table.split()
    }
    guarded = (
        {56, 2, 257, 53, 44, 62, 200, 234, 302, 157, 72, 16}
        if machine == "x86_64"
        else {*(220, 56, 199, 206, 129, 130, 131, 261, 167, 25, 29)}
    )
    for number in range(600):
        if str(number) not in named and number not in guarded:
            assert verdict(machine, number) == ERRNO | errno.EPERM, number


@every_machine
def test_a_foreign_table_of_numbers_kills(machine: str) -> None:
    assert verdict(machine, 0, audit=0x40000003) == KILL
    if machine == "x86_64":
        assert verdict(machine, 0x40000000) == KILL


@pytest.mark.parametrize(
    ("name", "x86", "arm", "arguments", "allowed"),
    [
        ("a thread", 56, 220, (0x3D0F00,), True),
        ("a process", 56, 220, (17,), False),
        ("a thread in a namespace", 56, 220, (0x10000 | 0x20000,), False),
        ("a file to write", 257, 56, (0, 0, 0o1101), True),
        ("a truncation in disguise", 257, 56, (0, 0, 0o1000), False),
        ("a pair of streams", 53, 199, (1, 1 | 0o2000000), True),
        ("a pair of datagrams", 53, 199, (1, 2), False),
        ("a pair of another family", 53, 199, (2, 1), False),
        ("sending on a pair", 44, 206, (3, 0, 1, 0, 0), True),
        ("sending to an address", 44, 206, (3, 0, 1, 0, 1), False),
        ("sending to a high address", 44, 206, (3, 0, 1, 0, 1 << 32), False),
        ("its own signal", 62, 129, (PID, 9), True),
        ("another's signal", 62, 129, (1, 9), False),
        ("everybody's signal", 62, 129, (2**64 - 1, 9), False),
        ("its group's signal", 62, 129, (0, 9), False),
        ("its own limits", 302, 261, (0,), True),
        ("another's limits", 302, 261, (1,), False),
        ("its thread's name", 157, 167, (15,), True),
        ("no other prctl", 157, 167, (4,), False),
        ("flags of a descriptor", 72, 25, (0, 2), True),
        ("the owner of a descriptor", 72, 25, (0, 8), False),
        ("the signal of a descriptor", 72, 25, (0, 10), False),
        ("a terminal's size", 16, 29, (0, 0x5413), True),
        ("a terminal's input", 16, 29, (0, 0x5412), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_decide(
    name: str, x86: int, arm: int, arguments: tuple[int, ...], allowed: bool
) -> None:
    for machine, number in (("x86_64", x86), ("aarch64", arm)):
        expected = ALLOW if allowed else ERRNO | errno.EPERM
        assert verdict(machine, number, *arguments) == expected, (name, machine)


@pytest.mark.parametrize(
    ("name", "x86", "arm", "arguments", "expected"),
    [
        ("a program", 59, 221, (), ALLOW),
        ("a process", 56, 220, (17,), ASK),
        ("a thread", 56, 220, (0x3D0F00,), ASK),
        ("a process in a namespace", 56, 220, (17 | 0x20000000,), ERRNO | errno.EPERM),
        ("a signal", 62, 129, (1, 9), ASK),
        ("a thread's signal", 234, 131, (1, 1, 9), ASK),
        ("a thread's signal without its process", 200, 130, (PID, 9), ERRNO | errno.EPERM),
        ("a group", 109, 154, (0, 0), ERRNO | errno.EPERM),
        ("a session", 112, 157, (), ERRNO | errno.EPERM),
        ("its own limits", 302, 261, (0,), ALLOW),
        ("another's limits", 302, 261, (PID,), ERRNO | errno.EPERM),
        ("being traced", 101, 117, (0,), ERRNO | errno.EPERM),
        ("a descriptor that is sent", 46, 211, (), ERRNO | errno.EPERM),
        ("another listener", 317, 277, (1, 8), ERRNO | errno.EPERM),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tree_asks_before_it_grows_and_signals(
    name: str, x86: int, arm: int, arguments: tuple[int, ...], expected: int
) -> None:
    for machine, number in (("x86_64", x86), ("aarch64", arm)):
        assert verdict(machine, number, *arguments, pid=None) == expected, (name, machine)


@every_machine
def test_a_tree_may_do_what_one_process_may_and_little_more(machine: str) -> None:
    more = {
        row.split(":")[MACHINES[machine].column]
        for row in ("fork:57:-", "vfork:58:-", *IN_TREES.split())
    }
    for number in range(600):
        one, tree = verdict(machine, number), verdict(machine, number, pid=None)
        assert one == tree or str(number) in more or tree in (ASK, ERRNO | errno.EPERM), number


@every_machine
def test_the_kernel_takes_programs_of_this_length(machine: str) -> None:
    program = instructions(machine, PID)
    assert len(program) < 4096
    assert all(if_true < 256 and if_false < 256 for _, if_true, if_false, _ in program)
    assert len(packed(program)) == 8 * len(program)
