"""URLs: which ones the model has seen, and which domains are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit, urlunsplit

_WRITTEN = re.compile(
    r"(?:https?://|(?<![\w-])(?<![\w-]\.))(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?(?:[/?#][^\s<>\"'`\\]*)?"
    r"|https?://[^\s<>\"'`\\]+",
    re.IGNORECASE,
)
"""A name begins where none is under way, else a long text takes the square of its length."""
_AFTER = ".,;:!?)]}'\"*_"


class Seen:
    """The URLs that may be opened, ignoring scheme, fragment and trailing slash."""

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self._urls: set[str] = set()
        self.add(*urls)

    def add(self, *urls: str) -> None:
        self._urls.update(map(_plain, filter(None, urls)))

    def __contains__(self, url: str) -> bool:
        return _plain(url) in self._urls


def _plain(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return url
    return urlunsplit(("", host, parts.path.rstrip("/"), parts.query, ""))


def urls_in(text: str) -> Iterator[str]:
    """The URLs in a text, with or without a scheme."""
    for match in _WRITTEN.finditer(text):
        url = match[0].rstrip(_AFTER)
        if url.count("(") > url.count(")"):
            url = match[0].rstrip(_AFTER.replace(")", ""))
        yield url if "://" in url else f"https://{url}"


def host_is_allowed(url: str, domains: Sequence[str]) -> bool:
    """Whether a URL's host is one of the domains or a subdomain."""
    if not domains:
        return True
    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)
