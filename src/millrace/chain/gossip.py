"""What travels inside gossip messages: the wrapper with its time, batches of transactions, heartbeats.

Rules of mx-chain-communication-go 1.3.0 and mx-chain-go 1.11.5. A receiver black-lists whoever breaks them, so the
same rules are checked on both sides here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError

from millrace.chain.proto import p2p_pb2 as pb

VERSION = 1
MAX_MESSAGE = 2 * 1024 * 1024 - 64 * 1024
"""Bytes of one gossip message that a node accepts."""
MAX_BATCH = 256 * 1024
"""Bytes of payloads in one batch; a larger single transaction travels alone."""
OLDEST_SECONDS, NEWEST_SECONDS = 600, 20
"""A message's time must lie within these bounds around the receiver's clock."""
MAX_TEXT = 128
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


def wrap(payload: bytes, now: int) -> bytes:
    """The data of a gossip message: the payload with version and time (seconds since the epoch)."""
    return pb.TopicMessage(Version=VERSION, Payload=payload, Timestamp=now).SerializeToString()


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


def wrap_heartbeat(beat: Heartbeat, now: int) -> bytes:
    """One gossip message with a heartbeat, which travels bare."""
    stamp = pb.Payload(Timestamp=beat.timestamp).SerializeToString()
    message = pb.HeartbeatV2(
        Payload=stamp,
        VersionNumber=beat.version,
        NodeDisplayName=beat.name,
        Identity=beat.identity,
        Nonce=beat.nonce,
        PeerSubType=beat.peer_subtype,
        Pubkey=beat.public_key,
    )
    return wrap(message.SerializeToString(), now)


def unwrap_heartbeat(data: bytes, now: int) -> Heartbeat:
    """The heartbeat of a gossip message. Raises `GossipError` when a rule is broken."""
    try:
        message = pb.HeartbeatV2.FromString(unwrap(data, now))
        stamp = pb.Payload.FromString(message.Payload)
    except DecodeError:
        raise GossipError("not a heartbeat") from None
    required = (message.Payload, message.VersionNumber, message.Pubkey)
    optional = (message.NodeDisplayName, message.Identity)
    if any(not 1 <= len(item) <= MAX_TEXT for item in required) or any(len(item) > MAX_TEXT for item in optional):
        raise GossipError("a heartbeat's field has an impossible length")
    return Heartbeat(
        public_key=message.Pubkey,
        timestamp=stamp.Timestamp,
        version=message.VersionNumber,
        name=message.NodeDisplayName,
        identity=message.Identity,
        nonce=message.Nonce,
        peer_subtype=message.PeerSubType,
    )
