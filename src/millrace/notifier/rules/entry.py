"""One event of the journal and its frame on the wire."""

from __future__ import annotations

import time
from functools import cached_property

from millrace.chain import outport
from millrace.runtime import websocket


def varint(value: int) -> bytes:
    """A protobuf varint."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


class Entry:
    """An event as the journal holds it: what is delivered, to whoever asks, in order of `sequence`."""

    def __init__(
        self,
        sequence: int,
        topic: str,
        shard: int,
        marks: int,
        message_id: str,
        received_ms: int,
        payload: bytes,
    ) -> None:
        self.sequence = sequence
        self.topic = topic
        self.shard = shard
        self.marks = marks
        self.message_id = message_id
        """The same for every delivery of this event through any sink: `<topic>:<shard>:<hash>:<generation>`."""
        self.received_ms = received_ms
        self.payload = payload
        self.told_as = topic
        """The topic that consumers see."""
        self.published_ns = 0
        """When consumers were told of it; 0 of what is read from the disk."""

    @cached_property
    def frame(self) -> bytes:
        """The WebSocket frame with the whole payload, built once for all consumers."""
        return event_frame(self, self.payload)

    @cached_property
    def block_hash(self) -> str:
        """Hex hash of the block that the event is about; other events have their content's digest here."""
        return self.message_id.split(":")[2]


def event_frame(entry: Entry, payload: bytes) -> bytes:
    """The WebSocket frame that delivers `entry` with this (possibly reduced) payload.

    A `WsMessage`: withAcknowledge (1) = true, counter (2) = sequence, type (3) = 2, payload (4), topic (5),
    version (6) = 1, marks (7) only when there are any, and the id (8). Written by hand: no second copy through a
    message.
    """
    head = b"\x08\x01\x10" + varint(entry.sequence) + b"\x18\x02\x22" + varint(len(payload))
    tail = field(5, entry.told_as.encode()) + b"\x30" + varint(outport.VERSION)
    if entry.marks:
        tail += b"\x38" + varint(entry.marks)
    tail += field(8, entry.message_id.encode())
    return websocket.binary_frame(b"".join((head, payload, tail)))


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
