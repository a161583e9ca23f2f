"""What travels inside gossip messages, against bytes written by the Go code and the receivers' rules."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import gossip
from millrace.chain.gossip import GossipError, Heartbeat, PeerAuthentication
from millrace.chain.network import profile
from millrace.chain.proto import p2p_pb2
from millrace.chain.transaction import chain_hash, from_proto

VECTORS: dict[str, dict[str, Any]] = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "outport.json").read_text())["messages"]
}
NOW = 1_800_000_000


def published(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["protobufHex"])


def test_a_published_batch() -> None:
    """The reference message unwraps to its transactions, which are canonical, and wraps to the same bytes."""
    data = published("p2p-topic-message")
    now = p2p_pb2.TopicMessage.FromString(data).Timestamp
    items = gossip.unwrap_transactions(data, now)
    assert len(items) == 2
    assert all(len(chain_hash(from_proto(item))) == 32 for item in items)
    assert gossip.wrap_transactions(items, now) == data


def test_a_published_peer_authentication() -> None:
    """The reference batch of one is read, and written to the same bytes."""
    batch = published("peer-authentication-batch")
    proof = gossip.unwrap_peer_authentication(gossip.wrap(batch, NOW), NOW)
    assert len(proof.public_key) == 96
    assert gossip.wrap_peer_authentication(proof, NOW) == gossip.wrap(batch, NOW)


def test_a_published_peer_shard() -> None:
    """The reference announcement is shard 1, in decimal text."""
    assert gossip.wrap_peer_shard(1, NOW) == gossip.wrap(published("peer-shard"), NOW)
    assert gossip.unwrap_peer_shard(gossip.wrap(published("peer-shard"), NOW), NOW) == 1


def test_the_published_time_in_a_heartbeat() -> None:
    """A heartbeat holds its time as the reference payload."""
    beat = Heartbeat(public_key=b"k" * 96, timestamp=1_775_000_000, version="v1")
    message = p2p_pb2.HeartbeatV2.FromString(gossip.unwrap(gossip.wrap_heartbeat(beat, NOW), NOW))
    assert message.Payload == published("heartbeat-payload")


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=10))
def test_batches_are_inverse(items: list[bytes]) -> None:
    """Wrapped transactions come out as they went in."""
    assert gossip.unwrap_transactions(gossip.wrap_transactions(items, NOW), NOW) == items


def test_nothing_unacceptable_is_sent() -> None:
    """An empty batch and a message beyond the size that nodes accept are refused before they are sent."""
    with pytest.raises(GossipError, match="empty"):
        gossip.wrap_transactions([], NOW)
    with pytest.raises(GossipError, match="accepted"):
        gossip.wrap_transactions([bytes(gossip.MAX_MESSAGE)], NOW)


@pytest.mark.parametrize(
    "data",
    [
        p2p_pb2.TopicMessage(Version=2, Payload=b"x", Timestamp=NOW).SerializeToString(),
        p2p_pb2.TopicMessage(Payload=b"x", Timestamp=NOW).SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW - 601).SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW + 21).SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=-(2**63)).SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW, Pk=b"k").SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW, SignatureOnPid=b"k").SerializeToString(),
        b"",
        b"\xff",
        bytes(gossip.MAX_MESSAGE + 1),
    ],
    ids=["version", "no version", "old", "ahead", "long ago", "key", "signature", "nothing", "noise", "size"],
)
def test_broken_wrappers_are_refused(data: bytes) -> None:
    """Another version, a time outside the window, a key of its own, noise and size break the wrapper's rules."""
    with pytest.raises(GossipError):
        gossip.unwrap(data, NOW)


@pytest.mark.parametrize("payload", [b"", b"\xff", p2p_pb2.Batch(data=[b"a", b""]).SerializeToString()])
def test_broken_batches_are_refused(payload: bytes) -> None:
    """An empty batch, an empty item and noise would get their sender black-listed: refused."""
    with pytest.raises(GossipError):
        gossip.unwrap_transactions(gossip.wrap(payload, NOW), NOW)


def test_the_time_window_is_inclusive() -> None:
    """Ten minutes old and twenty seconds ahead are still taken."""
    for time in (NOW - 600, NOW + 20):
        assert gossip.unwrap(gossip.wrap(b"x", time), NOW) == b"x"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=40), st.integers(1, 100))
def test_batches_are_bounded_and_complete(items: list[bytes], limit: int) -> None:
    """Splitting keeps every item in order; a batch stays below the limit unless a single item is larger."""
    batches = gossip.split_batches(items, limit)
    assert [item for batch in batches for item in batch] == items
    assert all(len(batch) == 1 or sum(map(len, batch)) < limit for batch in batches)
    assert all(sum(map(len, left)) + len(right[0]) >= limit for left, right in pairwise(batches))


