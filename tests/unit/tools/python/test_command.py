"""Commands in the box: what they may do, what they cannot, and what is left of them: nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import until
from tests.support.attacks import HELPERS, Places, refused_codes, true_codes
from tests.support.boxed import MIB, Outsider, commanded, no_box, processes_in, ran_as, shell
from tests.support.story import story
from trt_responses.tools.python.command import Command, Finished

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

OF_ONE_PROCESS = ("a fork", "a program", "a child", "vfork", "clone", "timer_create")
"""What a command may do, and the model's Python may not."""
EACH = """
import json, sys
told = {{}}
shared = {{}}
exec({helpers!r}, shared)
for name, code in {codes!r}.items():
    try:
        exec(code, shared)
        told[name] = None
    except BaseException as fault:
        told[name] = type(fault).__name__
print(json.dumps(told))
"""


def run(user: Outsider | None, places: Places, abi: int, *cmd: str) -> Finished:
    readable = [str(places.library)]
    if user is None:
        return asyncio.run(commanded(places.inside, shell(abi, readable), *cmd))
    asked = {"abi": abi, "readable": readable, "commands": [cmd]}
    return Finished(*ran_as(user, places.inside, asked)[0])


@pytest.mark.parametrize("abi", [1, 2, 4, 6])
def test_nothing_beyond_its_directory_is_harmed(
    abi: int, user: Outsider | None, places: Places
) -> None:
    refused, true = refused_codes(places), true_codes(places)
    codes = {name: c for name, c in (refused | true).items() if name not in OF_ONE_PROCESS}
    script = EACH.format(helpers=HELPERS, codes=codes)
    finished = run(user, places, abi, "python3", "-c", script)
    assert finished.status == 0, finished
    told = json.loads(finished.stdout)
    assert told.keys() == codes.keys()
    for name, fault in told.items():
        assert (fault is None) == (name in true), (name, fault)
    places.check_unharmed()


ESCAPES = """
import os, subprocess, sys, time
for how in (os.setsid, lambda: os.setpgid(0, 0), lambda: os.setpgrp()):
    try:
        how()
        print("it has left its group")
    except PermissionError:
        pass
def daemon():
    if not os.fork():
        if not os.fork():
            try:
                os.setsid()
            except OSError:
                pass
            open(f"begun{os.getpid()}", "w").close()
            time.sleep(1000)
        os._exit(0)
for _ in range(5):
    daemon()
subprocess.Popen(["sh", "-c", "trap '' TERM HUP; nohup sleep 1000 & sleep 1000"])
subprocess.Popen(["setsid", "sleep", "1000"], stderr=subprocess.DEVNULL)
while sum(name.startswith("begun") for name in os.listdir()) < 5:
    time.sleep(0.01)
print("left")
"""


@pytest.mark.parametrize("abi", [1, 6])
def test_the_whole_tree_ends_with_its_command(
    abi: int, user: Outsider | None, places: Places
) -> None:
    finished = run(user, places, abi, "python3", "-c", ESCAPES)
    assert (finished.stdout, finished.status) == ("left\n", 0), finished
    assert len(list(places.inside.glob("begun*"))) == 5
    assert processes_in(places.inside) == []


BOMB = """
import os, time
begun = 0
while True:
    try:
        if not os.fork():
            time.sleep(1000)
    except BlockingIOError:
        break
    begun += 1
print(begun)
"""


def test_processes_are_counted(user: Outsider | None, places: Places) -> None:
    finished = run(user, places, 6, "python3", "-c", BOMB)
    assert 32 < int(finished.stdout) <= 64
    assert processes_in(places.inside) == []


@pytest.mark.slow  # 2 s: until its deadline
@story
async def test_a_fork_bomb_is_harmless(tmp_path: Path) -> None:
    finished = await commanded(
        tmp_path, shell(), "bash", "-c", "b() { b | b & }; b; sleep 1000", deadline_s=2.0
    )
    assert finished.ended_for == "time"
    assert processes_in(tmp_path) == []


def test_threads_are_counted_too(tmp_path: Path) -> None:
    code = "import threading, time\ntry:\n for n in range(500):\n  "
    code += "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    code += "except RuntimeError:\n print(n, flush=True)\nimport os; os._exit(0)"
    finished = asyncio.run(
        commanded(tmp_path, shell(memory_bytes=8192 * MIB), "python3", "-c", code)
    )
    assert int(finished.stdout) <= 64


