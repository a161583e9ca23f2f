"""Node events: topics, the envelope around them, headers by their type, and Go's habit of writing empty numbers.

The messages themselves are in `chain.proto.outport_pb2`. Format: mx-chain-communication-go 1.3.2 (envelope),
mx-chain-core-go 1.5.1 (payloads). An envelope on the wire is one binary WebSocket frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from google.protobuf.message import DecodeError, Message

from millrace.chain.proto import outport_pb2 as pb

SAVE_BLOCK = "SaveBlock"
FINALIZED_BLOCK = "FinalizedBlock"
REVERT_INDEXED_BLOCK = "RevertIndexedBlock"
SAVE_ACCOUNTS = "SaveAccounts"
SAVE_ROUNDS_INFO = "SaveRoundsInfo"
SAVE_VALIDATORS_PUB_KEYS = "SaveValidatorsPubKeys"
SAVE_VALIDATORS_RATING = "SaveValidatorsRating"
SETTINGS = "Settings"
EXECUTED_BLOCK = "ExecutedBlock"
"""Of the notifier's hub, not of nodes: a header's execution, told as a block that was executed when it was made."""

PAYLOADS: dict[str, type[Message]] = {
    SAVE_BLOCK: pb.OutportBlock,
    FINALIZED_BLOCK: pb.FinalizedBlock,
    REVERT_INDEXED_BLOCK: pb.BlockData,
    SAVE_ACCOUNTS: pb.Accounts,
    SAVE_ROUNDS_INFO: pb.RoundsInfo,
    SAVE_VALIDATORS_PUB_KEYS: pb.ValidatorsPubKeys,
    SAVE_VALIDATORS_RATING: pb.ValidatorsRating,
    SETTINGS: pb.OutportConfig,
}
"""The message of each topic."""

ACK, PAYLOAD = 1, 2
VERSION = 1

AnyHeader: TypeAlias = pb.Header | pb.HeaderV2 | pb.MetaBlock | pb.HeaderV3 | pb.MetaBlockV3
HEADERS: dict[str, type[AnyHeader]] = {
    "Header": pb.Header,
    "HeaderV2": pb.HeaderV2,
    "MetaBlock": pb.MetaBlock,
    "HeaderV3": pb.HeaderV3,
    "MetaBlockV3": pb.MetaBlockV3,
}

# Fields that Go writes even when they hold nothing: big integers as one zero byte, two messages as empty ones.
_BIG_INTEGERS = {
    "Transaction": ("value",),
    "SmartContractResult": ("value", "relayedValue"),
    "RewardTx": ("value",),
    "Receipt": ("value",),
    "FeeInfo": ("fee", "initialPaidFee"),
    "Header": ("accumulatedFees", "developerFees"),
    "HeaderV2": ("scheduledAccumulatedFees", "scheduledDeveloperFees"),
    "MetaBlock": ("accumulatedFees", "accumulatedFeesInEpoch", "developerFees", "devFeesInEpoch"),
    "ShardData": ("accumulatedFees", "developerFees"),
    "PeerData": ("valueChange",),
    "Economics": ("totalSupply", "totalToDistribute", "totalNewlyMinted", "rewardsPerBlock",
                  "rewardsForProtocolSustainability", "nodePrice"),
    "ExecutionResult": ("developerFees", "accumulatedFees"),
    "BaseMetaExecutionResult": ("accumulatedFeesInEpoch", "devFeesInEpoch"),
    "MetaExecutionResult": ("developerFees", "accumulatedFees"),
}  # fmt: skip
_ALWAYS_PRESENT = {"MetaBlock": ("epochStart",), "MetaBlockV3": ("epochStart",), "EpochStart": ("economics",)}


class OutportError(ValueError):
    """Bytes are not the message they should be."""


def payload_envelope(topic: str, payload: bytes, counter: int, *, with_acknowledge: bool = True) -> bytes:
    """The frame that carries a payload; `counter` comes back in the acknowledgement."""
    return pb.WsMessage(
        withAcknowledge=with_acknowledge,
        counter=counter,
        type=PAYLOAD,
        payload=payload,
        topic=topic,
        version=VERSION,
    ).SerializeToString()


def ack_envelope(counter: int, traces: Sequence[str] = ()) -> bytes:
    """The frame that acknowledges the payload with this counter; it is about transactions with these traces."""
    return pb.WsMessage(counter=counter, type=ACK, traces=traces).SerializeToString()


def decode_envelope(frame: bytes) -> pb.WsMessage:
    """The envelope in a frame. Raises `OutportError`."""
    try:
        return pb.WsMessage.FromString(frame)
    except DecodeError:
        raise OutportError("not a WsMessage") from None


def decode_payload(topic: str, payload: bytes) -> Message:
    """The message of a known topic. Raises `OutportError` for an unknown topic or undecodable bytes."""
    kind = PAYLOADS.get(topic)
    if kind is None:
        raise OutportError(f"unknown topic {topic[:64]!r}")
    try:
        return kind.FromString(payload)
    except DecodeError:
        raise OutportError(f"not a {kind.DESCRIPTOR.name}") from None


def shard_of_payload(payload: bytes) -> int:
    """The shard a payload comes from: field 1 of every topic's message. Raises `OutportError`."""
    try:
        return pb.Shard.FromString(payload).shardID
    except DecodeError:
        raise OutportError("not a message with a shard id") from None


