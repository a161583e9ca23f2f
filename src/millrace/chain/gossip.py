"""What travels inside gossip messages: the wrapper with its time, transactions, what nodes say of themselves.

Rules of mx-chain-communication-go 1.3.0 and mx-chain-go 1.11.5. A receiver black-lists whoever breaks them, so the
same rules are checked on both sides here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError

from millrace.chain.proto import p2p_pb2 as pb
from millrace.chain.shard import METACHAIN

VERSION = 1
MAX_MESSAGE = 2 * 1024 * 1024 - 64 * 1024
"""Bytes of one gossip message that a node accepts."""
MAX_BATCH = 256 * 1024
"""Bytes of payloads in one batch; a larger single transaction travels alone."""
OLDEST_SECONDS, NEWEST_SECONDS = 600, 20
"""A message's time must lie within these bounds around the receiver's clock."""
MAX_TEXT = 128
"""Bytes of any one field of a heartbeat or peer authentication."""
PUBLIC_KEY_BYTES = 96
PEER_SUBTYPES = (0, 1)
HEARTBEAT_SECONDS = 60
PEER_AUTHENTICATION_TOPIC = "peerAuthentication"
CONNECTION_TOPIC = "connection"

T = TypeVar("T")


class GossipError(ValueError):
    """A gossip message breaks a rule of the network."""


class Heartbeat(msgspec.Struct, frozen=True):
    """What a node says of itself every minute."""

    public_key: bytes
    """96-byte BLS key; the message does not prove it."""
    timestamp: int
    """Seconds since the epoch."""
    version: str = ""
    name: str = ""
    identity: str = ""
    nonce: int = 0
    peer_subtype: int = 0
    """0 a regular node, 1 one with the full history."""
    trie_nodes_synced: int = 0


class PeerAuthentication(msgspec.Struct, frozen=True):
    """A validator's proof that its BLS key and its peer id belong together; the signatures are not checked here."""

    public_key: bytes
    """96-byte BLS key."""
    signature: bytes
    """BLS signature over the peer id."""
    peer_id: bytes
    timestamp: int
    """Seconds since the epoch."""
    payload_signature: bytes
    """The peer's own signature over the payload, which holds the time."""
    hardfork_message: str = ""


def wrap(payload: bytes, now: int) -> bytes:
    """The data of a gossip message: the payload with version and time (seconds since the epoch).

    Raises `GossipError` when the message would be larger than nodes accept.
    """
    data = pb.TopicMessage(Version=VERSION, Payload=payload, Timestamp=now).SerializeToString()
    if len(data) > MAX_MESSAGE:
        raise GossipError(f"a gossip message of {len(data)} bytes; {MAX_MESSAGE} are accepted")
    return data


def unwrap(data: bytes, now: int) -> bytes:
    """The payload of a gossip message's data. Raises `GossipError` when a rule is broken."""
    if len(data) > MAX_MESSAGE:
        raise GossipError("message too large")
    try:
        message = pb.TopicMessage.FromString(data)
    except DecodeError:
        raise GossipError("not a TopicMessage") from None
    if message.Version != VERSION:
        raise GossipError(f"unknown message version {message.Version}")
    if message.Pk or message.SignatureOnPid:
        raise GossipError("a message carries no key of its own")
    if not now - OLDEST_SECONDS <= message.Timestamp <= now + NEWEST_SECONDS:
        raise GossipError("message too old or from the future")
    return message.Payload


def wrap_transactions(transactions: list[bytes], now: int) -> bytes:
    """One gossip message with a batch of protobuf transactions, all of senders in the same shard."""
    if not transactions:
        raise GossipError("an empty batch")
    return wrap(pb.Batch(data=transactions).SerializeToString(), now)


def unwrap_transactions(data: bytes, now: int) -> list[bytes]:
    """The protobuf transactions of a gossip message. Raises `GossipError` when a rule is broken."""
    try:
        batch = pb.Batch.FromString(unwrap(data, now))
    except DecodeError:
        raise GossipError("not a Batch") from None
    if not batch.data or any(not item for item in batch.data):
        raise GossipError("an empty batch")
    return list(batch.data)


def split_batches(items: Iterable[bytes], limit: int = MAX_BATCH) -> list[list[bytes]]:
    """Items in their order, cut into batches whose payloads stay below `limit` bytes; a larger one goes alone."""
    batches: list[list[bytes]] = []
    size = 0
    for item in items:
        if not batches or size + len(item) >= limit:
            batches.append([])
            size = 0
        batches[-1].append(item)
        size += len(item)
    return batches


