"""The format's own reader of GGUF, quick with lists: it makes an array of each string, which takes
12 s for a real vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gguf import GGUFReader, GGUFValueType

if TYPE_CHECKING:
    from collections.abc import Iterator


class QuickReader(GGUFReader):
    """Reads a list of strings on first use: a vocabulary's strings take 80 MB. The rest is as in
    the library."""

    def texts(self, key: str) -> list[str]:
        """A list of strings among the keys."""
        at = self.fields[key].offset + 12 + len(key.encode())
        data = self.data.data
        return [str(data[begin:end], "utf-8") for begin, end in self._strings(at)]

    def numbers(self, key: str) -> list[int]:
        """A list of 32-bit numbers among the keys."""
        found: list[int] = self.fields[key].parts[-1].tolist()
        return found

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        kind = GGUFValueType(raw_type)
        if kind != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        of = GGUFValueType(int.from_bytes(self.data[orig_offs : orig_offs + 4].tobytes(), "little"))
        count = int.from_bytes(self.data[orig_offs + 4 : orig_offs + 12].tobytes(), "little")
        at = orig_offs + 12
        if of != GGUFValueType.STRING:
            values = self._get(at, self.gguf_scalar_to_np[of], count)
            return 12 + values.nbytes, [values], [0], [kind, of]
        for _, end in self._strings(orig_offs):
            at = end
        return at - orig_offs, [], [], [kind, of]

    def _strings(self, array: int) -> Iterator[tuple[int, int]]:
        """Where each string of an array lies."""
        data = self.data.data
        count, end = int.from_bytes(data[array + 4 : array + 12], "little"), array + 12
        for _ in range(count):
            begin = end + 8
            end = begin + int.from_bytes(data[end:begin], "little")
            yield begin, end
