"""Topics of /ws: from their text to a typed value, or to the exact reason why not."""

from __future__ import annotations

import re

import msgspec

from millrace.chain import address
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused

GAS_STATS = "gasStats"
NETWORK_STATS = "networkStats"
ACCOUNTS = "accounts"
ALL_GAS_STATS = "gasStats/all"
"""All shards in one message each time, instead of one message for each."""
DEFLATED_GAS_STATS, DEFLATED_NETWORK_STATS = "gasStats/all/deflate", "networkStats/deflate"
"""The same, and `networkStats`, as a binary message: the JSON text in zlib's format (RFC 1950)."""
STREAMS = GAS_STATS, NETWORK_STATS, ALL_GAS_STATS, DEFLATED_GAS_STATS, DEFLATED_NETWORK_STATS
"""Streams of statistics."""
_ADDRESS = "address/"
_TX_STATUS = "tx-status/"
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


class TxStatusTopic(msgspec.Struct, frozen=True, gc=False):
    """The fate of one transaction, told once. Topics of different kinds are never equal, whatever their bytes."""

    tx_hash: bytes


class AddressTopic(msgspec.Struct, frozen=True, gc=False):
    """Balance and nonce of one account."""

    pubkey: bytes


class StreamTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic without parameters."""

    name: str


Topic = TxStatusTopic | AddressTopic | StreamTopic


def parse(text: str) -> Topic:
    """The topic a client names. Raises `Refused`."""
    if text in STREAMS or text == ACCOUNTS:
        return StreamTopic(text)
    if text.startswith(_ADDRESS):
        try:
            return AddressTopic(address.decode(text[len(_ADDRESS) :]))
        except address.AddressError as error:
            raise Refused(reasons.INVALID_TOPIC_ADDRESS.but(str(error))) from None
    if text.startswith(_TX_STATUS):
        if not _HASH.fullmatch(text, len(_TX_STATUS)):
            raise Refused(reasons.INVALID_TOPIC_HASH.but("a hash is 64 lower-case hex digits"))
        return TxStatusTopic(bytes.fromhex(text[len(_TX_STATUS) :]))
    known = f"{', '.join(STREAMS)}, {ACCOUNTS}, address/{{bech32}}, tx-status/{{hash}}"
    raise Refused(reasons.UNKNOWN_TOPIC.but(f"known topics are {known}"))


def text_of(topic: Topic) -> str:
    """The topic as clients write it."""
    match topic:
        case TxStatusTopic(tx_hash):
            return _TX_STATUS + tx_hash.hex()
        case AddressTopic(pubkey):
            return _ADDRESS + address.encode(pubkey)
        case StreamTopic(name):
            return name
