"""Decides which addresses a model's request may reach: public ones and those the operator allows.

Works on addresses, never on names: hosts are resolved before. The rule for IPv6 is an allow-list,
since `ipaddress` treats NAT64, 6to4 and multicast as global.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NAT64 = IPv6Network("64:ff9b::/96")
"""The IPv6 prefix of translated IPv4 addresses; the last 32 bits are the IPv4 address."""
UNICAST = IPv6Network("2000::/3")
"""All addresses that are routed on the internet."""
NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carriers' networks, and many clusters'
        "192.0.0.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "198.18.0.0/15",
        "240.0.0.0/4",
        "2001::/23",  # Teredo and other tunnels
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
)
"""Networks beyond those that `is_global` excludes, which depends on Python's version."""


def is_reachable(text: str, allowed: Sequence[Network]) -> bool:
    """Whether connections to an address are allowed: it is public or in an `allowed` network. An
    address that embeds an IPv4 address is judged by that one."""
    return is_within(text, allowed) or _is_public(_address(text))


def is_within(text: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks; one that embeds an IPv4 address as above."""
    address = _address(text)
    return any(address in one for one in networks)


def _address(text: str) -> Address:
    return _unwrapped(ip_address(text.partition("%")[0]))


def _unwrapped(address: Address) -> Address:
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else address


def _is_public(address: Address) -> bool:
    if address.is_multicast or not address.is_global:
        return False
    if isinstance(address, IPv6Address) and address not in UNICAST:
        return False
    return not any(address in one for one in NOT_PUBLIC)
