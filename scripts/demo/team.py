"""Processes that train one model: each has its share of a batch, and all take the same step.

On two cores, two processes of one thread make nearly twice the steps of one process with two
threads, which wait for each other at every small matrix. Knows gradients and processes; knows
neither the model nor what it learns. They meet on this machine's loopback.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


@dataclass(frozen=True, slots=True)
class Member:
    """One of `count` processes. The first decides, and tells the caller."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def agree(self, gradients: Sequence[Tensor], done: float) -> float:
        """Put the sum of all members' gradients in place of this one's; how far the first is."""
        if self.count == 1:
            return done
        ended = torch.tensor([done if self.first else 0.0])
        whole = torch.cat([*(each.reshape(-1) for each in gradients), ended])
        distributed.all_reduce(whole)
        *sums, ended = whole.split([*(each.numel() for each in gradients), 1])
        for each, summed in zip(gradients, sums, strict=True):
            each.copy_(summed.view_as(each))
        return float(ended)


@contextmanager
def team(count: int, follow: Callable[[Member], None]) -> Iterator[Member]:
    """This process as the first member; the others `follow`, and end with the block."""
    if count == 1:
        yield Member()
        return
    with tempfile.TemporaryDirectory() as scratch:
        meeting = Path(scratch) / "meeting"
        spawn = multiprocessing.get_context("spawn")
        others = [
            spawn.Process(target=_join, args=(Member(n, count), meeting, follow), daemon=True)
            for n in range(1, count)
        ]
        for other in others:
            other.start()
        try:
            yield _met(Member(0, count), meeting)
        finally:
            distributed.destroy_process_group()
            for other in others:
                other.terminate()
                other.join()


def _join(member: Member, meeting: Path, follow: Callable[[Member], None]) -> None:
    follow(_met(member, meeting))


def _met(member: Member, meeting: Path) -> Member:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    distributed.init_process_group(
        "gloo", init_method=meeting.as_uri(), rank=member.rank, world_size=member.count
    )
    return member
