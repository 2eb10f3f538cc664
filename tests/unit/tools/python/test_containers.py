"""Containers: state, bounds, owners, expiry, and what is left of them: nothing."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import until
from tests.support.boxed import MIB, interpreter, no_box, processes_in, shell
from tests.support.idle import watched_files
from tests.support.imports import ROOT
from tests.support.story import story
from trt_responses.errors import InvalidRequest
from trt_responses.tool import Opening, ToolCall
from trt_responses.tools.python.container import Bounds
from trt_responses.tools.python.containers import Containers
from trt_responses.tools.python.directories import ServerDirectory, Usage, remove_tree, usage
from trt_responses.tools.python.shell import ShellTool
from trt_responses.tools.python.tool import PythonTool, code_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.tool import Session
    from trt_responses.tools.python.container import Container

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")

LONG_S = 120.0


class Clock:
    """Time as a test says, and a sleep that ends when it says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.rang = asyncio.Event()

    async def sleep(self, _: float) -> None:
        await self.rang.wait()
        self.rang.clear()


def containers(parent: Path, clock: Clock | None = None, **changes: Any) -> Containers:
    bounds: dict[str, Any] = {
        "deadline_s": LONG_S,
        "disk": Usage(64 * MIB, 1000),
        "idle_s": 60.0,
        "most": 4,
        "most_per_owner": 2,
    }
    clock = clock or Clock()
    return Containers(
        parent,
        interpreter(),
        Bounds(**(bounds | changes)),
        clock_s=lambda: clock.now_s,
        sleep=clock.sleep,
    )


async def opened(tool: PythonTool, owner: str = "ann", container_id: str | None = None) -> Any:
    options = {} if container_id is None else {"container": container_id}
    return await tool.open(Opening(owner, options=options))


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def id_of(session: Session) -> str:
    return session.recipients["python"].facts["container_id"]


def process_of(container: Container) -> int:
    assert container.process is not None
    return container.process.pid


@story
async def test_state_lives_on_from_call_to_call_and_ends_with_the_server(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path / "c"))
    await tool.start()
    session = await opened(tool)
    assert (await session.call(ToolCall("x = 6"))).text == ""
    again = await opened(tool, container_id=id_of(session))
    assert (await again.call(ToolCall("x * 7"))).text == "42\n"
    found = tool.containers.get("ann", id_of(session))
    pid = process_of(found)
    await until(lambda: state_of(pid) == "T")  # it is stopped between calls
    await tool.stop()
    assert not alive(pid)
    assert list((tmp_path / "c").iterdir()) == []


