"""What the asyncio handle and the peer process say to each other over their Unix socket.

A frame is a 4-byte big-endian length and one msgpack array `[tag, field, ...]`. Both ends are the same
version of this package; nothing here is a public format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from millrace.gossip.settings import GossipSettings

MAX_FRAME = 8 * 1024 * 1024
_HEADER = struct.Struct(">I")


class _Record(msgspec.Struct, frozen=True, array_like=True):
    pass


class Start(_Record, frozen=True, tag="start"):
    """First command: the settings. They travel here and not as arguments, which any user can read."""

    settings: GossipSettings


class Publish(_Record, frozen=True, tag="publish"):
    request: int
    peer: int
    topic: str
    data: bytes


class Dial(_Record, frozen=True, tag="dial"):
    request: int
    peer: int
    address: str


class Keep(_Record, frozen=True, tag="keep"):
    """As if the address were in the peer's `bootstrap`; answered with `Dialled` before any dial."""

    request: int
    peer: int
    address: str


class GetStats(_Record, frozen=True, tag="get_stats"):
    request: int
    peer: int


class ReadyPeer(msgspec.Struct, frozen=True):
    """A peer that listens."""

    peer_id: str
    listening: tuple[str, ...]
    """The `listen` of its settings, with the ports it got."""
    addresses: tuple[str, ...]
    """Where others can dial it."""


class Ready(_Record, frozen=True, tag="ready"):
    """All peers listen; in the order of the settings."""

    peers: tuple[ReadyPeer, ...]


class Published(_Record, frozen=True, tag="published"):
    request: int
    peers: int


class Dialled(_Record, frozen=True, tag="dialled"):
    request: int
    error: str


class Message(_Record, frozen=True, tag="message"):
    peer: int
    topic: str
    data: bytes
    source: str
    received_ns: int


class TopicStats(msgspec.Struct, frozen=True):
    """Counters of one topic since the handle was made."""

    peers: int = 0
    """Remote peers subscribed, now."""
    mesh: int = 0
    """Of these, in our mesh or fanout, now."""
    delivered: int = 0
    """Distinct valid messages received."""
    duplicates: int = 0
    """Further copies of messages seen before."""
    published: int = 0


class GossipStats(msgspec.Struct, frozen=True):
    """State of one peer now, and its counters since the handle was made.

    Over a restart the counters go on; what a lost process had counted since the last question is missing.
    """

    peer_id: str = ""
    connected_peers: int = 0
    connections: int = 0
    """Connections that were ever made, from either side."""
    topics: dict[str, TopicStats] = {}
    delivered: int = 0
    duplicates: int = 0
    published: int = 0
    invalid: int = 0
    """Messages refused: bad signature, sequence number, origin or shape."""
    dropped_inbound: int = 0
    """Messages lost because the service did not take them in time (the whole process)."""
    dropped_outbound: int = 0
    """Copies of messages lost on the way to a remote peer: its queue was full, or it left before they were written."""
    dropped_control: int = 0
    """Frames of gossipsub's own (IHAVE, IWANT, GRAFT, PRUNE, IDONTWANT) lost in the same way."""
    dropped_validation: int = 0
    """Messages not looked at because too many waited for the check of their signature."""
    stalled: int = 0
    """Publishes answered with 0 because no peer of the topic took them in time."""
    requests: int = 0
    """Direct messages of nodes that ask for data. They are read and get no answer."""
    trimmed: int = 0
    """Connections closed because there were more than the settings allow."""
    restarts: int = 0
    """How often the process was started again. Filled in by the handle."""
    refused: int = 0
    """Publishes refused with `GossipBusy`. Filled in by the handle."""

    def continuing(self, past: GossipStats) -> GossipStats:
        """These counters added to those of processes before; state (peers, mesh) stays that of now."""
        topics = {
            name: msgspec.structs.replace(
                self.topics.get(name, TopicStats()),
                **_sums(("delivered", "duplicates", "published"), self.topics.get(name), past.topics.get(name)),
            )
            for name in sorted({*self.topics, *past.topics})
        }
        return msgspec.structs.replace(self, topics=topics, **_sums(_COUNTERS, self, past))

    @property
    def peers_by_topic(self) -> dict[str, int]:
        """Remote subscribers by topic."""
        return {name: topic.peers for name, topic in self.topics.items()}


_COUNTERS = (
    "delivered", "duplicates", "published", "invalid", "dropped_inbound", "dropped_outbound", "dropped_control",
    "dropped_validation", "stalled", "requests", "trimmed", "connections",
)  # fmt: skip


def _sums(names: tuple[str, ...], *parts: GossipStats | TopicStats | None) -> dict[str, Any]:
    """Field by field, the sum over the parts there are."""
    return {name: sum(getattr(part, name) for part in parts if part is not None) for name in names}


class Stats(_Record, frozen=True, tag="stats"):
    request: int
    stats: GossipStats


Command = Start | Publish | Dial | Keep | GetStats
Report = Ready | Published | Dialled | Stats | Message

_encoder = msgspec.msgpack.Encoder()


def frame(record: Command | Report) -> bytes:
    """The bytes of one frame."""
    body = _encoder.encode(record)
    return _HEADER.pack(len(body)) + body


class Unframer:
    """Cuts a byte stream into the bodies of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add `data`; yield each body now complete. Raises ValueError when the stream is no longer ours."""
        self._buffer += data
        offset = 0
        try:
            while len(self._buffer) - offset >= _HEADER.size:
                (length,) = _HEADER.unpack_from(self._buffer, offset)
                if length > MAX_FRAME:
                    raise ValueError(f"a frame of {length} bytes on the gossip socket")
                end = offset + _HEADER.size + length
                if len(self._buffer) < end:
                    break
                body = bytes(self._buffer[offset + _HEADER.size : end])
                offset = end
                yield body
        finally:
            del self._buffer[:offset]
