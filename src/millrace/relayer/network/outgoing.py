"""Where the relayer may connect to by HTTP: the hosts its settings name, never the network's own innards, no redirects.

A name is resolved once and the address that was checked is the one connected to, so that a name server which answers
differently the second time gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

_METADATA = tuple(ipaddress.ip_address(text) for text in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254"))
"""Where clouds tell a machine its own secrets."""


class ForbiddenError(OSError):
    """An address that no setting should lead to."""


def check_address(text: str, *, private: bool) -> None:
    """Raise `ForbiddenError` for an IP address nobody could mean; `private` lets this machine and its LAN in."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address in _METADATA or address.is_link_local or address.is_multicast or address.is_unspecified:
        raise ForbiddenError(f"{address} is never connected to")
    if not private and (address.is_private or address.is_loopback or address.is_reserved):
        raise ForbiddenError(f"{address} is private: set outgoing_private if it is meant")


def check_url(url: str, hosts: frozenset[str], *, private: bool) -> None:
    """Raise `ForbiddenError` for a URL of another scheme than HTTP, of a host not listed or of a forbidden address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or host not in hosts:
        raise ForbiddenError(f"{parts.scheme}://{host} is no host of the settings")
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return  # a name: its addresses are checked when it is resolved
    check_address(host, private=private)


def hosts_of(*urls: str) -> frozenset[str]:
    """The hosts these URLs name; empty ones name none."""
    return frozenset(host for url in urls if (host := urlsplit(url).hostname))


class CheckedResolver(AbstractResolver):
    """Resolves a name and hands out only addresses that may be connected to."""

    def __init__(self, inner: AbstractResolver, *, private: bool) -> None:
        self._inner = inner
        self._private = private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses of `host`. Raises `ForbiddenError` when it has others only."""
        results = await self._inner.resolve(host, port, family)
        allowed, refusal = [], None
        for result in results:
            try:
                check_address(result["host"], private=self._private)
                allowed.append(result)
            except ForbiddenError as error:
                refusal = error
        if not allowed and refusal is not None:
            raise refusal
        return allowed

    async def close(self) -> None:
        """Close the resolver behind this one."""
        await self._inner.close()


def session(timeout: float, *, private: bool, resolver: AbstractResolver | None = None) -> aiohttp.ClientSession:
    """An HTTP client whose every connection goes to a checked address; its caller follows no redirects."""
    checked = CheckedResolver(resolver or ThreadedResolver(), private=private)
    connector = aiohttp.TCPConnector(resolver=checked)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=timeout),
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )
