"""Which addresses may be reached, whatever carries them."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from trt_responses.tools.addresses import is_reachable

PUBLIC = (
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700:4700::1111",
    "::ffff:1.1.1.1",
    "64:ff9b::1.1.1.1",
)
REFUSED = (
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::1.1.1.1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1.1.1.1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:101:101::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached(address: str) -> None:
    assert is_reachable(address, ())


@pytest.mark.parametrize("address", REFUSED)
def test_another_is_not(address: str) -> None:
    assert not is_reachable(address, ())


def test_an_allowed_network_is_reached_by_its_addresses_alone() -> None:
    allowed = (ip_network("10.1.0.0/16"), ip_network("::1"))
    for address in ("10.1.2.3", "::1", "::ffff:10.1.0.1", "64:ff9b::10.1.0.1"):
        assert is_reachable(address, allowed)
    for address in ("10.2.0.1", "127.0.0.1", "169.254.169.254", "::2"):
        assert not is_reachable(address, allowed)
