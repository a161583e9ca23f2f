"""Whom a limit counts: the client's address, also behind proxies, with an IPv6 network as one client."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IPV6_PREFIX = 64
"""Bits of an IPv6 address that name a client: one customer is given at least a /64 (RFC 6177)."""


class ClientAddress:
    """Finds the client's address behind trusted proxies. Raises `ValueError` for networks that are none."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._trusted: list[Network] = [ipaddress.ip_network(text, strict=False) for text in trusted]

    def of(self, peer: str, forwarded: str | None = None) -> str:
        """The name to count: of `peer`, or of the last hop of `X-Forwarded-For` that is no trusted proxy.

        An IPv4 address as it is, also when it came as `::ffff:a.b.c.d`; of an IPv6 address its /64 network.
        """
        client = peer
        if self._trusted and forwarded and self.is_proxy(peer):
            for hop in reversed(forwarded.split(",")):
                text = hop.strip()
                if _parse(text) is None:
                    break
                client = text
                if not self.is_proxy(text):
                    break
        return _name(client)

    def is_proxy(self, text: str) -> bool:
        """Whether an address is that of a trusted proxy, which speaks for many clients."""
        address = _parse(text)
        return address is not None and any(address in network for network in self._trusted)


def is_local(name: str) -> bool:
    """Whether a name is an address of this very machine."""
    return name.startswith("127.") or name == "::/64"


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])  # a zone is this machine's own affair
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    address = _parse(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return text if address is None else str(address)
