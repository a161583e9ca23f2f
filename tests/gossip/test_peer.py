"""Addresses to listen on and to dial."""

from __future__ import annotations

import socket

import pytest

from millrace.gossip.peer import _free, _target

PEER = "16Uiu2HAm979nYv6WosJcoTvk72QtFJ5X7xLprMHPHTi7YYMus6D2"


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0", "/ip4/0.0.0.0/tcp/0"])
def test_free_address_is_taken_as_it_is(address: str) -> None:
    """A TCP address where nobody listens is accepted unchanged."""
    assert str(_free(address)) == address


@pytest.mark.parametrize("address", ["", "tcp", "/ip4/127.0.0.1", "/ip4/127.0.0.1/udp/1", "/dns4/host/tcp/1"])
def test_address_to_listen_on_must_be_ip_and_tcp(address: str) -> None:
    """Anything else is refused with the form that is expected."""
    with pytest.raises(ValueError, match=r"is no /ip4/<address>/tcp/<port>"):
        _free(address)


def test_taken_port_is_refused() -> None:
    """A port on which somebody listens is not shared, although both sides would allow it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on /ip4/127.0.0.1/tcp/{port}"):
            _free(f"/ip4/127.0.0.1/tcp/{port}")


def test_target_has_the_peer_id() -> None:
    """An address to dial says where and whom."""
    target = _target(f"/dns4/seed.example/tcp/10000/p2p/{PEER}")
    assert target.peer_id.to_base58() == PEER
    assert [str(address) for address in target.addrs] == ["/dns4/seed.example/tcp/10000"]


@pytest.mark.parametrize("address", ["", "nonsense", "/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/1/p2p/xyz"])
def test_target_without_peer_id_is_refused(address: str) -> None:
    """An address that does not end in a peer id is refused by name."""
    with pytest.raises(ValueError, match=f"^{address} is no multiaddress"):
        _target(address)
