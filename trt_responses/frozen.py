"""Values that nobody changes: frozen for the type checker, and cheap to make.

`dataclasses` freezes at run time as well, which makes each field cost a call when a value is made,
and `dataclasses.replace` looks at every field: together a tenth of what a response costs
(docs/performance.md). Here mypy does the watching, for it sees the names of `dataclasses` itself.
`replace` is for what is copied for each response; elsewhere the standard one does, and takes slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
