"""Writes the tables of fields into docs/api.md, each between its two marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from trt_responses.apis.chat import fields as chat
from trt_responses.apis.messages import fields as messages
from trt_responses.apis.websocket.request import SOCKET
from trt_responses.wire.fields import FIELDS, Field

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
FIELD_TABLES = {
    "/v1/responses": FIELDS,
    "/v1/responses over WebSocket": SOCKET,
    "/v1/chat/completions": chat.FIELDS,
    "/v1/messages": messages.FIELDS,
}
MARKED = re.compile(r"(<!-- fields of (\S+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def main() -> None:
    def written(marks: re.Match[str]) -> str:
        return marks[1] + markdown(FIELD_TABLES[marks[2]]) + marks[3]

    PAGE.write_text(MARKED.sub(written, PAGE.read_text()))


def markdown(fields: Iterable[Field]) -> str:
    """The table of one endpoint as a document has it."""
    rows = "".join(
        f"| `{f.path}` | {f.treatment} | {f.note}{' (ours)' if f.ours else ''} |\n" for f in fields
    )
    return f"| field | | |\n|---|---|---|\n{rows}"


if __name__ == "__main__":
    main()
