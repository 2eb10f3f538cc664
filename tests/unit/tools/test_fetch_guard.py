"""The fetch guard against names, redirects and bodies that are made to pass it."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.support.idle import beside
from tests.support.small_site import Page, drip, endless_gzip, redirect, site_of
from tests.support.story import story
from trt_responses.tools.fetch_guard import (
    Bounds,
    Fetcher,
    GuardedTransport,
    Reach,
    Refused,
    addresses_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

LOOPBACK = Reach((ip_network("127.0.0.1"),), None)
MIB = 2**20


@asynccontextmanager
async def fetcher(
    reach: Reach = LOOPBACK, bounds: Bounds | None = None, names: dict[str, list[str]] | None = None
) -> AsyncIterator[Fetcher]:
    """`names`: what these resolve to."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return (names or {}).get(host) or await addresses_of(host, port)

    made = Fetcher(reach, bounds, resolve=resolve)
    try:
        yield made
    finally:
        await made.close()


SPELLINGS = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "017700000001",
    "0",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "169.254.169.254",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
)


@pytest.mark.parametrize("host", SPELLINGS)
@story
async def test_no_spelling_of_this_machine_is_reached(host: str) -> None:
    async with site_of({"/": Page(b"a secret")}) as site, fetcher(Reach((), None)) as fetch:
        with pytest.raises((httpx2.HTTPError, httpx2.InvalidURL)):
            await fetch.get(site.url("/", host))
        assert site.asked == []


@pytest.mark.parametrize(
    "addresses",
    [["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "1.1.1.1"], ["64:ff9b::7f00:1"], []],
    ids=str,
)
@story
async def test_a_name_with_one_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    reach = Reach((), None)
    async with site_of({}) as site, fetcher(reach, names={"trick.test": addresses}) as fetch:
        with pytest.raises(Refused if addresses else httpx2.HTTPError):
            await fetch.get(site.url("/", "trick.test"))
        assert site.asked == []


@story
async def test_a_name_is_resolved_once_and_its_host_stays_its_name() -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def resolve(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async with site_of({"/": Page(b"hello")}) as site:
        fetch = Fetcher(LOOPBACK, resolve=resolve)
        document = await fetch.get(site.url("/", "rebound.test"))
        assert (document.body, next(answers)) == (b"hello", ["10.0.0.1"])
        assert site.asked[0].headers["host"] == f"rebound.test:{site.port}"
        await fetch.close()


@story
async def test_names_are_resolved_in_threads_that_nothing_else_needs() -> None:
    assert await addresses_of("127.1", 80) == ["127.0.0.1"]
    assert any(thread.name.startswith("resolver") for thread in threading.enumerate())


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest", "http://localhost./", "//[::1]:1/", "http://0x7f.0.0.2/"],
)
@story
async def test_a_redirect_to_what_is_not_reached_is_refused(target: str) -> None:
    names = {"localhost.": ["127.0.0.2"]}  # not every machine resolves it
    async with site_of({"/": redirect(target)}) as site, fetcher(names=names) as fetch:
        with pytest.raises(Refused, match="not a public address"):
            await fetch.get(site.url())


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://x.test/", "gopher://x.test/_a"])
@story
async def test_a_redirect_to_another_scheme_is_refused(target: str) -> None:
    async with site_of({"/": redirect(target)}) as site, fetcher() as fetch:
        with pytest.raises(Refused, match="only http and https"):
            await fetch.get(site.url())


@story
async def test_redirects_are_followed_to_an_end_and_each_is_permitted() -> None:
    pages = {"/": redirect("/a?b=1"), "/a": redirect("c", 308), "/c": Page(b"there")}
    seen: list[str] = []

    def permit(url: httpx2.URL) -> str | None:
        seen.append(url.path)
        return "no further" if url.path in refused else None

    refused: list[str] = []
    async with site_of(pages) as site, fetcher() as fetch:
        document = await fetch.get(site.url("/#part"), permit=permit)
        assert (document.url, document.body) == (site.url("/c"), b"there")
        assert seen == ["/", "/a", "/c"]
        refused.append("/c")
        with pytest.raises(Refused, match="no further"):
            await fetch.get(site.url(), permit=permit)
        site.pages["/c"] = redirect("/")
        refused.clear()
        with pytest.raises(Refused, match="more than 5 times"):
            await fetch.get(site.url(), permit=permit)
    assert len(site.asked) == 3 + 2 + 6


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://user:secret@example.test/", "user name"),
        ("http://example.test:22/", "port 22"),
        ("http://127.0.0.1:65536/", "larger than 65535"),
        ("file:///etc/passwd", "only http"),
        ("javascript:alert(1)", "only http"),
        (f"http://example.test/{'a' * 5000}", "longer than"),
    ],
)
@story
async def test_a_url_that_is_not_asked(url: str, why: str) -> None:
    async with fetcher(Reach(), names={"example.test": ["1.1.1.1"]}) as fetch:
        with pytest.raises(Refused, match=why):
            await fetch.get(url)


