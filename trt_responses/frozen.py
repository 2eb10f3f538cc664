"""Immutable values: frozen for the type checker, cheap to make, and compared by their bytes.

`dataclasses` freezes at run time as well, which makes each field cost a call when a value is made,
and `dataclasses.replace` looks at every field: together a tenth of what a response costs
(docs/decisions/hot-path.md). Here mypy does the watching, for it sees the names of `dataclasses`
itself. `replace` is for what is copied for each response; elsewhere the standard one does, and
takes slots.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any

ONE_SPELLING = 2
"""The last version of `marshal` that writes no references, so that equal values are written
alike."""


def bytes_of(value: Any) -> bytes:
    """What a value of JSON's types says, in its order: other bytes for any other value. Unlike `==`
    and unlike JSON they tell 1 from 1.0 and true, and 1e400 from null. Raises a `ValueError` where
    nesting is too deep."""
    return marshal.dumps(value, ONE_SPELLING)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:
    import dataclasses

    def dataclass(*, frozen, slots=False):
        """As the standard one's `frozen=True`, hash and all, without the watch at run time."""
        assert frozen
        return dataclasses.dataclass(unsafe_hash=True, slots=slots)

    def replace(value, /, **changes):
        """A copy with other values. For those without slots, and without `__post_init__`."""
        fresh = object.__new__(type(value))
        fresh.__dict__ = value.__dict__ | changes
        return fresh
