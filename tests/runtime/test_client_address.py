"""Whom limits count."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.runtime.client_address import ClientAddress, is_local


@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("10.1.1.1", "1.2.3.4, 10.9.9.9", "1.2.3.4"),
        ("10.1.1.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        ("9.9.9.9", "1.2.3.4", "9.9.9.9"),
        ("10.1.1.1", "nonsense", "10.1.1.1"),
        ("10.1.1.1", None, "10.1.1.1"),
        ("10.1.1.1", "10.2.2.2, 10.3.3.3", "10.2.2.2"),
        ("::ffff:10.1.1.1", "::ffff:1.2.3.4", "1.2.3.4"),
        ("10.1.1.1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", None, "fe80::/64"),
        ("", None, ""),
    ],
)
def test_row_34_the_last_untrusted_hop_is_the_client(peer: str, forwarded: str | None, counted: str) -> None:
    """Only what a trusted proxy says is believed, and of that only the last hop that is no proxy."""
    assert ClientAddress(["10.0.0.0/8"]).of(peer, forwarded) == counted


def test_without_trusted_proxies_the_header_means_nothing() -> None:
    """Whoever connects is the client."""
    assert ClientAddress().of("10.1.1.1", "1.2.3.4") == "10.1.1.1"


@given(st.ip_addresses(v=6).filter(lambda address: address.ipv4_mapped is None), st.integers(0, 2**64 - 1))
def test_an_ipv6_network_is_one_client(address: ipaddress.IPv6Address, host: int) -> None:
    """Addresses that differ in the last 64 bits only are counted together."""
    other = ipaddress.IPv6Address(int(address) >> 64 << 64 | host)
    if other.ipv4_mapped is None:
        assert ClientAddress().of(str(address)) == ClientAddress().of(str(other))


def test_this_machine() -> None:
    """Loopback addresses of both families are local, others are not."""
    names = [ClientAddress().of(peer) for peer in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "1.2.7.0")]
    assert [is_local(name) for name in names] == [True, True, True, True, False]