@story
async def test_any_port_of_a_private_network_is_opened_and_two_of_public_addresses() -> None:
    names = {
        "own.test": ["127.0.0.1"],
        "public.test": ["1.1.1.1"],
        "both.test": ["127.0.0.1", "1.1.1.1"],
        "mapped.test": ["::ffff:127.0.0.1"],
    }
    reach = Reach((ip_network("127.0.0.1"),))
    async with site_of({"/": Page(b"hello")}) as site, fetcher(reach, names=names) as fetch:
        assert (await fetch.get(site.url())).body == b"hello"
        assert (await fetch.get(site.url("/", "own.test"))).body == b"hello"
        for host in ("public.test", "both.test"):
            site.pages["/away"] = redirect(site.url("/", host))
            for url in (site.url("/", host), site.url("/away")):
                with pytest.raises(Refused, match=f"port {site.port} is not opened"):
                    await fetch.get(url)
        with pytest.raises(httpx2.ConnectError):  # permitted, and nothing listens
            await fetch.get("http://mapped.test:1/")


@story
async def test_no_proxy_and_no_credential_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with site_of({"/": Page(b"hello")}) as site, site_of({}) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login a password b")
        monkeypatch.setenv("NETRC", str(netrc))
        site.pages["/"] = Page(b"hello", headers=("Set-Cookie: who=me",))
        async with fetcher() as fetch:
            for _ in range(2):
                assert (await fetch.get(site.url())).body == b"hello"
        assert proxy.asked == []
        assert not any({"authorization", "cookie"} & asked.headers.keys() for asked in site.asked)


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED = {
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate ": bare,
}


@pytest.mark.parametrize(("encoding", "pack"), PACKED.items(), ids=PACKED)
@story
async def test_what_is_longer_than_the_bound_is_cut_after_decompression(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    data = bytes(range(256)) * (12 * 1024)
    page = Page(pack(data), headers=(f"Content-Encoding: {encoding}",))
    async with site_of({"/": page}) as site:
        async with fetcher(bounds=Bounds(max_bytes=4 * MIB)) as fetch:
            whole = await fetch.get(site.url())
        async with fetcher(bounds=Bounds(max_bytes=MIB)) as fetch:
            cut = await fetch.get(site.url())
    assert (whole.body, whole.cut) == (data, False)
    assert (cut.body, cut.cut) == (data[:MIB], True)


@story
async def test_gzip_without_end_is_cut_and_nothing_else_waits() -> None:
    async with site_of({"/": endless_gzip()}) as site, fetcher() as fetch, beside() as others:
        document = await fetch.get(site.url())
    assert document.cut
    assert len(document.body) == 4 * MIB
    assert others.count > 16


@story
async def test_nothing_else_waits_for_a_body_in_chunks_of_a_byte() -> None:
    async def writes(writer: asyncio.StreamWriter) -> None:
        writer.write(b"1\r\na\r\n" * 5000 + b"0\r\n\r\n")

    chunked = Page(headers=("Transfer-Encoding: chunked",), writes=writes)
    async with site_of({"/": chunked}) as site, fetcher() as fetch, beside() as others:
        document = await fetch.get(site.url())
    assert len(document.body) == 5000
    assert others.count > 1000


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
@story
async def test_an_encoding_that_was_not_asked_for_is_not_read(encoding: str) -> None:
    page = Page(b"some bytes", headers=(f"Content-Encoding: {encoding}",))
    async with site_of({"/": page}) as site, fetcher() as fetch:
        with pytest.raises(Refused, match="is not supported"):
            await fetch.get(site.url())


@story
async def test_damaged_compression_is_told() -> None:
    body = b"\x1f\x8b\x08\x00rubbish rubbish rubbish"
    page = Page(body, headers=("Content-Encoding: gzip",))
    async with site_of({"/": page}) as site, fetcher() as fetch:
        with pytest.raises(Refused, match="damaged"):
            await fetch.get(site.url())


@story
async def test_one_byte_at_a_time_ends_at_the_deadline() -> None:
    async with site_of({"/": drip()}) as site, fetcher(bounds=Bounds(deadline_s=0.3)) as fetch:
        with pytest.raises(httpx2.ReadTimeout, match=r"within 0\.3 seconds"):
            await fetch.get(site.url())


@story
async def test_headers_without_end_are_refused() -> None:
    page = Page(headers=tuple(f"X-{n}: {'a' * 1000}" for n in range(300)))
    async with site_of({"/": page}) as site, fetcher() as fetch:
        with pytest.raises(httpx2.RemoteProtocolError):
            await fetch.get(site.url())


@story
async def test_types_and_statuses() -> None:
    pages = {"/": Page(b"%PDF", content_type="Application/PDF; a=b"), "/gone": Page(status=410)}
    pages["/odd"] = Page(content_type="text/html" + "; charset=latin-1" * 5000)
    async with site_of(pages) as site, fetcher() as fetch:
        with pytest.raises(Refused, match="type 'application/pdf' are not read"):
            await fetch.get(site.url(), is_wanted=lambda kind: kind.startswith("text/"))
        with pytest.raises(Refused, match="status 410"):
            await fetch.get(site.url("/gone"))
        assert (await fetch.get(site.url("/odd"))).charset is None


@story
async def test_another_client_is_guarded_by_the_transport() -> None:
    async with site_of({"/": Page(b"hello")}) as site:
        async with httpx2.AsyncClient(
            transport=GuardedTransport(LOOPBACK, keep_alive=True), trust_env=False
        ) as client:
            assert (await client.post(site.url(), json={})).text == "hello"
        async with httpx2.AsyncClient(
            transport=GuardedTransport(Reach()), trust_env=False
        ) as client:
            with pytest.raises(Refused):
                await client.post(site.url(), json={})