HUNGRY = """
import os, time
for _ in range(6):
    if not os.fork():
        held = bytearray(80 * 2**20)
        for at in range(0, len(held), 4096):
            held[at] = 1
        time.sleep(1000)
time.sleep(1000)
"""


def test_memory_is_counted_over_the_tree(tmp_path: Path) -> None:
    how = shell(memory_bytes=256 * MIB)
    finished = asyncio.run(commanded(tmp_path, how, "python3", "-c", HUNGRY))
    assert finished.ended_for == "memory"
    assert processes_in(tmp_path) == []


def test_signals_reach_the_tree_and_nobody_else(user: Outsider | None, places: Places) -> None:
    for script, told in (
        ("sleep 1000 & kill -TERM $!; wait $!; echo $?", "143\n"),
        ("python3 -c 'import os; os.abort()' 2>&-; echo $?", "134\n"),
        (f"kill -0 {os.getpid()} 2>&-; echo $?", "1\n"),
        ("kill -9 1 2>&-; echo $?; kill -9 -1 2>&-; echo $?", "1\n1\n"),
    ):
        assert run(user, places, 6, "bash", "-c", script).stdout == told, script
    assert run(user, places, 6, "bash", "-c", "kill -9 0").status == -signal.SIGKILL
    keeper = run(user, places, 6, "python3", "-c", "import os; os.kill(os.getppid(), 9)")
    assert (keeper.status, "PermissionError" in keeper.stderr) == (1, True)


@story
async def test_a_command_gives_its_output_apart_and_its_status(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    script = "echo out; echo err >&2; pwd; cat; exit 3"
    finished = await commanded(tmp_path, shell(), "sh", "-c", script, workdir="below")
    assert finished == Finished(f"out\n{tmp_path}/below\n", "err\n", 3, None)
    assert (await commanded(tmp_path, shell(), "no-such-program")).status == 127
    assert (await commanded(tmp_path, shell(), "/etc/passwd")).status == 126
    assert (await commanded(tmp_path, shell(), "ls", workdir="nowhere")).status == 127
    forged = 'for f in 3 4 5 6 7 8 9; do eval "echo \'{\\"status\\":0}\' >&$f" 2>&-; done; exit 4'
    assert (await commanded(tmp_path, shell(), "bash", "-c", forged)).status == 4


@story
async def test_long_output_is_cut_and_long_commands_are_taken(tmp_path: Path) -> None:
    finished = await commanded(
        tmp_path, shell(), "sh", "-c", "yes | head -c 50000000; echo end; : " + "x" * 100_000
    )
    assert "bytes are left out here" in finished.stdout
    assert finished.stdout.endswith("end\n")
    assert len(finished.stdout) < 70_000


@story
async def test_a_command_has_no_word_of_the_server(tmp_path: Path) -> None:
    with_env = Command(tmp_path, shell(), ["env"], {"MINE": "1"})
    try:
        told = dict(line.split("=", 1) for line in (await with_env.finished(60)).stdout.split())
    finally:
        with_env.kill()
    assert told.keys() - {"PWD"} == {
        *("PATH", "LANG", "GIT_CONFIG_NOSYSTEM", "HOME", "TMPDIR", "MINE")
    }


@pytest.mark.parametrize("victim", ["keeper", "caller"])
@story
async def test_nothing_is_left_of_a_command_that_is_broken_off(tmp_path: Path, victim: str) -> None:
    script = "(while :; do :; done) & (sleep 1000 &) ; echo > begun; while :; do :; done"
    command = Command(tmp_path, shell(), ["sh", "-c", script], {})
    running = asyncio.create_task(command.finished(600))
    await until((tmp_path / "begun").exists)
    if victim == "keeper":
        os.kill(command.keeper, signal.SIGKILL)
    else:
        running.cancel()
    await asyncio.wait((running,))
    command.kill()
    await until(lambda: not processes_in(tmp_path))
    assert running.done()
    assert running.cancelled() == (victim == "caller")


@story
async def test_a_unix_socket_is_out_of_reach(tmp_path: Path) -> None:
    """Landlock does not judge a connection by path: `/run/docker.sock` would be open."""
    (tmp_path / "inside").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        server.listen()
        server.settimeout(0)
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'sock')!r})"
        finished = await commanded(tmp_path / "inside", shell(), "python3", "-c", code)
        assert "PermissionError" in finished.stderr
        with pytest.raises(BlockingIOError):
            server.accept()
