"""String formats: an expression that guides each, and a judge of texts. The two are independent.
Formats without an entry are annotations and are not enforced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, time
from ipaddress import IPv4Address, IPv6Address

_YEAR = "[1-9][0-9]{3}"
_LEAP = "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ZONE = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,7}}"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_HEX4 = "[0-9A-Fa-f]{1,4}"
_IPV6 = "|".join(
    (
        f"(?:{_HEX4}:){{7}}{_HEX4}",
        *(
            f"(?:{_HEX4}:){{{n - 1}}}{_HEX4}::(?:{_HEX4}(?::{_HEX4}){{0,{6 - n}}})?"
            for n in range(1, 7)
        ),
        f"::(?:{_HEX4}(?::{_HEX4}){{0,6}})?",
    )
)
_PERIOD = "(?:[0-9]{1,6}Y(?:[0-9]{1,6}M(?:[0-9]{1,6}D)?)?|[0-9]{1,6}M(?:[0-9]{1,6}D)?|[0-9]{1,6}D)"
_SPAN = "T(?:[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{1,6}S)?)?|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}S)"
_MAILBOX = r"[A-Za-z0-9_+-]{1,64}(?:\.[A-Za-z0-9_+-]{1,64}){0,3}"
_DOMAIN = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,7}[A-Za-z]{2,24}"

EXPRESSIONS: Mapping[str, str] = {
    "date": _DATE,
    "time": _CLOCK + _ZONE,
    "date-time": f"{_DATE}[Tt]{_CLOCK}{_ZONE}",
    "duration": f"P(?:{_PERIOD}(?:{_SPAN})?|{_SPAN}|[0-9]{{1,6}}W)",
    "email": f"{_MAILBOX}@{_DOMAIN}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": f"(?:{_IPV6})",
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]{0,15}://[A-Za-z0-9][A-Za-z0-9.-]{0,252}(?::[0-9]{1,5})?"
    r"(?:[/?#](?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)?",
}
"""Expressions for the guide, for a whole text. Some are narrower than the format, none wider."""

_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](.+)", re.ASCII)
_TIME = re.compile(r"(\d\d:\d\d:\d\d)(?:\.\d+)?(?:[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)
_DURATION = re.compile(
    r"P(?!$)(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?!$)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.ASCII
)
_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", re.ASCII)


def _is_date(text: str) -> bool:
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None and bool(
        date.fromisoformat(text)
    )


def _is_time(text: str) -> bool:
    parsed = _TIME.fullmatch(text)
    return parsed is not None and time.fromisoformat(parsed[1]) is not None


def _is_date_time(text: str) -> bool:
    parsed = _DATE_TIME.fullmatch(text)
    return parsed is not None and _is_date(parsed[1]) and _is_time(parsed[2])


def _is_email(text: str) -> bool:
    name, at, host = text.rpartition("@")
    return bool(name and at and host) and not re.search(r"\s", text)


def _is_hostname(text: str) -> bool:
    return len(text) <= 253 and all(_NAME.fullmatch(label) for label in text.split("."))


JUDGES: Mapping[str, Callable[[str], object]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": _is_date_time,
    "duration": _DURATION.fullmatch,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": lambda text: text.isascii() and IPv4Address(text),
    "ipv6": lambda text: "%" not in text and IPv6Address(text),
    "uuid": re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch,
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]*").fullmatch,
}


def has_format(text: str, name: str) -> bool:
    """Whether the text has the format; True for formats that are annotations."""
    judge = JUDGES.get(name)
    if judge is None:
        return True
    try:
        return bool(judge(text))
    except ValueError:
        return False
