"""The form of events on the service bus: which messages an event becomes, with which topic, session and id.

Every event is one message of its own kind. A block is, besides, one message for each event in its logs, of the
kind `Event`: consumers want an account's events in order, and few want whole blocks, which a bus often cannot carry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from millrace.chain import address
from millrace.notifier.brokers.item import Item
from millrace.notifier.rules.block_events import BLOCKS, read_block
from millrace.notifier.settings import EVENT

CONTENT_TYPE = "application/protobuf"
_ADDRESS_BYTES = 32
_MAX_ID = 128  # characters of a message id or a session id: the cloud's limit
_MAX_PROPERTY = 1024  # characters; the cloud's limit is on all of a message's properties together


class BusMessage(msgspec.Struct, frozen=True):
    """One message. The texts are those of the SDK's fields of the same names; properties are all text."""

    topic: str
    """The bus's topic."""
    subject: str
    """The kind of event."""
    session_id: str
    """Messages of one session are received in order."""
    message_id: str
    """The same whenever this message is sent."""
    properties: Mapping[str, str]
    body: bytes

    def without_body(self, reason: str) -> BusMessage:
        """What is sent in place of a message that the bus cannot carry."""
        return msgspec.structs.replace(self, body=b"", properties={**self.properties, "Omitted": reason})


def messages(item: Item, topics: Mapping[str, str]) -> Iterator[BusMessage]:
    """The messages of an event or a gap, in order; `topics` names the topic of each kind that is wanted.

    A gap goes to every topic.
    """
    if item.shard is None:
        for topic in sorted(set(topics.values())):
            yield _whole(item, topic)
        return
    if item.topic in topics:
        yield _whole(item, topics[item.topic])
    if item.topic in BLOCKS and EVENT in topics:
        yield from _events(item, topics[EVENT])


def _whole(item: Item, topic: str) -> BusMessage:
    return BusMessage(
        topic=topic,
        subject=item.topic,
        session_id=item.topic if item.shard is None else str(item.shard),
        message_id=_bounded(item.message_id),
        properties=_common(item, item.topic),
        body=item.payload,
    )


def _common(item: Item, kind: str) -> dict[str, str]:
    """The properties that every kind has."""
    common = {"Kind": kind, "Sequence": str(item.sequence)}
    if item.shard is not None:
        block = item.message_id.split(":")[2]
        common |= {"Shard": str(item.shard), "BlockHash": block, "Hash": block}
    if item.marks:
        common["Marks"] = str(item.marks)
    return common


def _events(item: Item, topic: str) -> Iterator[BusMessage]:
    """One message for each event of a block's logs."""
    block = read_block(item.payload)
    common = _common(item, EVENT)
    identity = f"{EVENT}:{item.message_id.partition(':')[2]}"
    place = 0
    for log in block.transactionPool.logs:
        transaction = log.txHash[:_MAX_PROPERTY]
        for event in log.log.events:
            place += 1
            account = _address(event.address)
            yield BusMessage(
                topic=topic,
                subject=EVENT,
                session_id=_bounded(account or str(item.shard)),
                message_id=_bounded(f"{identity}:{place}"),
                properties=common
                | {
                    "Address": account[:_MAX_PROPERTY],
                    "Identifier": _text(event.identifier)[:_MAX_PROPERTY],
                    "Hash": transaction,
                    "OriginalTxHash": transaction,
                },
                body=event.SerializeToString(deterministic=True),
            )


def _address(raw: bytes) -> str:
    """Bech32; what is no address in hex."""
    return address.encode(raw) if len(raw) == _ADDRESS_BYTES else raw.hex()


def _text(raw: bytes) -> str:
    """UTF-8, or `hex:…` as in subscriptions."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "hex:" + raw.hex()


def _bounded(identity: str) -> str:
    """Of any length in, of a length that the bus takes out; different ones stay different."""
    return identity if len(identity) <= _MAX_ID else hashlib.blake2b(identity.encode(), digest_size=32).hexdigest()
