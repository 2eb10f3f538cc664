"""Exchange versions of the engine under load, good ones and faulty ones, on two servers.

Six builds of the demo, all of the same weights: 1 and 2 are good, 3 has a flipped byte, 4 is three
times slower, 5 dies at the gate's third prompt, and with 6 the server is killed when the pointer
has moved and nothing else has. Each act is one server after the other, as in a fleet. Every
answer of the servers must be as expected, and the journal must have every change once and in order.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2 as httpx

from scripts.rollout import report
from scripts.rollout.faulty_server import DIES, KILLED, SLOW
from scripts.rollout.fleet import ADMIN_KEY, KEY, fleet
from scripts.rollout.load import Tally, Users, client_of
from trt_responses.cli.building import prepare_demo
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.shelf import promotion, shelf
from trt_responses.prepare.shelf import versions as kept
from trt_responses.prepare.shelf.card import read_card, write_card
from trt_responses.prepare.shelf.locks import locked
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.rollout.fleet import Fleet, Server

NAME = shelf.DEMO
FLIPPED = 3
TOO_SLOW = ("times as long", "times the tokens")
"""The gate measures, and on a busy machine it may refuse a good build for this."""
TRIES = 10
SHARE = 0.5
HELD_S = 5.0
"""So long conversations go on with what an act has left."""
KILL = "the server killed between pointer and switch"
FIELDS = {"model": NAME, "input": "Hello!", "store": False}


class Act(NamedTuple):
    """The servers' answers in one phase, and the expected one."""

    answer: str
    expected: str

    @property
    def good(self) -> bool:
        return self.expected in self.answer


