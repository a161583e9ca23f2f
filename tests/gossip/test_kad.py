"""Finding peers by Kademlia."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.peer.id import ID
from multiaddr.multiaddr import Multiaddr

from millrace.gossip import PeerSettings
from millrace.gossip.host import new_host
from millrace.gossip.identity import from_seed
from millrace.gossip.kad import Discovery, _dialable
from millrace.gossip.settings import KAD_PROTOCOLS

if TYPE_CHECKING:
    from tests.gossip.conftest import Network


def peer_id(name: str) -> ID:
    return ID.from_pubkey(create_new_key_pair(from_seed(name)).public_key)


def discovery(connected: list[ID], monkeypatch: pytest.MonkeyPatch) -> Discovery:
    """A table of which only the answers are used."""
    host = new_host(create_new_key_pair(from_seed("table")))
    monkeypatch.setattr(host, "get_connected_peers", lambda: connected)
    for peer in connected:
        host.get_peerstore().add_addrs(peer, [Multiaddr("/ip4/10.0.0.1/tcp/37373")], 60)

    async def dial(address: str) -> str:
        raise AssertionError(address)

    return Discovery(host, KAD_PROTOCOLS, dial, 10)


def test_protocol_ids_are_the_network_s() -> None:
    """A node's ids are its configured prefix followed by `/kad/1.0.0`."""
    assert KAD_PROTOCOLS == ("/erd/kad/1.0.0/kad/1.0.0", "mvx-main/kad/1.0.0")


def test_answer_names_the_twenty_nearest_connected_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """FIND_NODE gives the 20 connected peers nearest to the key by XOR of SHA-256, without the asker."""
    peers = [peer_id(str(number)) for number in range(25)]
    key = b"\x12\x20" + bytes(32)
    answer = discovery(peers, monkeypatch).answer(Message(type=Message.FIND_NODE, key=key), peers[0])

    def distance(peer: ID) -> int:
        pair = zip(hashlib.sha256(peer.to_bytes()).digest(), hashlib.sha256(key).digest(), strict=True)
        return int.from_bytes(bytes(a ^ b for a, b in pair), "big")

    nearest = sorted(peers[1:], key=distance)[:20]
    assert [named.id for named in answer.closerPeers] == [peer.to_bytes() for peer in nearest]
    assert (answer.type, answer.key) == (Message.FIND_NODE, key)
    assert all(named.addrs == [Multiaddr("/ip4/10.0.0.1/tcp/37373").to_bytes()] for named in answer.closerPeers)


def test_ping_is_answered_and_storing_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """PING is echoed; values and providers, which would let strangers fill our memory, are refused."""
    table = discovery([], monkeypatch)
    assert table.answer(Message(type=Message.PING), peer_id("a")).type == Message.PING
    for refused in (Message.PUT_VALUE, Message.GET_VALUE, Message.ADD_PROVIDER, Message.GET_PROVIDERS):
        with pytest.raises(ValueError, match="not served"):
            table.answer(Message(type=refused), peer_id("a"))


@pytest.mark.parametrize(
    ("address", "dialable"),
    [
        ("/ip4/10.0.0.1/tcp/37373", "/ip4/10.0.0.1/tcp/37373"),
        ("/ip6/2001:db8::1/tcp/37373", "/ip6/2001:db8::1/tcp/37373"),
        ("/dns4/seed.example/tcp/10000", "/dns4/seed.example/tcp/10000"),
        ("/ip4/10.0.0.1/udp/37373/quic-v1", None),
        ("/ip4/10.0.0.1/tcp/37373/ws", None),
    ],
)
def test_only_tcp_addresses_are_dialled(address: str, dialable: str | None) -> None:
    """Of the addresses a peer is named with, TCP ones are used, with the peer's id added."""
    peer = peer_id("named")
    named = Message.Peer(id=peer.to_bytes(), addrs=[Multiaddr(address).to_bytes()])
    assert _dialable(named) == (f"{dialable}/p2p/{peer.to_base58()}" if dialable else "")


@given(st.binary(max_size=40), st.lists(st.binary(max_size=20), max_size=4))
def test_random_addresses_raise_nothing(identity: bytes, addresses: list[bytes]) -> None:
    """Whatever bytes a stranger names as id and addresses, there is an address to try or none."""
    address = _dialable(Message.Peer(id=identity, addrs=addresses))
    assert address == "" or address.startswith("/")


@given(st.binary(min_size=1, max_size=20))
def test_a_bad_address_does_not_hide_a_good_one(junk: bytes) -> None:
    """The good address after a bad one is found."""
    good = Multiaddr("/ip4/10.0.0.1/tcp/1").to_bytes()
    assert _dialable(Message.Peer(id=b"\x00\x01a", addrs=[b"\xff" + junk, good])) != ""


async def test_two_peers_find_each_other_through_a_third(network: Network) -> None:
    """Peers that know only a common third one are connected to each other, under the ids of the settings."""
    ids = ("/local/kad/1.0.0",)
    hub = await network.start(PeerSettings(dht=True, kad_protocols=(*ids, *KAD_PROTOCOLS)))
    seekers = await network.start(
        *(PeerSettings(dht=True, kad_protocols=ids, bootstrap=hub.addresses) for _ in range(2))
    )
    for peer in range(2):

        async def found(peer: int = peer) -> bool:
            return (await seekers.stats(peer)).connected_peers == 2

        await network.until(found)
    assert (await hub.stats()).connected_peers == 2