@story
async def test_a_container_is_its_owners_alone(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    await session.call(ToolCall("x = 6"))
    faults = []
    for owner, asked in (("bob", id_of(session)), ("bob", "cntr_" + "0" * 48)):
        with pytest.raises(InvalidRequest) as caught:
            await opened(tool, owner, asked)
        faults.append(caught.value.message.replace(asked, "ID"))
    assert faults[0] == faults[1]
    assert tool.containers.of("bob") == []
    used = [{"container_id": id_of(session)}]
    reused = await tool.open(Opening("ann", items=used))
    assert id_of(reused) == id_of(session)
    other = await tool.open(Opening("bob", items=used))
    assert id_of(other) != id_of(session)
    await tool.stop()


@story
async def test_an_endless_call_is_ended_at_its_deadline_and_files_are_kept(tmp_path: Path) -> None:
    held = containers(tmp_path)
    tool, patient = PythonTool(held), held.bounds
    await tool.start()
    session = await opened(tool)
    await session.call(ToolCall("open('kept', 'w').write('1')"))
    held.bounds = replace(patient, deadline_s=0.05)
    answer = await session.call(ToolCall("while True: pass"))
    assert answer.failed
    assert "longer than 0.05 seconds" in answer.text
    held.bounds = patient
    assert (await session.call(ToolCall("open('kept').read()"))).text == "'1'\n"
    await tool.stop()


@story
async def test_a_call_that_is_broken_off_leaves_no_process(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    await session.call(ToolCall("0"))
    pid = process_of(tool.containers.get("ann", id_of(session)))
    endless = asyncio.create_task(session.call(ToolCall("open('begun', 'w')\nwhile True: pass")))
    directory = tool.containers.get("ann", id_of(session)).directory
    await until((directory / "begun").exists)
    endless.cancel()
    await asyncio.wait((endless,))
    assert not alive(pid)
    await tool.stop()


@story
async def test_a_wait_for_the_calls_of_others_is_said(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    await session.call(ToolCall("0"))
    busy, waits = tool.containers.get("ann", id_of(session)).busy, list[bool]()

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.append(True)
        yield
        waits.append(busy.locked())

    await busy.acquire()
    call = asyncio.create_task(session.call(ToolCall("6 * 7", waits=waiting)))
    await until(lambda: waits == [True])
    busy.release()
    assert (await call).text == "42\n"
    assert waits == [True, True]
    await tool.stop()


NAMELESS = """
import os, time
held = []
for n in range(3):
    held.append(open(str(n), "wb"))
    os.unlink(str(n))
    held[-1].write(bytes(4 * 2**20))
    held[-1].flush()
"""
MAPPED = """
import mmap, os, time
held = []
for n in range(3):
    with open(str(n), "w+b") as file:
        file.write(bytes(4 * 2**20))
        file.flush()
        os.close(next_one := os.dup(file.fileno()))
        held.append(mmap.mmap(file.fileno(), 4096))
        os.close(next_one)  # the map's own copy
    os.unlink(str(n))
"""
CHURN = """
import os, threading
def churn(n):
    while True:
        open(f"c{n}", "w").close()
        os.unlink(f"c{n}")
for n in range(2):
    threading.Thread(target=churn, args=(n,)).start()
for n in range(12):
    open(str(n), "wb").write(bytes(2**20))
"""


@pytest.mark.parametrize(
    "code",
    [
        "n = 0\nwhile True:\n    open(str(n), 'w').close(); n += 1",
        "n = 0\nwhile True:\n    open(str(n), 'wb').write(bytes(2**20)); n += 1",
        "import os\nwhile True:\n    os.mkdir('d'); os.chdir('d')",
        NAMELESS + "time.sleep(1000)",
        NAMELESS,
        MAPPED + "time.sleep(1000)",
        CHURN,
    ],
    ids=[
        *("many files", "many bytes", "deep directories", "files without a name"),
        *("before the first look", "files that are mapped alone", "beside names that vanish"),
    ],
)
@story
async def test_a_full_disk_ends_the_call_and_its_files(tmp_path: Path, code: str) -> None:
    tool = PythonTool(containers(tmp_path, disk=Usage(8 * MIB, 200)))
    await tool.start()
    session = await opened(tool)
    answer = await session.call(ToolCall(code))
    assert answer.failed
    assert "variables and files are lost" in answer.text
    assert not tool.containers.get("ann", id_of(session)).directory.exists()
    assert (await session.call(ToolCall("1"))).text == "1\n"
    await tool.stop()


@story
async def test_an_interpreter_that_ends_is_told_and_begun_again(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    answer = await session.call(ToolCall("print('last words', flush=True)\nimport os; os._exit(3)"))
    assert answer.failed
    assert "last words" in answer.text
    assert "ended with status 3" in answer.text
    assert (await session.call(ToolCall("1"))).text == "1\n"
    await tool.stop()


FORGE = """
import json, os, sys, time
frame = sys._getframe()
while frame and 'call' not in frame.f_locals:
    frame = frame.f_back
number = frame.f_locals['call']['call']
def forge(told):
    for fd in range(3, 4096):
        try:
            os.write(fd, json.dumps(told).encode() + b'\\n')
        except OSError:
            pass
"""


@story
async def test_code_can_end_its_own_call_early_and_no_other(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    early = FORGE + "forge({'call': number, 'fine': True})\nwhile True: pass"
    assert (await session.call(ToolCall(early))).text == ""
    pid = process_of(tool.containers.get("ann", id_of(session)))
    await until(lambda: state_of(pid) == "T")  # what goes on behind its answer is stopped
    tool.containers.get("ann", id_of(session)).end_process()
    guess = FORGE + "forge({'call': 'next', 'fine': True}); os.write(1, b'x' * 10); 'mine'"
    assert (await session.call(ToolCall(guess))).text == "xxxxxxxxxx'mine'\n"
    assert (await session.call(ToolCall("'next'"))).text == "'next'\n"
    junk = FORGE + "[forge(x) for x in ([], 7, None, {'box': 1}, 'é' * 9000)]; 'still'"
    assert (await session.call(ToolCall(junk))).text == "'still'\n"
    await tool.stop()


@story
async def test_containers_that_are_made_at_once_are_no_more_than_the_limit(tmp_path: Path) -> None:
    every = containers(tmp_path, most=3, most_per_owner=3)
    await every.start()
    for _ in range(3):
        await asyncio.gather(*(every.create(f"owner {n % 2}", "", None) for n in range(10)))
    assert len(every.living) == 3
    await every.stop()


FLOOD = """
import os
LINES = {!r}
while True:
    for fd in range(3, 64):
        try:
            os.write(fd, LINES)
        except OSError:
            pass
"""


@pytest.mark.parametrize("lines", [b"[7]\n" * 1000, b"[" * 3000 + b"\n"], ids=["short", "deep"])
@story
async def test_code_that_floods_the_pipe_of_answers_is_ended(tmp_path: Path, lines: bytes) -> None:
    """Each line would be read as an answer, on the loop of all streams."""
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    answer = await session.call(ToolCall(FLOOD.format(lines)))
    assert answer.failed
    assert answer.text.startswith("The code wrote to the interpreter's own pipe.")
    assert (await session.call(ToolCall("1"))).text == "1\n"
    await tool.stop()


@story
async def test_a_flood_is_read_and_cut(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    answer = await session.call(ToolCall("print('a' * 50_000_000); print('end')"))
    assert len(answer.text) < 70_000
    assert "bytes are left out here" in answer.text
    assert answer.text.endswith("end\n")
    await tool.stop()


@story
async def test_idle_containers_expire_and_the_oldest_makes_room(tmp_path: Path) -> None:
    clock = Clock()
    tool = PythonTool(containers(tmp_path, clock))
    await tool.start()
    sessions = [await opened(tool) for _ in range(3)]
    for session in sessions:
        clock.now_s += 1
        await session.call(ToolCall("1"))
    held = [container.id for container in tool.containers.of("ann")]
    assert held == [id_of(session) for session in sessions[1:]]
    pids = [process_of(container) for container in tool.containers.of("ann")]
    clock.now_s += 61
    clock.rang.set()
    await until(lambda: not tool.containers.of("ann") and not any(map(alive, pids)))
    await tool.stop()


@story
async def test_a_deleted_container_is_gone_for_a_response_that_goes_on(tmp_path: Path) -> None:
    tool = PythonTool(containers(tmp_path))
    await tool.start()
    session = await opened(tool)
    await session.call(ToolCall("1"))
    await tool.containers.delete("ann", id_of(session))
    answer = await session.call(ToolCall("1"))
    assert answer.failed
    assert "not found" in answer.text
    await tool.stop()


ENDLESS = {
    "python": "open('begun', 'w')\nwhile True: pass",
    "shell": '{"cmd": "echo > begun; while :; do :; done"}',
}


@pytest.mark.parametrize("name", ENDLESS)
@story
async def test_a_container_that_is_deleted_ends_the_call_that_runs_in_it(
    tmp_path: Path, name: str
) -> None:
    """At once, and by the loop that reads its pipes; who waits behind it begins nothing."""
    held = containers(tmp_path)
    tool: Any = PythonTool(held) if name == "python" else ShellTool(held, shell())
    await tool.start()
    facts = await held.create("ann", "mine", None)
    options: Any = {"container": facts.id, "environment": {"container_id": facts.id}}
    session = await tool.open(Opening("ann", options=options))
    calls = [asyncio.create_task(session.call(ToolCall(ENDLESS[name]))) for _ in range(2)]
    container = held.get("ann", facts.id)
    await until((container.directory / "begun").exists)
    readers = pipes_that_are_read()
    assert readers
    await held.delete("ann", facts.id)
    running, waiting = await asyncio.gather(*calls)
    assert running.failed
    assert "not found" in running.text or running.text == "[The command was ended.]"
    assert (waiting.failed, "not found" in waiting.text) == (True, True)
    assert not pipes_that_are_read() & readers
    assert processes_in(container.directory) == []
    assert not container.directory.exists()
    await tool.stop()


def pipes_that_are_read() -> set[int]:
    """The pipes that this loop watches: one that was closed meanwhile would be another's number."""
    return {fd for fd in watched_files() if stat.S_ISFIFO(os.fstat(fd).st_mode)}


DIES = """
import os, sys
from pathlib import Path
from trt_responses.tools.python.directories import ServerDirectory

(ServerDirectory(Path(sys.argv[1])).path / "cntr_1").mkdir()
os._exit(0)
"""


def test_what_a_dead_server_left_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    living = ServerDirectory(tmp_path)
    subprocess.run([sys.executable, "-c", DIES, tmp_path], check=True, cwd=ROOT)
    [dead] = {*tmp_path.iterdir()} - {living.path}
    assert (dead / "cntr_1").is_dir()
    fresh = ServerDirectory(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted((living.path, fresh.path))
    living.remove()
    fresh.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_tree_is_removed_however_deep_and_unreadable(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.getcwd()
    try:
        os.chdir(top)
        for _ in range(1500):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
        os.chmod(".", 0)
    finally:
        os.chdir(here)
    (top / "link").symlink_to("/etc")
    assert usage(top, Usage(1, 1)).entries > 0
    remove_tree(top)
    assert not top.exists()
    assert Path("/etc").is_dir()


def test_arguments_that_are_json_hold_the_code() -> None:
    assert code_of(ToolCall("1+1")) == "1+1"
    assert code_of(ToolCall('{"code": "1"}', "json")) == "1"
    for broken in ('{"code"', "[]", "{}", "[" * 100_000):
        answer = code_of(ToolCall(broken, "json"))
        assert not isinstance(answer, str)
        assert answer.failed