def decode_header(header_type: str, header: bytes) -> AnyHeader | None:
    """The header of a block, or `None` for a type this version does not know or bytes it cannot read.

    Newer nodes send newer header types; the rest of their blocks is still useful.
    """
    kind = HEADERS.get(header_type)
    if kind is None:
        return None
    try:
        return kind.FromString(header)
    except DecodeError:
        return None


def decode_reserved(header: pb.MiniBlockHeader) -> pb.MiniBlockHeaderReserved:
    """How much of a miniblock was executed: the reserved field, or its meaning when it is empty (all of it).

    Raises `OutportError` for a reserved field that is something else.
    """
    if not header.reserved:
        return pb.MiniBlockHeaderReserved(indexOfLastTxProcessed=max(0, header.txCount - 1))
    try:
        return pb.MiniBlockHeaderReserved.FromString(header.reserved)
    except DecodeError:
        raise OutportError("not a MiniBlockHeaderReserved") from None


def serialize(message: Message) -> bytes:
    """The bytes as a Go node writes them: map keys sorted, empty big integers and messages written.

    The empty fields are filled in the message itself, see `fill_empty`.
    """
    fill_empty(message)
    return canonical(message)


def canonical(message: Message) -> bytes:
    """The bytes with map entries in Go's order, and nothing filled in.

    Protobuf sorts keys of type uint32 as if they were signed, which puts the metachain's before shard 0's.
    """
    if not isinstance(message, pb.ValidatorsPubKeys):
        return message.SerializeToString(deterministic=True)
    entries = [
        pb.ValidatorsPubKeys(validatorsPubKeys={shard: message.validatorsPubKeys[shard]})
        for shard in sorted(message.validatorsPubKeys)
    ]
    first = pb.ValidatorsPubKeys(shardID=message.shardID)
    rest = pb.ValidatorsPubKeys()
    rest.CopyFrom(message)
    rest.ClearField("shardID")
    rest.ClearField("validatorsPubKeys")
    return b"".join(part.SerializeToString() for part in (first, *entries, rest))


def fill_empty(message: Message) -> None:
    """Give every empty big integer inside a message its absent form and make always-written messages present."""
    name = message.DESCRIPTOR.name
    for field in _BIG_INTEGERS.get(name, ()):
        if not getattr(message, field):
            setattr(message, field, b"\0")
    for field in _ALWAYS_PRESENT.get(name, ()):
        getattr(message, field).SetInParent()
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            entries = value.values() if descriptor.message_type.fields_by_name["value"].message_type else ()
        else:
            entries = value if descriptor.is_repeated else (value,)
        for entry in entries:
            fill_empty(entry)
