"""What a node's message is about, taken out of its payload once."""

from __future__ import annotations

import hashlib

import msgspec
from google.protobuf.message import DecodeError, Message

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb

_HASH_SIZE = 32
_MAX_RESULTS = 4096  # in a block; nodes bring 20 at most
_MAX_EVENTS = 200_000  # in a block; several times what a block's gas can pay for, so more is no honest block
_MIN_EVENT = 2  # bytes that an event takes, or a log, if it holds nothing


class Undecodable(ValueError):
    """A payload is not what its topic promises; the text says what is wrong."""


class Decoded(msgspec.Struct, frozen=True):
    """A payload and what the rules need to know of it."""

    topic: str
    message: Message
    """An `UnreadBlock` for a block whose maps have keys that are no text: it is passed on as it came."""
    shard: int
    block_hash: bytes = b""
    """Raw; empty for messages that belong to no block."""


def decode(topic: str, payload: bytes) -> Decoded:
    """Decode the payload of a known topic. Raises `Undecodable`."""
    try:
        message = outport.decode_payload(topic, payload)
    except outport.OutportError as error:
        if topic == outport.SAVE_BLOCK:
            return _unread(payload, str(error))
        raise Undecodable(str(error)) from None
    if isinstance(message, pb.OutportBlock):
        if len(message.blockData.results) > _MAX_RESULTS:
            raise Undecodable(f"a block with more than {_MAX_RESULTS} results")
        if len(payload) > _MIN_EVENT * _MAX_EVENTS and _count_events(message) > _MAX_EVENTS:
            raise Undecodable(f"a block with more than {_MAX_EVENTS} events")
        return Decoded(topic, message, message.shardID, _hash_of_block(message.blockData))
    if isinstance(message, pb.BlockData):
        return Decoded(topic, message, message.shardID, _hash_of_block(message))
    if isinstance(message, pb.FinalizedBlock):
        return Decoded(topic, message, message.shardID, _checked(message.headerHash))
    return Decoded(topic, message, outport.shard_of_payload(payload))


def _count_events(block: pb.OutportBlock) -> int:
    """Events, and the logs that they are in."""
    pools = [block.transactionPool, *(result.transactionPool for result in block.blockData.results.values())]
    return sum(1 + len(log.log.events) for pool in pools for log in pool.logs)


def _unread(payload: bytes, reason: str) -> Decoded:
    """A block of which only its name can be read. Raises `Undecodable` with the reason when not even that."""
    try:
        block = pb.UnreadBlock.FromString(payload)
    except DecodeError:
        raise Undecodable(reason) from None
    return Decoded(outport.SAVE_BLOCK, block, block.shardID, _hash_of_block(block.blockData))


def content_digest(message: Message) -> bytes:
    """16 bytes that two nodes agree on when they tell the same, of whatever versions; of blocks see `slices`."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    # Deterministic: the order of map entries is the sender's whim.
    return hashlib.blake2b(known.SerializeToString(deterministic=True), digest_size=16).digest()


def _hash_of_block(block: pb.BlockData | pb.UnreadBlockData) -> bytes:
    if block.headerHash:
        return _checked(block.headerHash)
    if not block.headerBytes:
        raise Undecodable("a block without header and header hash")
    return hashlib.blake2b(block.headerBytes, digest_size=_HASH_SIZE).digest()


def _checked(block_hash: bytes) -> bytes:
    if len(block_hash) != _HASH_SIZE:
        raise Undecodable(f"a header hash of {len(block_hash)} bytes")
    return block_hash
