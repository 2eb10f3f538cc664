"""The system calls that sandboxed code may make, as a seccomp filter in BPF.

An allow-list: other calls, including those of newer kernels, fail with EPERM. Runs in the sandboxed
process before any of the model's code, with the standard library only.
"""

from __future__ import annotations

import errno
import struct
from typing import NamedTuple

ALLOWED = """
    read:0:63 write:1:64 close:3:57 close_range:436:436 stat:4:- fstat:5:80 lstat:6:-
    newfstatat:262:79 statx:332:291 lseek:8:62 mmap:9:222 mprotect:10:226 munmap:11:215
    mremap:25:216 madvise:28:233 brk:12:214 mincore:27:232 msync:26:227 rt_sigaction:13:134
    rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigpending:127:136 rt_sigtimedwait:128:137
    rt_sigsuspend:130:133 sigaltstack:131:132 pread64:17:67 pwrite64:18:68 readv:19:65
    writev:20:66 preadv:295:69 pwritev:296:70 preadv2:327:286 pwritev2:328:287 access:21:-
    faccessat:269:48 faccessat2:439:439 creat:85:- pipe:22:- pipe2:293:59 select:23:-
    pselect6:270:72
    poll:7:- ppoll:271:73 sched_yield:24:124 dup:32:23 dup2:33:- dup3:292:24
    nanosleep:35:101 clock_nanosleep:230:115 getitimer:36:102 setitimer:38:103 alarm:37:-
    pause:34:- getpid:39:172 gettid:186:178 getppid:110:173 getuid:102:174 geteuid:107:175
    getgid:104:176 getegid:108:177 getresuid:118:148 getresgid:120:150 getgroups:115:158
    getpgid:121:155 getpgrp:111:- getsid:124:156 exit:60:93 exit_group:231:94 wait4:61:260
    waitid:247:95 uname:63:160 flock:73:32 fsync:74:82 fdatasync:75:83
    sync_file_range:277:84 ftruncate:77:46 fadvise64:221:223 getdents:78:-
    getdents64:217:61 getcwd:79:17 chdir:80:49 fchdir:81:50 rename:82:- renameat:264:38
    renameat2:316:276 mkdir:83:- mkdirat:258:34 rmdir:84:- link:86:- linkat:265:37
    unlink:87:- unlinkat:263:35 symlink:88:- symlinkat:266:36 readlink:89:-
    readlinkat:267:78 umask:95:166 gettimeofday:96:169 time:201:- times:100:153
    getrusage:98:165 sysinfo:99:179 clock_gettime:228:113 clock_getres:229:114
    getrandom:318:278 getcpu:309:168 sched_getaffinity:204:123 sched_getscheduler:145:120
    sched_getparam:143:121 sched_get_priority_max:146:125 sched_get_priority_min:147:126
    getpriority:140:141 futex:202:98 set_robust_list:273:99 get_robust_list:274:100
    set_tid_address:218:96 rseq:334:293 membarrier:324:283 arch_prctl:158:-
    restart_syscall:219:128 getrlimit:97:163 epoll_create:213:- epoll_create1:291:20
    epoll_ctl:233:21 epoll_wait:232:- epoll_pwait:281:22 epoll_pwait2:441:441 eventfd:284:-
    eventfd2:290:19 timerfd_create:283:85 timerfd_settime:286:86 timerfd_gettime:287:87
    signalfd4:289:74 sendfile:40:71 copy_file_range:326:285 splice:275:76 tee:276:77
    statfs:137:43 fstatfs:138:44 recvfrom:45:207 recvmsg:47:212 shutdown:48:210
    getsockopt:55:209 setsockopt:54:208 getsockname:51:204 getpeername:52:205
    recvmmsg:299:243
"""
"""Name, number on x86_64, number on aarch64. None of them reaches another process, a named socket,
or a file except by a path that Landlock judges. `truncate` by path is missing: Landlock of older
kernels does not judge it."""

PRETENDED = """
    chmod:90:- fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92:- fchown:93:55
    lchown:94:- fchownat:260:54 utime:132:- utimes:235:- futimesat:261:- utimensat:280:88
"""
"""Calls that return 0 and do nothing: Landlock does not judge them, and copying files needs
them."""

UNSUPPORTED = """
    setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10
    listxattr:194:11 llistxattr:195:12 flistxattr:196:13
    removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16 fallocate:285:47
"""
"""Calls that fail with EOPNOTSUPP. `fallocate` could take gigabytes of disk in a millisecond,
before a check; without it the C library writes, which is slow enough."""
ABSENT = "clone3:435:435 openat2:437:437"
"""Calls that fail with ENOSYS: the C library then uses older calls, whose arguments a filter can
read."""
IN_TREES = """
    execve:59:221 timer_create:222:107 timer_settime:223:110 timer_gettime:224:108
    timer_getoverrun:225:109 timer_delete:226:111
"""
"""Further calls for process trees: a new program keeps the filter, and a timer signals only its own
process."""

JUMP_EQUAL, JUMP_LEAST, JUMP_ANY, AND, LOAD, RETURN = 0x15, 0x35, 0x45, 0x54, 0x20, 0x06
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENTS = 0, 4, 16
ALLOW, ERRNO, KILL, ASK = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
"""`ASK` lets the listening process decide."""
X32 = 0x40000000