def prepared(engines_dir: Path) -> None:
    """The six builds. Those after the first are copies of its files, so that what is good is as
    fast as the first one in both directions."""
    prepare_demo(Settings(engines_dir=engines_dir))
    for _ in range(2, KILLED + 1):
        copied(engines_dir / NAME)
    flipped = shelf.find(engines_dir, f"{NAME}@{FLIPPED}") / MODEL
    before = flipped.stat()
    with flipped.open("r+b") as file:
        file.seek(before.st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    os.utime(flipped, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a bad disk would leave it


def copied(home: Path) -> None:
    """Another build of the first version's weights, under a number of its own."""
    first = shelf.find(home.parent, f"{NAME}@1")
    number = 1 + len(list(home.glob("*/card.json")))
    version = f"{number:012x}"
    shutil.copytree(first, home / version)
    with locked(home, wait=True):
        assert kept.new_number(home, version, "a copy of the first") == number
        write_card(home / version, replace(read_card(first), version=version, number=number))


async def exchanged(conversations: int, folder: Path) -> list[str]:
    """Print what was noticed; every bound that was passed."""
    engines_dir = folder / "engines"
    await asyncio.to_thread(prepared, engines_dir)
    tally = Tally()
    settings = {"TRT_RESPONSES_ENGINES_DIR": str(engines_dir), "TRT_RESPONSES_ENGINE": NAME}
    async with (
        fleet("haproxy", folder, settings, "scripts.rollout.faulty_server") as servers,
        client_of(servers.url, tally) as client,
    ):
        users = Users(client, tally, conversations, conversations)
        async with users.talking():
            acts = await Roll(servers, engines_dir, tally).all()
        found = await users.judged()
    rows = {phase: (act.answer[:70], "yes" if act.good else "NO") for phase, act in acts.items()}
    report.show(f"versions, {len(users.held)} conversations", tally, ("answer", "right"), rows)
    found += report.breaches(tally, [KILL])
    found += [
        f"{phase}: {act.expected!r} was expected, and it was {act.answer!r}"
        for phase, act in acts.items()
        if not act.good
    ]
    return found + journal_faults(engines_dir)


JOURNAL: list[tuple[kept.Act, int, str, int]] = [
    ("promoted", 2, "at noon", 1),
    ("loaded", 2, "at noon", 2),
    ("rolled back", 1, "it was worse", 1),
    ("loaded", 1, "back", 2),
    ("canary", 2, "a half", 2),
    ("unloaded", 2, "requested", 2),
    ("refused", FLIPPED, "SHA-256", 2),
    ("refused", SLOW, "times", 2),
    ("refused", DIES, "prompt 3", 2),
    ("promoted", KILLED, "at night", 1),
    ("loaded", KILLED, "after it", 1),
]
"""Every change after the builds, with what its reason has in it, and by how many servers. A killed
server wrote nothing but the pointer. Good builds may have been refused as slow before."""


def journal_faults(engines_dir: Path) -> list[str]:
    changes = [change for change in kept.journal(engines_dir / NAME) if change.act != "built"][1:]
    for change in changes:
        print(f"journal: {change.at[11:19]} {change.act} {NAME}@{change.number}: {change.reason}")
    expected = [
        (act, number, reason) for act, number, reason, servers in JOURNAL for _ in range(servers)
    ]
    changes = [
        change
        for change in changes
        if (change.act, was_slow(change.reason)) != ("refused", True) or change.number == SLOW
    ]
    fits = len(changes) == len(expected) and all(
        (change.act, change.number) == (act, number) and reason in change.reason
        for change, (act, number, reason) in zip(changes, expected, strict=True)
    )
    return [] if fits else [f"the journal differs from what was done: {JOURNAL}"]


class Roll:
    """The acts, one after another."""

    def __init__(self, servers: Fleet, engines_dir: Path, tally: Tally) -> None:
        self._servers = servers.servers
        self._engines_dir = engines_dir
        self._tally = tally
        self._acts: dict[str, Act] = {}

    async def all(self) -> dict[str, Act]:
        await asyncio.sleep(HELD_S)
        await self._in_turn("promoted", "200 promoted", version=2, reason="at noon")
        await self._serve("after the promotion", 2)
        self._tally.phase = "rolled back"
        await asyncio.to_thread(promotion.rollback, self._engines_dir, NAME, "it was worse")
        await self._in_turn("rolled back", "200 promoted", reason="back")
        await self._serve("after the roll-back", 1)
        await self._in_turn("canary", "200 canary", version=2, canary=SHARE, reason="a half")
        await self._both_versions("with the canary")
        await self._in_turn("canary ended", "200 unloaded", act="unload")
        for name, number, why in (
            ("a flipped byte", FLIPPED, "SHA-256"),
            ("three times slower", SLOW, "times"),
            ("dies at the third prompt", DIES, "died at prompt 3 of 6"),
        ):
            await self._at_once(name, why, number)
        await self._serve("after the refusals", 1)
        await self._killed()
        await self._serve("after the restart", KILLED)
        return self._acts

    async def _in_turn(self, phase: str, expected: str, *, act: str = "load", **body: Any) -> None:
        """Ask one server after the other, as in a fleet."""
        self._tally.phase = phase
        for server in self._servers:
            self._note(phase, await self._good(server, act, body), expected)
        if not self._acts[phase].good:
            raise RuntimeError(f"{phase}: {self._acts[phase].answer!r}")  # the rest builds on it
        await asyncio.sleep(HELD_S)

    async def _good(self, server: Server, act: str, body: dict[str, Any]) -> str:
        """The answer to a change to a good build; tries again where a busy machine made it
        slow."""
        for _ in range(TRIES):
            answer = await changed(server, act, body)
            if not was_slow(answer):
                break
        return answer

    async def _at_once(self, phase: str, expected: str, number: int) -> None:
        self._tally.phase = phase
        loads = (changed(server, "load", {"version": number}) for server in self._servers)
        for answer in await asyncio.gather(*loads):
            self._note(phase, answer, expected)
        await asyncio.sleep(HELD_S)

    def _note(self, phase: str, answer: str, expected: str) -> None:
        """The first answer that is not as expected is kept, else the last."""
        if phase not in self._acts or self._acts[phase].good:
            self._acts[phase] = Act(answer, expected)

    async def _serve(self, phase: str, number: int) -> None:
        """Both servers make every response with this version."""
        for server in self._servers:
            for answer in await self._makers(server, 3):
                self._note(phase, answer, f"200 by {NAME}@{number}")

    async def _both_versions(self, phase: str) -> None:
        """With a canary of a half, sixteen conversations that begin are not all of one version."""
        for server in self._servers:
            answer = set(await self._makers(server, 16))
            self._note(phase, " ".join(sorted(answer)), f"200 by {NAME}@1 200 by {NAME}@2")

    async def _makers(self, server: Server, number: int) -> list[str]:
        """Which versions make so many responses."""
        return await asyncio.gather(*(maker(server) for _ in range(number)))

    async def _killed(self) -> None:
        self._tally.phase = KILL
        first, second = self._servers
        body = {"version": KILLED, "reason": "at night"}
        answer = await self._good(first, "load", body)
        self._note(KILL, answer, "no answer")
        if answer != "no answer":
            raise RuntimeError(f"{KILL}: {answer!r}")  # it lives
        first.ends.append(await first.program.ended())
        await first.start()
        self._note(KILL, await maker(first), f"by {NAME}@{KILLED}")
        self._note(KILL, await maker(second), f"by {NAME}@1")
        await asyncio.sleep(HELD_S)
        self._tally.phase = "the other server follows"
        body = {"reason": "after it"}
        self._note(self._tally.phase, await self._good(second, "load", body), "200 promoted")


def was_slow(answer: str) -> bool:
    return any(reason in answer for reason in TOO_SLOW)


async def changed(server: Server, act: str, body: dict[str, Any]) -> str:
    return await answer_of(server, f"/admin/engines/{NAME}/{act}", body, ADMIN_KEY)


async def maker(server: Server) -> str:
    return await answer_of(server, "/v1/responses", FIELDS, KEY)


async def answer_of(server: Server, path: str, body: dict[str, Any], key: str) -> str:
    """A server's answer in a few words, without the proxy: 'no answer', the version that made
    a response, the state after a load, or the reason of a refusal."""
    async with httpx.AsyncClient(timeout=600) as client:
        try:
            reply = await client.post(
                server.url + path, json=body, headers={"authorization": f"Bearer {key}"}
            )
        except httpx.HTTPError:
            return "no answer"
    if path == "/v1/responses" and reply.status_code == 200:
        return f"200 by {reply.headers['x-trt-engine']}"
    try:
        answer = reply.json()
    except ValueError:
        return f"{reply.status_code} {reply.text[:60]!r}"
    shown = answer["error"]["message"] if "error" in answer else answer["state"]
    return f"{reply.status_code} {shown}"
