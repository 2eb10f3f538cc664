"""Search services behind one seam: a query in, a limited list of results out.

The operator's service may have any address; its results are untrusted texts.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any, NamedTuple, Protocol

import httpx2

from trt_responses.tools.fetch_guard import GuardedTransport, Reach, Refused, bounded, refusal

MAX_BYTES = 2 * 1024 * 1024
MAX_RESULTS = 20
MAX_TEXT = 600
EVERYWHERE = Reach((ip_network("0.0.0.0/0"), ip_network("::/0")), ports=None)
_TAG = re.compile("</?[a-zA-Z][^<>]{0,200}>")


class Result(NamedTuple):
    """One result of a search."""

    url: str
    title: str
    text: str


class Query(NamedTuple):
    """A search by the model."""

    text: str
    most: int
    domains: Sequence[str] = ()
    """Restrict results to these domains and their subdomains; empty: no restriction."""
    country: str | None = None
    """The user's country, two letters."""


class SearchFailed(Exception):
    """The service returned no results; the message is the reason."""


class SearchService(Protocol):
    """A search service. It may return results of other domains."""

    knows_country: bool
    """Whether it uses the user's country."""

    async def results(self, query: Query) -> list[Result]:
        """The results of a query. Raises `SearchFailed`."""
        ...

    async def close(self) -> None: ...


class _Service:
    """A service that answers GET requests in JSON, with limits."""

    def __init__(self, url: str, headers: Mapping[str, str], deadline_s: float) -> None:
        self._url = url
        self._headers = {"accept": "application/json", "accept-encoding": "gzip", **headers}
        self._deadline_s = deadline_s
        self._transport = GuardedTransport(EVERYWHERE, keep_alive=True)

    async def _json(self, parameters: Mapping[str, str]) -> Any:
        try:
            url = httpx2.URL(self._url).copy_merge_params(parameters)
            request = httpx2.Request("GET", url, headers=self._headers)
            async with asyncio.timeout(self._deadline_s):
                response = await self._transport.handle_async_request(request)
                try:
                    if response.status_code != 200:
                        raise SearchFailed(f"the service answered {response.status_code}")
                    body, cut = await bounded(response, MAX_BYTES)
                finally:
                    await response.aclose()
            if cut:
                raise SearchFailed("the service's answer is too large")
            return json.loads(body)
        except TimeoutError:
            raise SearchFailed("the service did not answer in time") from None
        except (Refused, httpx2.InvalidURL) as fault:  # such as a query that is too long
            raise SearchFailed(str(fault)) from None
        except httpx2.HTTPError as fault:
            raise SearchFailed(f"the service cannot be reached ({type(fault).__name__})") from None
        except (ValueError, RecursionError):
            raise SearchFailed("the service did not answer in JSON") from None

    async def close(self) -> None:
        await self._transport.aclose()


class SearXNG(_Service):
    """A SearXNG server with `json` in its `search.formats`."""

    knows_country = False

    def __init__(self, url: str, key: str | None, deadline_s: float) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        super().__init__(url.rstrip("/") + "/search", headers, deadline_s)

    async def results(self, query: Query) -> list[Result]:
        answer = await self._json({"q": _text(query), "format": "json"})
        return _results(answer, ("results",), "content")


class Brave(_Service):
    """The Brave Search API."""

    knows_country = True

    def __init__(self, url: str, key: str | None, deadline_s: float) -> None:
        headers = {"x-subscription-token": key or ""}
        super().__init__(url.rstrip("/") + "/res/v1/web/search", headers, deadline_s)

    async def results(self, query: Query) -> list[Result]:
        parameters = {"q": _text(query), "count": str(min(query.most, 20))}
        if query.country:
            parameters["country"] = query.country
        return _results(await self._json(parameters), ("web", "results"), "description")


SERVICES: Mapping[str, type[SearXNG] | type[Brave]] = {"searxng": SearXNG, "brave": Brave}


def _text(query: Query) -> str:
    if not query.domains:
        return query.text
    return f"{query.text} ({' OR '.join(f'site:{domain}' for domain in query.domains)})"


def _results(answer: Any, path: Sequence[str], text: str) -> list[Result]:
    """The complete results in an answer; everything else is ignored."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    results = []
    for each in (answer if isinstance(answer, list) else ())[: 5 * MAX_RESULTS]:
        url, title = (each.get("url"), each.get("title")) if isinstance(each, dict) else ("", "")
        if url := usable(url):
            extra = each.get("extra_snippets")
            texts = [each.get(text), *(extra if isinstance(extra, list) else ())]
            shown = " ".join(one for one in texts if isinstance(one, str))
            results.append(Result(url, _plain(title), _plain(shown)))
    return results


def usable(given: object) -> str:
    """A URL as it is opened and shown; empty for one that cannot be opened."""
    try:
        url = httpx2.URL(given if isinstance(given, str) else "")
    except (httpx2.InvalidURL, ValueError):
        return ""
    return "" if refusal(url) or "%" in url.host else str(url)


def _plain(text: object) -> str:
    """The text without tags and entities."""
    return html.unescape(_TAG.sub("", str(text or "")[: 4 * MAX_TEXT]))[:MAX_TEXT]
