"""What the router keeps: frames on their way to a remote peer, and the ids of messages seen; both bounded."""

from __future__ import annotations

import time
from typing import NamedTuple

import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.tools.timed_cache.last_seen_cache import LastSeenCache

from millrace.gossip.settings import MAX_FRAME_BYTES

SEEN_SECONDS = 600.0
SEEN_ENTRIES = 262_144
_FULL_BYTES = 65_536
"""From here on a frame takes no more: what one encrypted piece of a connection holds (noise: 65,535 bytes)."""


class SeenCache(LastSeenCache):
    """Ids of messages seen in the last ten minutes, kept from the first sight as nodes do.

    Holds at most `SEEN_ENTRIES` ids (at 400 new messages a second: all of them); beyond it the oldest go.
    """

    def __init__(self, seconds: float = SEEN_SECONDS, entries: int = SEEN_ENTRIES) -> None:
        # The base's constructor starts a thread that sweeps; `add` does that here.
        self._seconds = seconds
        self._entries = entries
        self._until: dict[bytes, float] = {}

    def has(self, key: bytes) -> bool:
        until = self._until.get(key)
        return until is not None and until > time.monotonic()

    def add(self, key: bytes) -> bool:
        now = time.monotonic()
        if self.has(key):
            return False
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now and len(self._until) < self._entries:
                break
            del self._until[oldest]
        self._until[key] = now + self._seconds
        return True

    def length(self) -> int:
        return len(self._until)


class Lost(NamedTuple):
    """What never reached a remote peer's stream."""

    messages: int = 0
    """Copies of messages."""
    controls: int = 0
    """Frames of control alone: GRAFT and PRUNE are sent again by the library, the others are not."""

    @classmethod
    def of(cls, rpc: rpc_pb2.RPC) -> Lost:
        return cls(len(rpc.publish), 0 if rpc.publish else 1)

    def plus(self, other: Lost) -> Lost:
        return Lost(self.messages + other.messages, self.controls + other.controls)

    def less(self, other: Lost) -> Lost:
        return Lost(self.messages - other.messages, self.controls - other.controls)


class BoundedQueue(RpcQueue):
    """Frames waiting for one remote peer, bounded in number and in bytes; a full queue refuses new ones.

    Everything the library sends comes through here, so that here every frame is counted that gets lost: refused
    by a full or closed queue, or not yet written when the stream ends.
    """

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        super().__init__(max_frames, MAX_FRAME_BYTES)
        self.idle = trio.Event()
        """Set while all that was pushed has been written to the stream."""
        self.lost = Lost()
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._bytes = 0
        self._large = 0
        """Frames that wait and are full by themselves."""
        self._waiting = Lost()
        """What would be lost of what waits."""
        self._writing = Lost()
        """What would be lost of what is being written."""

    def has_room(self, size: int) -> bool:
        """Whether a frame of `size` bytes would be taken."""
        if self.closed or len(self) >= self._max_frames:
            return False
        return self._bytes + size <= self._max_bytes or len(self) == 0

    def push(self, rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
        size = rpc.ByteSize()
        if not self.has_room(size) or not super().push(rpc, priority):
            self.lost = self.lost.plus(Lost.of(rpc))
            return False
        self._bytes += size
        self._large += size >= _FULL_BYTES
        self._waiting = self._waiting.plus(Lost.of(rpc))
        if self.idle.is_set():
            self.idle = trio.Event()
        return True

    async def pop(self) -> rpc_pb2.RPC | None:
        """The next frame; while none that waits is large, messages are put together until it is full.

        Each frame is encoded, encrypted and written by itself: a writer that is late for want of CPU catches up so.
        """
        self._writing = Lost()  # the writer is back for more: it has written the last one
        if len(self) == 0:
            self.idle.set()
        first = await super().pop()
        if first is None:
            return None
        size = self._take(first)
        if len(self) == 0 or self._large or size >= _FULL_BYTES:
            return first
        frame = rpc_pb2.RPC()
        frame.CopyFrom(first)  # it may wait for other peers, too
        while len(self) and size < _FULL_BYTES and not frame.HasField("control"):
            more = await super().pop()
            assert more is not None
            size += self._take(more)
            frame.MergeFrom(more)
        return frame

    def _take(self, rpc: rpc_pb2.RPC) -> int:
        size = rpc.ByteSize()
        self._bytes -= size
        self._large -= size >= _FULL_BYTES
        self._waiting = self._waiting.less(Lost.of(rpc))
        self._writing = self._writing.plus(Lost.of(rpc))
        return size

    def abandon(self) -> Lost:
        """Nobody writes any more: all that was ever lost, what still waits and what was being written included."""
        self.close()
        self.lost = self.lost.plus(self._writing).plus(self._waiting)
        self._writing = self._waiting = Lost()
        self._bytes = self._large = 0
        self.idle.set()
        return self.lost
