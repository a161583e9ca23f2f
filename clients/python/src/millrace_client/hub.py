"""Consumer of a notifier's hub: block events once each, in order, from where one left off."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from millrace_client.errors import ClientError, Refused
from millrace_client.messages import Missed
from millrace_client.transaction import field, varint

if TYPE_CHECKING:
    import aiohttp

Level = Literal["All", "Address", "AddressIdentifier", "Identifier", "Topics"]
_PAYLOAD, _ACKNOWLEDGEMENT = 2, 1
_CONTROL = ("subscribe", "unsubscribe")
_MAX_EVENT = 256 * 1024 * 1024
_MAX_UNREAD = 4096  # frames; the hub's own window is what normally binds
_HEARTBEAT = 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Event(msgspec.Struct, frozen=True):
    """One event of the journal: `topic` such as `SaveBlock`, `payload` the node's protobuf message."""

    topic: str
    payload: bytes
    sequence: int
    """Its place in the journal: the same in every delivery, and what to resume after."""
    marks: int = 0
    """What the notifier has to say about it: 1 contested, 2 finality without its block, 4 replayed, 8 incomplete."""


class Hub:
    """Events as an async iterator of `Event`, and `Missed` for what is gone from the journal.

    An event counts as handled, and is acknowledged, when the next one is asked for; `last` is its sequence. Keep that,
    and give it as `resume_after` to the next `Hub`: then nothing is missed and nothing comes twice. When the connection
    ends it is made again, and goes on behind what came.
    """

    def __init__(
        self,
        url: str,
        *,
        resume_after: int | None = None,
        level: Level = "All",
        address: str = "",
        identifier: str = "",
        topics: tuple[str, ...] = (),
        name: str = "",
    ) -> None:
        self._url = url
        self.last = resume_after
        """The sequence of the newest event that was handled."""
        self.head = 0
        """The newest sequence that the hub spoke of."""
        self._wish = field(1, level.encode()) + field(2, address.encode()) + field(3, identifier.encode())
        for topic in topics:  # an empty one stands for anything in its place, so it is written too
            self._wish += varint(4 << 3 | 2) + varint(len(topic.encode())) + topic.encode()
        self._wish += field(5, name.encode())
        self._unread: deque[Event | Missed] = deque()
        self._newest = resume_after
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._given: Event | Missed | None = None
        self._end: ClientError | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. What was not handled comes again to who resumes after `last`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def __aiter__(self) -> AsyncIterator[Event | Missed]:
        return self

    async def __anext__(self) -> Event | Missed:
        await self.handled()
        while not self._unread:
            if self._end is not None:
                raise self._end
            self._arrived.clear()
            await self._arrived.wait()
        self._given = self._unread.popleft()
        self._room.set()
        return self._given

    async def handled(self) -> None:
        """Acknowledge the event that was given last, before the next one is asked for."""
        given, self._given = self._given, None
        if isinstance(given, Event):
            self.last = given.sequence
            if self._socket is not None and not self._socket.closed:
                with contextlib.suppress(ConnectionError, RuntimeError):  # the next connection resumes behind it
                    await self._socket.send_bytes(field(2, given.sequence) + field(3, _ACKNOWLEDGEMENT))
        elif given is not None and given.count is not None:
            self.last = max(self.last or 0, int(given.until or 0))

    async def _run(self) -> None:
        import aiohttp

        pause = _FIRST_PAUSE
        async with aiohttp.ClientSession() as session:
            while self._end is None:
                try:
                    async with session.ws_connect(
                        self._url, heartbeat=_HEARTBEAT, max_msg_size=_MAX_EVENT, autoping=True
                    ) as socket:
                        begun = time.monotonic()
                        await self._hold(socket)
                        if time.monotonic() - begun > _LONGEST_PAUSE:  # one that ends at once is no success
                            pause = _FIRST_PAUSE
                except (aiohttp.ClientError, TimeoutError, OSError):
                    pass
                self._socket = None
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _hold(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        wish = self._wish
        if self._newest is not None:
            wish += varint(6 << 3) + varint(self._newest)
        await socket.send_bytes(field(3, _PAYLOAD) + field(4, wish) + field(5, b"subscribe"))
        self._socket = socket
        async for frame in socket:
            if isinstance(frame.data, bytes):
                self._take(frame.data)
            while len(self._unread) >= _MAX_UNREAD:
                self._room.clear()
                await self._room.wait()
            if self._end is not None:
                return

    def _take(self, data: bytes) -> None:
        fields = dict(read_fields(data))
        if fields.get(3, 0) != _PAYLOAD:
            return
        topic, payload = _text(fields.get(5, b"")), fields.get(4, b"")
        payload = payload if isinstance(payload, bytes) else b""
        if topic in _CONTROL:
            self._subscribed(dict(read_fields(payload)))
        elif topic == "gap":
            gap = dict(read_fields(payload))
            self._gap(_number(gap.get(1, 0)), _number(gap.get(2, 0)))
        else:
            self._event(Event(topic, payload, _number(fields.get(2, 0)), _number(fields.get(7, 0))))

    def _subscribed(self, reply: dict[int, int | bytes]) -> None:
        self.head = max(self.head, _number(reply.get(4, 0)))
        if not reply.get(2, 0):
            self._end = Refused(_text(reply.get(3, b"")), code="subscribe")
            self._arrived.set()
        elif self._newest is None:
            self._newest = self.head

    def _gap(self, first: int, last: int) -> None:
        gap = Missed(topic="hub", why="gone from the journal", count=last - first + 1, since=first, until=last)
        self._newest = max(self._newest or 0, last)
        self._unread.append(gap)
        self._arrived.set()

    def _event(self, event: Event) -> None:
        if self._newest is not None and event.sequence <= self._newest:
            return  # told before the connection ended
        self._newest, self.head = event.sequence, max(self.head, event.sequence)
        self._unread.append(event)
        self._arrived.set()


def _number(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0


def _text(value: int | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers, and bytes. Ends at what cannot be read."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
            case 2:
                size, at = _varint(data, at)
                yield key >> 3, data[at : at + size]
                at += size
            case 1:
                at += 8
            case 5:
                at += 4
            case _:
                return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return value, len(data)
