"""The seam of items that say what tools did, which clients send back as history.

A folder brings the kinds, each a class of `PastCall` that it adds to `KINDS`, as it does items that
change their request (`Amending`). Three rules bind a `PastCall`:

1. Only what is shown to the model is read; other keys are kept as they came.
2. A kind says by itself what the model reads of it, and never raises.
3. `digested` reads the item that the server wrote as it reads the one that comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import orjson
from pydantic_core import from_json, to_json

from trt_responses.wire.base import ClientObject

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trt_responses.wire.tools import Tool

NOT_KEPT = "[The output of this call was not kept.]"


class CallText(NamedTuple):
    """An item in the model's terms: a call, a result, or both; or a message."""

    name: str | None = None
    """The function that stands for the tool."""
    arguments: str | None = None
    result: str | None = None
    call_id: str | None = None
    """The id that joins a call without its result, and a result without its call."""
    message: str | None = None
    """A text that is neither, and that the model reads as a user's."""
    as_sent: bool = False
    """Whether the model reads the name as the client has sent it."""

    @property
    def lasts(self) -> bool:
        """Whether it says something once the model has answered: a call whose output was not kept
        only says why a tool loop goes on."""
        return self.result is not NOT_KEPT


class FolderItem(ClientObject):
    """An item of a kind that a folder brings."""

    prefix: ClassVar[str]
    """The beginning of the ids of its kind."""
    id: str | None = None
    type: str

    @staticmethod
    def digested(item: Any) -> tuple[str, ...] | None:
        """What tells an item of this kind from another, sent or written; None where no model writes
        such items."""
        return None


class PastCall(FolderItem):
    """An item of a tool's call, as it is sent back."""

    def text(self) -> CallText:
        raise NotImplementedError

    def among(self, calls: Collection[str], place: str) -> CallText:
        """The same behind calls with these ids. Raises an `InvalidRequest` with the item's place,
        where it belongs to none of them."""
        return self.text()

    @property
    def ran_here(self) -> bool:
        """Whether a server like this one has run the call within a thought."""
        return False

    @property
    def inner_call(self) -> str | None:
        """The call whose output stands behind its ids, where it ran here."""
        return None

    @property
    def answered_call(self) -> str | None:
        """The call of which this is the output."""
        return None

    @property
    def approved(self) -> str | None:
        """The request for approval that this item grants."""
        return None

    @property
    def approved_by(self) -> str | None:
        """The request for approval of which this is the outcome."""
        return None


class PlainPastCall(PastCall):
    """One that, without an id, refers to nothing but a call."""


class Amending(FolderItem):
    """An item that changes what its request asks for, and says nothing to the model."""

    @property
    def offered(self) -> Sequence[Tool] | None:
        """Tools that count as the request's own; None: it brings none."""
        return None

    def amended(self, request: Any) -> Any:
        """The request with what the item changes."""
        raise NotImplementedError

    def accepted(self, accepted: Any) -> Any:
        """What the request asks for, with what the item adds to it."""
        return accepted


KINDS: dict[str, type[PastCall] | type[Amending]] = {}
"""The kinds by their types."""


if TYPE_CHECKING:
    Installed = PastCall | Amending
else:
    Installed = Any  # FastAPI describes each class of a union, and this one is no kind
"""Stands in a union for the kinds that folders bring."""


def settled_places(items: Sequence[object]) -> list[int]:
    """The places of approvals that say nothing: what their calls gave stands among the items."""
    answered = {item.approved_by for item in items if isinstance(item, PastCall)} - {None}
    return [
        place
        for place, item in enumerate(items)
        if answered and isinstance(item, PastCall) and item.approved in answered
    ]


def canonical(arguments: str) -> str:
    """Arguments without the spaces that clients put elsewhere when they read and write them
    again."""
    try:
        return orjson.dumps(orjson.loads(arguments)).decode()
    except (ValueError, TypeError):  # no JSON, or nested too deep to be written
        return arguments


def object_in(text: str, partial: bool | Literal["trailing-strings"]) -> dict[str, Any] | None:
    """The JSON object of a call, also of one that was cut, in values that orjson can write."""
    try:
        found = from_json(text or "{}", allow_partial=partial)
    except ValueError:
        return None
    return orjson.loads(to_json(found, inf_nan_mode="null")) if isinstance(found, dict) else None
