"""The tables of request fields, a row for all fields that share a treatment and a note."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.apis.chat import fields as chat
from trt_responses.apis.decisions import request as decisions
from trt_responses.apis.messages import fields as messages
from trt_responses.apis.websocket.request import SOCKET
from trt_responses.features.background import resumable
from trt_responses.features.peer_words import words
from trt_responses.wire.fields import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trt_responses.wire.fields import Field

FIELD_TABLES: Mapping[str, Iterable[Field]] = {
    "/v1/responses": (*FIELDS, *words.FIELDS, resumable.FIELD),
    "/v1/responses over WebSocket": SOCKET,
    "/v1/chat/completions": chat.FIELDS,
    "/v1/messages": messages.FIELDS,
    "/v1/decisions": decisions.FIELDS,
    "/v1/systemone": decisions.SYSTEM_ONE,
}
KIND = re.compile(r"(.+\.type=|include\.|tools\[\]\.)(.+)")
EXTENSION = "\\*"
"""Behind a field that the OpenAI SDK does not have."""
PAGE_NAME = re.compile(r"\b([a-z-]+\.md)")


class Group(NamedTuple):
    """What the fields of one row share."""

    prefix: str
    treatment: str
    note: str


def table(fields: Iterable[Field]) -> str:
    """The table of one endpoint."""
    groups: dict[Group, list[str]] = {}
    for field in fields:
        kind = KIND.fullmatch(field.path)
        prefix, name = kind.groups() if kind else ("", field.path)
        shown = f"`{name}`" + EXTENSION * field.ours
        groups.setdefault(Group(prefix, field.treatment, field.note), []).append(shown)
    rows = (_row(group, names) for group, names in groups.items())
    return "| field | treatment | note |\n|---|---|---|\n" + "".join(rows)


def _row(group: Group, names: list[str]) -> str:
    listed = ", ".join(names)
    if group.prefix:
        alone = len(names) == 1
        listed = f"`{group.prefix}{listed[1:]}" if alone else f"`{group.prefix}` {listed}"
    note = PAGE_NAME.sub(r"[\1](\1)", group.note)
    return f"| {listed} | {group.treatment} | {note} |\n"