def group_by(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Items by topic, order kept: sender shards never share a batch, or its receiver refuses all of it."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def observer_key(peer_id: str) -> bytes:
    """The 96 bytes that a peer which is no validator names as its BLS key in heartbeats.

    Nodes check their number, and tell observers apart by them; nothing is ever signed with them. They follow from
    the peer id, so that they stay as long as the identity does, and need no secret.
    """
    return hashlib.shake_256(b"millrace observer\x00" + peer_id.encode()).digest(PUBLIC_KEY_BYTES)


def wrap_heartbeat(beat: Heartbeat, now: int) -> bytes:
    """One gossip message with a heartbeat, which travels bare. Raises `GossipError` for what nodes refuse."""
    stamp = pb.Payload(Timestamp=beat.timestamp).SerializeToString()
    message = pb.HeartbeatV2(
        Payload=stamp,
        VersionNumber=beat.version,
        NodeDisplayName=beat.name,
        Identity=beat.identity,
        Nonce=beat.nonce,
        PeerSubType=beat.peer_subtype,
        Pubkey=beat.public_key,
        NumTrieNodesSynced=beat.trie_nodes_synced,
    )
    _check_heartbeat(message)
    return wrap(message.SerializeToString(), now)


def unwrap_heartbeat(data: bytes, now: int) -> Heartbeat:
    """The heartbeat of a gossip message. Raises `GossipError` when a rule is broken."""
    try:
        message = pb.HeartbeatV2.FromString(unwrap(data, now))
        stamp = pb.Payload.FromString(message.Payload)
    except DecodeError:
        raise GossipError("not a heartbeat") from None
    _check_heartbeat(message)
    return Heartbeat(
        public_key=message.Pubkey,
        timestamp=stamp.Timestamp,
        version=message.VersionNumber,
        name=message.NodeDisplayName,
        identity=message.Identity,
        nonce=message.Nonce,
        peer_subtype=message.PeerSubType,
        trie_nodes_synced=message.NumTrieNodesSynced,
    )


def _check_heartbeat(message: pb.HeartbeatV2) -> None:
    _require_lengths(1, message.Payload, message.VersionNumber.encode(), message.Pubkey)
    _require_lengths(0, message.NodeDisplayName.encode(), message.Identity.encode())
    if message.PeerSubType not in PEER_SUBTYPES:
        raise GossipError(f"unknown peer subtype {message.PeerSubType}")


def wrap_peer_authentication(proof: PeerAuthentication, now: int) -> bytes:
    """One gossip message with a validator's proof, which travels in a batch of one."""
    stamp = pb.Payload(Timestamp=proof.timestamp, HardforkMessage=proof.hardfork_message).SerializeToString()
    message = pb.PeerAuthentication(
        Pubkey=proof.public_key,
        Signature=proof.signature,
        Pid=proof.peer_id,
        Payload=stamp,
        PayloadSignature=proof.payload_signature,
    )
    return wrap(pb.Batch(data=[message.SerializeToString()]).SerializeToString(), now)


def unwrap_peer_authentication(data: bytes, now: int) -> PeerAuthentication:
    """The proof in a gossip message. Raises `GossipError` when a rule is broken, but checks no signature."""
    items = unwrap_transactions(data, now)
    if len(items) != 1:
        raise GossipError("peer authentications travel one by one")
    try:
        message = pb.PeerAuthentication.FromString(items[0])
        stamp = pb.Payload.FromString(message.Payload)
    except DecodeError:
        raise GossipError("not a peer authentication") from None
    _require_lengths(1, message.Pubkey, message.Signature, message.Pid, message.Payload, message.PayloadSignature)
    return PeerAuthentication(
        public_key=message.Pubkey,
        signature=message.Signature,
        peer_id=message.Pid,
        timestamp=stamp.Timestamp,
        payload_signature=message.PayloadSignature,
        hardfork_message=stamp.HardforkMessage,
    )


def wrap_peer_shard(shard: int, now: int) -> bytes:
    """One gossip message that says which shard its sender serves; it travels bare, the shard in decimal text."""
    return wrap(pb.PeerShard(shardId=str(shard)).SerializeToString(), now)


def unwrap_peer_shard(data: bytes, now: int) -> int:
    """The shard in a gossip message. Raises `GossipError` when a rule is broken."""
    try:
        text = pb.PeerShard.FromString(unwrap(data, now)).shardId
    except DecodeError:
        raise GossipError("not a peer's shard") from None
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > METACHAIN:
        raise GossipError("a shard is a decimal number of 32 bits")
    return int(text)


def _require_lengths(least: int, *items: bytes) -> None:
    if any(not least <= len(item) <= MAX_TEXT for item in items):
        raise GossipError(f"a field of fewer than {least} or more than {MAX_TEXT} bytes")
