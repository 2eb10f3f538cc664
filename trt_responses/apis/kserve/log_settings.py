"""The log settings in Triton's words. There is one level: the minimum severity logged."""

from __future__ import annotations

import logging
from typing import Any

import orjson

from trt_responses.errors import InvalidRequest

LEVELS = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
VERBOSE, FILE, FORMAT = "log_verbose_level", "log_file", "log_format"
LOG = logging.getLogger("trt_responses")


def log_settings() -> dict[str, Any]:
    """The settings of the log, in Triton's words."""
    level = LOG.getEffectiveLevel()
    shown = {name: level <= number for name, number in LEVELS.items()}
    return {FILE: "", **shown, VERBOSE: int(level <= logging.DEBUG), FORMAT: "default"}


def wanted_log(body: bytes) -> dict[str, Any]:
    """All settings as a body asks for them; what it does not name stays."""
    try:
        sent = orjson.loads(body)
    except ValueError:
        raise InvalidRequest("failed to parse the request JSON buffer") from None
    now = log_settings()
    if not isinstance(sent, dict) or not now.keys() >= sent.keys():
        raise InvalidRequest(f"the settings of a log are {', '.join(now)}")
    for name, value in sent.items():
        if type(value) is not type(now[name]):
            raise InvalidRequest(f"{name} should be a {type(now[name]).__name__}")
    wanted = now | sent
    if wanted[FILE] or wanted[FORMAT] != "default":
        raise InvalidRequest("a client cannot set the file or the format of the log")
    return wanted


def set_log(wanted: dict[str, Any]) -> None:
    """Sets the level that these settings, all of them, ask for."""
    shown = [number for name, number in LEVELS.items() if wanted[name]]
    LOG.setLevel(logging.DEBUG if wanted[VERBOSE] else min(shown, default=logging.CRITICAL))
