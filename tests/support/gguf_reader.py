"""The format's own reader of GGUF, quick with lists: it makes an array of each string, which takes
12 s for a real vocabulary."""

from __future__ import annotations

from typing import Any

from gguf import GGUFReader, GGUFValueType


class QuickReader(GGUFReader):
    """`texts` has each list of strings by the place where it begins; all else is as in the
    library."""

    def __init__(self, *args: Any) -> None:
        self._texts: dict[int, list[str]] = {}
        super().__init__(*args)

    def texts(self, key: str) -> list[str]:
        """A list of strings among the keys."""
        field = self.fields[key]
        return self._texts[field.offset + 12 + len(key.encode())]

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
        data, texts = self.data.data, []
        for _ in range(count):
            begin = at + 8
            at = begin + int.from_bytes(data[at:begin], "little")
            texts.append(str(data[begin:at], "utf-8"))
        self._texts[orig_offs] = texts
        return at - orig_offs, [], [], [kind, of]