CLONE_THREAD, CLONE_NEW = 0x00010000, 0x7E020000
O_ACCMODE_TRUNC, O_TRUNC = 0o1003, 0o1000
AF_UNIX, SOCK_STREAM, SOCK_TYPE = 1, 1, 0xF
PR_SET_NAME = 15
FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
"""Allowed `fcntl` commands: descriptors, flags and locks, but not F_SETOWN, which can signal
another process."""
IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Allowed `ioctl` requests: terminals and sizes, blocking and close-on-exec."""


class Machine(NamedTuple):
    """A processor architecture."""

    column: int
    audit: int


MACHINES = {"x86_64": Machine(1, 0xC000003E), "aarch64": Machine(2, 0xC00000B7)}

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, value."""
TO_ALLOW: Instruction = (RETURN, 0, 0, ALLOW)
TO_ASK: Instruction = (RETURN, 0, 0, ASK)


def _load(argument: int, *, high: bool = False) -> Instruction:
    return (LOAD, 0, 0, AT_ARGUMENTS + 8 * argument + 4 * high)


def _one_of(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    checks = [(JUMP_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load(argument), *checks, _deny(), TO_ALLOW]


def _deny(error: int = errno.EPERM) -> Instruction:
    return (RETURN, 0, 0, ERRNO | error)


def _of_one_process(pid: int) -> list[tuple[str, list[Instruction]]]:
    """Rules for one process: threads but no processes, and signals only to itself."""
    new_thread = [
        _load(0),
        (JUMP_ANY, 0, 1, CLONE_NEW),
        _deny(),
        (JUMP_ANY, 1, 0, CLONE_THREAD),
        _deny(),
        TO_ALLOW,
    ]
    return [
        ("clone:56:220", new_thread),
        ("kill:62:129", _one_of(0, (pid,))),
        ("tkill:200:130", _one_of(0, (pid,))),
        ("tgkill:234:131", _one_of(0, (pid,))),
        ("prlimit64:302:261", _one_of(0, (0, pid))),
    ]


def _of_a_tree() -> list[tuple[str, list[Instruction]]]:
    """Rules for a tree: the listener counts new processes and judges targets of signals. No process
    can leave the group, so that a signal to the group reaches all."""
    return [
        ("clone:56:220", [_load(0), (JUMP_ANY, 0, 1, CLONE_NEW), _deny(), TO_ASK]),
        *((row, [TO_ASK]) for row in ("fork:57:-", "vfork:58:-", "kill:62:129", "tgkill:234:131")),
        ("prlimit64:302:261", _one_of(0, (0,))),
    ]


def _guarded(pid: int | None) -> list[tuple[str, list[Instruction]]]:
    """Calls judged by their arguments; each block ends with a return."""
    no_truncation = [(AND, 0, 0, O_ACCMODE_TRUNC), (JUMP_EQUAL, 0, 1, O_TRUNC), _deny(), TO_ALLOW]
    stream_pair = [
        _load(0),
        (JUMP_EQUAL, 1, 0, AF_UNIX),
        _deny(),
        _load(1),
        (AND, 0, 0, SOCK_TYPE),
        (JUMP_EQUAL, 1, 0, SOCK_STREAM),
        _deny(),
        TO_ALLOW,
    ]
    no_address = [
        _load(4),
        (JUMP_EQUAL, 1, 0, 0),
        _deny(),
        _load(4, high=True),
        (JUMP_EQUAL, 1, 0, 0),
        _deny(),
        TO_ALLOW,
    ]
    return [
        *(_of_a_tree() if pid is None else _of_one_process(pid)),
        ("open:2:-", [_load(1), *no_truncation]),
        ("openat:257:56", [_load(2), *no_truncation]),
        ("socketpair:53:199", stream_pair),
        ("sendto:44:206", no_address),
        ("prctl:157:167", _one_of(0, (PR_SET_NAME,))),
        ("fcntl:72:25", _one_of(1, FCNTL)),
        ("ioctl:16:29", _one_of(1, IOCTL)),
    ]


def instructions(machine: str, pid: int | None) -> list[Instruction]:
    """The filter for one process, or, without `pid`, for a process tree with a listener."""
    column, audit = MACHINES[machine]
    program: list[Instruction] = [
        (LOAD, 0, 0, AT_ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, AT_NUMBER),
    ]
    if machine == "x86_64":  # its other table of numbers
        program += [(JUMP_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)]
    for row, block in _guarded(pid):
        program += _block(row, column, block)
    for table, answer in (
        (ALLOWED, TO_ALLOW),
        ("" if pid is not None else IN_TREES, TO_ALLOW),
        (PRETENDED, _deny(0)),
        (UNSUPPORTED, _deny(errno.ENOTSUP)),
        (ABSENT, _deny(errno.ENOSYS)),
    ):
        for row in table.split():
            program += _block(row, column, [answer])
    return [*program, _deny()]


def _block(row: str, column: int, block: list[Instruction]) -> list[Instruction]:
    number = row.split(":")[column]
    return [] if number == "-" else [(JUMP_EQUAL, 0, len(block), int(number)), *block]


def packed(program: list[Instruction]) -> bytes:
    """The program in the kernel's format."""
    return b"".join(struct.pack("=HBBI", *each) for each in program)
