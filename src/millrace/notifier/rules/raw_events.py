"""Events as the bytes that nodes wrote, decoded only where these do not lie as Go writes them."""

from __future__ import annotations

from millrace.chain.proto import outport_pb2 as pb

MULTI_TRANSFER = b"MultiESDTNFTTransfer"
TRANSFERS = frozenset((b"ESDTTransfer", b"ESDTNFTTransfer", MULTI_TRANSFER, b"transferValueOnly"))
FAILURES = frozenset((b"signalError", b"internalVMErrors"))

IN_TRANSFERS, IN_FAILURES = b"ransfer", b"Error"
"""What each of these identifiers holds: bytes without it hold no such event."""

_ADDRESS = b"\x0a\x20"  # how an event begins that has an address of 32 bytes
_TOPIC, _AFTER_TOPICS = 0x1A, b"\x22\x2a"  # tags of its fields: of a topic; of data and additional data


def identifier_of(event: bytes) -> bytes:
    """It need not be decoded when it begins as Go writes it, with an address of 32 bytes."""
    if event[:2] == _ADDRESS and event[34:35] == b"\x12" and event[35] < 0x80:
        return event[36 : 36 + event[35]]
    return pb.Event.FromString(event).identifier


def without_data(event: bytes, identifier: bytes) -> bytes:
    """Its address, identifier and topics as Go writes them; decoded only when it has not written them so."""
    if event[:2] == _ADDRESS and event[34:35] == b"\x12":
        end, size = 36 + len(identifier), len(event)
        while end < size and event[end] == _TOPIC and event[end + 1] < 0x80:
            end += 2 + event[end + 1]
        if end == size or event[end] in _AFTER_TOPICS:
            return event[:end]
    decoded = pb.Event.FromString(event)
    return pb.Event(address=decoded.address, identifier=identifier, topics=decoded.topics).SerializeToString()
