"""Lines of the log: text or JSON, with the values that a record has in `extra={"fields": …}`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import orjson

FIELDS = "fields"


class JsonLines(logging.Formatter):
    """Writes each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line | getattr(record, FIELDS, {}), default=str).decode()


class TextLines(logging.Formatter):
    """Writes each record as a line of text, its values behind it."""

    def format(self, record: logging.LogRecord) -> str:
        values = "".join(
            f" {name}={'-' if value is None else value}"
            for name, value in getattr(record, FIELDS, {}).items()
        )
        line = f"{record.levelname} {record.getMessage()}{values}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
