"""How much memory a process may use, under control groups of both versions, nested or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import carded
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.memory import memory
from trt_responses.prepare.shelf.card import compare

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
MEMINFO = {"proc/meminfo": f"MemTotal: {16 * GIB >> 10} kB\nMemAvailable: {9 * GIB >> 10} kB\n"}
V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
NO_LIMIT = str(0x7FFFFFFFFFFFF000)


def version_1(folder: str, limit: object, used: int = 0, kept: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": f"cache 1\ntotal_inactive_file {kept}\n",
    }


def version_2(folder: str, limit: object, used: int = 0, kept: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 1\ninactive_file {kept}\n",
    }


SERVICE, SERVICE_1 = version_2(f"{V2}/a/b", "max"), version_1(f"{V1}/a/b", NO_LIMIT)


def machine(root: Path, *files: dict[str, str]) -> Path:
    for name, text in {k: v for each in (MEMINFO, *files) for k, v in each.items()}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def groups(text: str) -> dict[str, str]:
    return {"proc/self/cgroup": text}


@pytest.mark.parametrize(
    ("files", "total", "free"),
    [
        ([], 16, 9),
        ([groups("0::/\n"), version_2(V2, "max", 3 * GIB)], 16, 9),
        ([groups("0::/\n"), version_2(V2, 4 * GIB, GIB)], 4, 3),
        # a service's group is deeper than the mount, and a slice above it may be narrower
        ([groups("0::/a/b\n"), version_2(f"{V2}/a/b", 2 * GIB), version_2(f"{V2}/a", "max")], 2, 2),
        ([groups("0::/a/b\n"), version_2(f"{V2}/a", 2 * GIB, GIB), SERVICE], 2, 1),
        # the name on the host is no folder in the container: its own group is the mount
        ([groups("0::/docker/12ab\n"), version_2(V2, 5 * GIB)], 5, 5),
        ([groups("0::/../other\n"), version_2(V2, 5 * GIB)], 5, 5),
        ([groups("4:memory:/\n"), version_1(V1, NO_LIMIT, GIB)], 16, 9),
        ([groups("4:memory:/x\n0::/\n"), version_1(f"{V1}/x", 3 * GIB, GIB)], 3, 2),
        ([groups("4:memory:/a/b\n"), version_1(f"{V1}/a", 3 * GIB), SERVICE_1], 3, 3),
        ([groups("4:memory:/docker/12ab\n"), version_1(V1, 6 * GIB)], 6, 6),
        ([groups("0::/a\n"), version_2("sys/fs/cgroup/unified/a", 7 * GIB)], 7, 7),
        # what the page cache holds is dropped before memory is refused
        ([groups("0::/\n"), version_2(V2, 4 * GIB, 4 * GIB, kept=3 * GIB)], 4, 3),
        ([groups("4:memory:/\n"), version_1(V1, 4 * GIB, 4 * GIB, kept=GIB)], 4, 1),
        ([groups("0::/\n"), version_2(V2, GIB, 2 * GIB)], 1, 0),
    ],
)  # fmt: skip
def test_the_least_limit_counts(
    tmp_path: Path, files: list[dict[str, str]], total: int, free: int
) -> None:
    assert memory(machine(tmp_path, *files)) == (total * GIB, free * GIB)


@pytest.mark.parametrize("limit", [version_1(f"{V1}/x", 2 * GIB), version_2(f"{V2}/x", 2 * GIB)])
def test_an_engine_that_a_container_has_no_memory_for_is_not_served(
    tmp_path: Path, limit: dict[str, str]
) -> None:
    card, directory = carded(tmp_path / "engines", memory_bytes=3 * GIB)
    root = machine(tmp_path / "root", groups("4:memory:/x\n0::/x\n"), limit)
    here = replace(this_machine(), libraries=card.libraries)
    large = replace(here, memory_bytes=memory(machine(tmp_path / "large")).total_bytes)
    assert compare(card, directory, large) is None
    small = replace(here, memory_bytes=memory(root).total_bytes)
    told = compare(card, directory, small)
    assert told is not None
    assert "the weights need 3.0 GiB, this process can use 2.0 GiB" in told


def test_serving_the_doctor_and_the_build_read_one_memory() -> None:
    """Of this very machine, whatever its groups are."""
    found = memory()
    assert this_machine().memory_bytes == found.total_bytes > 64 << 20
    assert 0 < found.free_bytes <= found.total_bytes
