"""Writes the unchanged weights of a GGUF file under a new head.

In the new file the weights begin at the same place within a block of the disk as in the old one, so
a file system that shares blocks (btrfs, XFS) stores them once. Elsewhere they are copied. Knows the
place of the weights in a file; interprets none of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gguf

from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import nearest
from trt_responses.prepare.llamacpp.gguf_file import ALIGNMENT, GgufHead

BLOCK = 4096
"""A multiple of the block size of common file systems, and of GGUF's alignments."""
CHUNK_BYTES = 64 << 20
CLONE_RANGE, CLONE = 0x4020940D, struct.Struct("<qQQQ")
"""Linux's FICLONERANGE, and its argument."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Faults of the disk, which another way of copying would meet too."""
FILLER = b"trt_responses.filler"
_COUNT, _BEGIN = struct.Struct("<Q"), 16
"""The number of keys, and its place in a head."""


class Region(NamedTuple):
    """The place of all weights in one file, without gaps and in the order of their offsets."""

    path: Path
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


def region_of(head: GgufHead, path: Path) -> Region | None:
    """The region of a file; None if its weights have gaps, or an alignment that is uncommon."""
    alignment = head.keys.get(ALIGNMENT, gguf.GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not head.tensors or BLOCK % alignment:
        return None
    stored = list(head.tensors.values())
    start = end = stored[0].offset
    for tensor in stored:
        if tensor.offset != -(-end // alignment) * alignment:
            return None
        end = tensor.offset + tensor.size_bytes
    return Region(path, start, end)


def shares_blocks(source: Path, directory: Path) -> bool:
    """Whether a file in the directory can share blocks of the disk with the source."""
    try:
        with source.open("rb") as theirs, tempfile.TemporaryFile(dir=nearest(directory)) as ours:
            size = BLOCK if source.stat().st_size >= BLOCK else 0
            fcntl.ioctl(ours, CLONE_RANGE, CLONE.pack(theirs.fileno(), 0, size, 0))
    except OSError:
        return False
    return True


def filled(head: bytes, start: int, block: int = BLOCK) -> bytes:
    """The head with one unused key, by which the weights behind it begin at the same place within a
    block as `start`, and not before `start`."""
    key = _COUNT.pack(len(FILLER)) + FILLER
    key += struct.pack("<II", gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8)
    least = len(head) + len(key) + _COUNT.size
    size = (start - least) % block if least > start else start - least
    count = _COUNT.unpack_from(head, _BEGIN)[0] + 1
    behind = _BEGIN + _COUNT.size
    key += _COUNT.pack(size) + bytes(size)
    return head[:_BEGIN] + _COUNT.pack(count) + key + head[behind:]


def write_under(
    head: bytes, region: Region, target: Path, advance: Callable[[int], object]
) -> None:
    """Write the head and the region's weights to a file, and sync it."""
    with target.open("wb", buffering=0) as file, region.path.open("rb", buffering=0) as source:
        behind = file.write(filled(head, region.start % BLOCK))
        done = shown = 0
        while done < region.size_bytes:
            place = region.start + done
            first = -place % BLOCK  # up to the next block
            most = min(first or CHUNK_BYTES, region.end - place)
            copied = _copied(source.fileno(), file.fileno(), most, place, behind + done)
            if not copied:
                raise PrepareError(f"{region.path.name}: the file became shorter meanwhile.")
            done += copied
            if not first or done == region.size_bytes:
                advance(done - shown)
                shown = done
        os.fsync(file.fileno())


def _copied(source: int, target: int, size: int, start: int, place: int) -> int:
    """Copy a range in the kernel, which shares blocks where it can, or through memory."""
    try:
        return os.copy_file_range(source, target, size, start, place)
    except AttributeError:  # not on Linux
        pass
    except OSError as error:
        if error.errno in FULL:
            raise
    return os.pwrite(target, os.pread(source, min(size, 1 << 20), start), place)
