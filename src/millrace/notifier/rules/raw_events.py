"""Events as the bytes that nodes wrote: what shows in them, and what has to be decoded."""

from __future__ import annotations

from millrace.chain.proto import outport_pb2 as pb

MULTI_TRANSFER = b"MultiESDTNFTTransfer"
TRANSFERS = frozenset((b"ESDTTransfer", b"ESDTNFTTransfer", MULTI_TRANSFER, b"transferValueOnly"))
FAILURES = frozenset((b"signalError", b"internalVMErrors"))

IN_TRANSFERS, IN_FAILURES = b"ransfer", b"Error"
"""What each of these identifiers holds: bytes without it hold no such event."""


def identifier_of(event: bytes) -> bytes:
    """As protobuf reads it, wherever and however often it is written."""
    return pb.Event.FromString(event).identifier


def hash_of(event: bytes) -> int:
    """Of an event's address, identifier and topics: equal for the two tellings of one transfer.

    Python's hash, whose secret is new in every process: 64 bits that nobody can aim at, so two of all the transfers
    of a transaction that are remembered are the same less than once in a thousand million notifiers.
    """
    read = pb.Event.FromString(event)
    return hash((read.address, read.identifier, *read.topics))
