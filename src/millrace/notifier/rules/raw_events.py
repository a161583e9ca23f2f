"""Events as the bytes that nodes wrote: what shows in them, and what has to be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import EventKey, KeyedLogData, SlicedLogData

MULTI_TRANSFER = b"MultiESDTNFTTransfer"
TRANSFERS = frozenset((b"ESDTTransfer", b"ESDTNFTTransfer", MULTI_TRANSFER, b"transferValueOnly"))
FAILURES = frozenset((b"signalError", b"internalVMErrors"))

IN_TRANSFERS, IN_FAILURES = b"ransfer", b"Error"
"""What each of these identifiers holds: bytes without it hold no such event."""


def identifier_of(event: bytes) -> bytes:
    """As protobuf reads it, wherever and however often it is written."""
    return pb.Event.FromString(event).identifier


def events_of(log: bytes) -> Sequence[bytes]:
    """The events of a log (`SlicedLogData`)."""
    return SlicedLogData.FromString(log).log.events


def hash_of(event: bytes) -> int:
    """Of an event's address, identifier and topics: equal for the two tellings of one transfer.

    Python's hash, whose secret is new in every process: 64 bits that nobody can aim at, so two of all the transfers
    of a transaction that are remembered are the same less than once in a thousand million notifiers.
    """
    key = EventKey.FromString(event)
    key.DiscardUnknownFields()
    return hash(key.SerializeToString())


def transfers_of(logs: Sequence[bytes]) -> list[list[int]]:
    """The same hashes of the transfers in each of these logs (`SlicedLogData`).

    All are read at once: logs that stand one behind the other are one log with the events of all. Each by itself took
    three times as long.
    """
    counts = [len(events_of(log)) for log in logs]
    read = KeyedLogData.FromString(b"".join(logs))
    read.DiscardUnknownFields()
    events = iter(read.log.events)
    return [
        [hash(event.SerializeToString()) for event in islice(events, count) if event.identifier in TRANSFERS]
        for count in counts
    ]
