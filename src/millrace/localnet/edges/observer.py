"""A node's connection to an event consumer, as mx-chain-communication-go keeps it in client mode.

One message is under way at a time. It is done when the acknowledgement with its counter comes; after a silence,
or on the next connection, the same payload goes out again under a new counter. Nothing is left out: what is not
acknowledged stays in the outbox. The outbox is bounded by its reader: an observer that is `full` holds its shard
back, as a real node stops committing, so it grows past the bound by what one round or one revert adds at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.localnet.settings import LocalnetSettings
from millrace.runtime import websocket

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0


class _Link(websocket.Session):
    """One connection of an observer."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self._observer.receive(self, data)

    def on_close(self) -> None:
        self._observer.wake()


class Observer:
    """One node of one shard (or of the metachain) that tells its consumer every event.

    `shard` and `index` name it. Counters count since the start: `sent` messages of any kind, `acknowledged`
    events, `resent` messages whose acknowledgement did not come, `connections`.
    """

    def __init__(self, shard: int, index: int, settings: LocalnetSettings, url: str) -> None:
        self.shard = shard
        self.index = index
        self.url = url
        self.sent = 0
        self.acknowledged = 0
        self.resent = 0
        self.connections = 0
        self._settings = settings
        self._outbox: deque[tuple[str, bytes]] = deque()
        self._replies = 0
        self._doubled = 0
        self._counter = 0
        self._last_ack = 0
        self._link: _Link | None = None
        self._changed = asyncio.Event()

    # What the chain does.

    def offer(self, topic: str, payload: bytes) -> None:
        """Put an event into the outbox. It leaves once acknowledged."""
        self._outbox.append((topic, payload))
        self.wake()

    @property
    def waiting(self) -> int:
        """Events not acknowledged yet."""
        return len(self._outbox)

    @property
    def full(self) -> bool:
        """Whether the shard must wait for this observer before it makes another block."""
        return len(self._outbox) >= self._settings.max_outbox

    @property
    def connected(self) -> bool:
        """Whether a connection stands."""
        return self._link is not None and not self._link.closed

    # What tests ask for.

    def drop_connection(self) -> bool:
        """End the connection without a word; whether there was one. The observer connects again."""
        if not self.connected:
            return False
        assert self._link is not None
        self._link.close(abort=True)
        return True

    def send_twice(self) -> None:
        """Send the next event again after it was acknowledged, as a node does whose acknowledgement got lost."""
        self._doubled += 1

    # The connection.

    async def run(self) -> None:
        """Connect, tell, connect again; until cancelled."""
        while True:
            link = _Link(self)
            try:
                await websocket.connect(self.url, link, timeout=_CONNECT_SECONDS)
                self._link = link
                self.connections += 1
                await self._tell(link)
                log.info("connection to the notifier lost", extra=self._context())
            except websocket.CONNECT_ERRORS as error:
                log.debug("the notifier does not answer", extra=self._context() | {"why": str(error)})
            finally:
                link.close()
            await asyncio.sleep(self._settings.retry_seconds)

    async def _tell(self, link: _Link) -> None:
        """Send one message after the other until the connection ends."""
        while not link.closed and await self._until(link, lambda: bool(self._replies or self._outbox)):
            is_reply = self._replies > 0
            topic, payload = (outport.SETTINGS, self._own_settings()) if is_reply else self._outbox[0]
            if not await self._send(link, topic, payload):
                self.resent += 1
            elif is_reply:
                self._replies -= 1
            else:
                self._done()

    async def _send(self, link: _Link, topic: str, payload: bytes) -> bool:
        """Send one message; whether it was acknowledged in time."""
        self._counter += 1
        counter = self._counter
        self.sent += 1
        link.send_binary(outport.payload_envelope(topic, payload, counter))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.acknowledge_seconds):
                return await self._until(link, lambda: self._last_ack == counter)
        log.warning("no acknowledgement, sending again", extra=self._context() | {"topic": topic})
        return False

    async def _until(self, link: _Link, ready: Callable[[], bool]) -> bool:
        """Wait until something holds; False when the connection ends first."""
        while not ready():
            if link.closed:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True

    def _done(self) -> None:
        self.acknowledged += 1
        if self._doubled:
            self._doubled -= 1
        else:
            self._outbox.popleft()

    def receive(self, link: _Link, data: bytes) -> None:
        """A frame of the consumer: an acknowledgement, or a request for the node's settings."""
        try:
            envelope = outport.decode_envelope(data)
        except outport.OutportError:
            log.warning("unreadable frame of the notifier", extra=self._context())
            return
        if envelope.type == outport.ACK:
            self._last_ack = envelope.counter
        elif envelope.type == outport.PAYLOAD:
            if envelope.withAcknowledge:
                link.send_binary(outport.ack_envelope(envelope.counter))
            if envelope.topic == outport.SETTINGS:
                self._replies = 1  # asked often or once, one answer under way is enough
        self.wake()

    def wake(self) -> None:
        """Something changed that the connection may be waiting for."""
        self._changed.set()

    def _own_settings(self) -> bytes:
        return pb.OutportConfig(shardID=self.shard).SerializeToString()

    def _context(self) -> dict[str, object]:
        return {"shard": self.shard, "observer": self.index, "waiting": len(self._outbox)}