def test_batches_stay_below_the_networks_limit() -> None:
    """By default a batch has less than 256 KiB of transactions, and a larger transaction travels alone."""
    batches = gossip.split_batches([b"x" * 1000] * 600 + [b"y" * 300_000] + [b"z"])
    assert [len(batch) for batch in batches] == [262, 262, 76, 1, 1]
    assert all(len(gossip.wrap_transactions(batch, NOW)) < gossip.MAX_MESSAGE for batch in batches)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40), st.sampled_from(["documented", "mainnet"])
)
def test_sender_shards_never_mix(routes: list[tuple[int, int]], name: str) -> None:
    """Grouped by their topic, transactions of two sender shards never share a batch, and none is lost."""
    network = profile(name)
    groups = gossip.group_by(routes, lambda route: network.transactions_topic(*route))
    assert all(len({sender for sender, _ in group}) == 1 for group in groups.values())
    assert sorted(route for group in groups.values() for route in group) == sorted(routes)
    assert all(group == [route for route in routes if route in group] for group in groups.values())


heartbeats = st.builds(
    Heartbeat,
    public_key=st.binary(min_size=1, max_size=128),
    timestamp=st.integers(1, 2**62),
    version=st.text("abcé", min_size=1, max_size=64),
    name=st.text("abcé", max_size=64),
    identity=st.text("abcé", max_size=64),
    nonce=st.integers(0, 2**64 - 1),
    peer_subtype=st.integers(0, 1),
    trie_nodes_synced=st.integers(0, 2**64 - 1),
)


@given(heartbeats)
def test_heartbeats_are_inverse(beat: Heartbeat) -> None:
    """A heartbeat comes out as it went in."""
    assert gossip.unwrap_heartbeat(gossip.wrap_heartbeat(beat, NOW), NOW) == beat


@pytest.mark.parametrize(
    "broken",
    [
        Heartbeat(public_key=b"", timestamp=NOW, version="v1"),
        Heartbeat(public_key=b"k" * 129, timestamp=NOW, version="v1"),
        Heartbeat(public_key=b"k" * 96, timestamp=NOW, version=""),
        Heartbeat(public_key=b"k" * 96, timestamp=0, version="v1"),
        Heartbeat(public_key=b"k" * 96, timestamp=NOW, version="v1", name="n" * 129),
        Heartbeat(public_key=b"k" * 96, timestamp=NOW, version="v1", name="é" * 65),
        Heartbeat(public_key=b"k" * 96, timestamp=NOW, version="v1", identity="i" * 129),
        Heartbeat(public_key=b"k" * 96, timestamp=NOW, version="v1", peer_subtype=2),
    ],
)
def test_impossible_heartbeats_are_refused(broken: Heartbeat) -> None:
    """Missing and overlong fields, counted in bytes, and unknown kinds of peers are refused."""
    with pytest.raises(GossipError):
        gossip.unwrap_heartbeat(gossip.wrap_heartbeat(broken, NOW), NOW)


PROOF = PeerAuthentication(b"k" * 96, b"s" * 48, b"p" * 38, NOW, b"t" * 70)
PROOF_ITEMS = gossip.unwrap_transactions(gossip.wrap_peer_authentication(PROOF, NOW), NOW)


@pytest.mark.parametrize(
    "data",
    [
        gossip.wrap_transactions([b"a"], NOW),
        gossip.wrap_transactions([p2p_pb2.PeerAuthentication(Pubkey=b"k").SerializeToString()], NOW),
        gossip.wrap_transactions([p2p_pb2.PeerAuthentication(Payload=b"\xff").SerializeToString()], NOW),
        gossip.wrap_peer_authentication(PeerAuthentication(b"k" * 129, b"s", b"p", NOW, b"t"), NOW),
        gossip.wrap_transactions(PROOF_ITEMS * 2, NOW),
    ],
    ids=["noise", "missing fields", "broken payload", "overlong", "two at once"],
)
def test_impossible_peer_authentications_are_refused(data: bytes) -> None:
    """A proof travels alone and complete; everything else is refused."""
    assert gossip.unwrap_peer_authentication(gossip.wrap_peer_authentication(PROOF, NOW), NOW) == PROOF
    with pytest.raises(GossipError):
        gossip.unwrap_peer_authentication(data, NOW)


@pytest.mark.parametrize("text", ["", "-1", "x", "1.0", "٣", "4294967296", "1" * 5000])
def test_impossible_peer_shards_are_refused(text: str) -> None:
    """A shard is a decimal number of 32 bits."""
    with pytest.raises(GossipError):
        gossip.unwrap_peer_shard(gossip.wrap(p2p_pb2.PeerShard(shardId=text).SerializeToString(), NOW), NOW)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    """Arbitrary bytes, bare or inside a valid wrapper, raise GossipError or are read; nothing else happens."""
    for unwrap in (
        gossip.unwrap_transactions,
        gossip.unwrap_heartbeat,
        gossip.unwrap_peer_authentication,
        gossip.unwrap_peer_shard,
    ):
        for message in (data, gossip.wrap(data, NOW)):
            try:
                unwrap(message, NOW)
            except GossipError:
                continue
