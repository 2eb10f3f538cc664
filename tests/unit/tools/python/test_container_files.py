"""Files that owners bring to containers, several at once and beside the container's end."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.boxed import interpreter
from tests.support.story import story
from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.tools.containers import Upload
from trt_responses.tools.python.container import Bounds
from trt_responses.tools.python.containers import Containers
from trt_responses.tools.python.directories import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

MIB = 1024 * 1024


@asynccontextmanager
async def holding(parent: Path, disk: Usage) -> AsyncIterator[Containers]:
    bounds = Bounds(10.0, disk, 60.0, most=4, most_per_owner=4)
    held = Containers(parent, interpreter(), bounds, clock_s=lambda: 1000.0)
    await held.start()
    try:
        yield held
    finally:
        await held.stop()


def _directories(parent: Path) -> list[Path]:
    return list(parent.glob("*/cntr_*"))


ROOM = Usage(5 * MIB, 1000)
THERE = 900
"""Files that are counted for each that comes: long enough for another to come meanwhile."""


@story
async def test_files_that_come_at_once_share_the_room(tmp_path: Path) -> None:
    async with holding(tmp_path, ROOM) as held:
        one = (await held.create("ann", "", None)).id
        await held.files.add("ann", one, "first", b"")
        (directory,) = _directories(tmp_path)
        for number in range(THERE):
            (directory / str(number)).touch()
        adding = (held.files.add("ann", one, f"f{n}", bytes(2 * MIB)) for n in range(12))
        told = await asyncio.gather(*adding, return_exceptions=True)
        refused = [fault.code for fault in told if isinstance(fault, InvalidRequest)]
        assert refused == ["container_full"] * 10
        sizes = [file.size_bytes for file in await held.files.of("ann", one)]
        assert sum(sizes) == 4 * MIB


@story
async def test_one_name_that_comes_at_once_is_one_whole_file(tmp_path: Path) -> None:
    async with holding(tmp_path, ROOM) as held:
        one = (await held.create("ann", "", None)).id
        texts = [bytes([65 + n]) * 100_000 for n in range(12)]
        await asyncio.gather(*(held.files.add("ann", one, "f", text) for text in texts))
        (file,) = await held.files.of("ann", one)
        with os.fdopen(await held.files.open("ann", one, file.id), "rb") as opened:
            assert opened.read() in texts


@story
async def test_a_file_that_comes_with_the_end_of_its_container_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with holding(tmp_path, ROOM) as held:
        for number in range(20):
            one = (await held.create("ann", "", None)).id
            ways = [held.files.add("ann", one, "f", bytes(MIB)), held.delete("ann", one)]
            adding, deleting = await asyncio.gather(
                *(ways if number % 2 else ways[::-1]), return_exceptions=True
            )
            for fault in (adding, deleting):
                if isinstance(fault, BaseException):
                    assert isinstance(fault, InvalidRequest)
                    assert fault.status == 404
        assert _directories(tmp_path) == []


@pytest.mark.parametrize(
    "fault", [OSError(errno.ENOSPC, "No space left on device"), ApiError("no")]
)
@story
async def test_a_copy_that_breaks_off_leaves_nothing_and_says_why(
    tmp_path: Path, fault: Exception
) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x"
        raise fault

    async with holding(tmp_path, ROOM) as held:
        one = (await held.create("ann", "", None)).id
        with pytest.raises(ApiError, match=r"No space left on device|no") as refused:
            await held.files.add("ann", one, "a", Upload("a", 2, pieces()))
        assert refused.value.status == 500
        (directory,) = _directories(tmp_path)
        assert not [*directory.iterdir()]
