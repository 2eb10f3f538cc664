"""Lines of the log: text or JSON, with the values that a record has in `extra={"fields": …}`.

A message begins with a verb and the id that it is about; values follow as `key=value`.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from trt_responses.settings import Settings

FIELDS = "fields"
LONG_ID = re.compile(
    r"\b((?:resp|conv)_(?:[0-9a-f]{6}(?=(?:[0-9A-Za-z]{22}|[0-9a-f]{48})\b))?[0-9A-Za-z]{8})"
    r"(?:[0-9A-Za-z]{14}|[0-9a-f]{40})\b"
)
"""An id of a response or a conversation: its beginning, which a line of text has, and the rest.
Six more digits at the beginning are the number of the engine's version. Older ids are longer."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end a line or drive a terminal. A client may choose a name that has them."""


class JsonLines(logging.Formatter):
    """Writes each record as one line of JSON, with whole ids."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        line |= getattr(record, FIELDS, {})
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # of a name that is no UTF-8, or a number that is too large
            text = json.dumps(line, ensure_ascii=False, default=str)
            return text.encode(errors="replace").decode()


class TextLines(logging.Formatter):
    """Writes each record as a line of text: time, level, message with shortened ids, values."""

    def format(self, record: logging.LogRecord) -> str:
        values = "".join(
            f" {name}={'-' if value is None else value}"
            for name, value in getattr(record, FIELDS, {}).items()
        )
        at = _time(record).strftime("%Y-%m-%dT%H:%M:%S")
        text = CONTROL.sub(_escaped, LONG_ID.sub(r"\1", f"{record.getMessage()}{values}"))
        line = f"{at}.{int(record.msecs):03}Z {record.levelname} {text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _escaped(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode()


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def log_to_stderr(settings: Settings) -> None:
    """Write the log to standard error, in the form that the settings name."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
