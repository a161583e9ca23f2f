"""Consumer of the notifiers' hubs: block events once each, in order, from where one left off."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from millrace_client.errors import ClientError, Refused
from millrace_client.http import load_aiohttp
from millrace_client.messages import Missed
from millrace_client.places import Place, Told
from millrace_client.transaction import field, varint

if TYPE_CHECKING:
    import aiohttp

Level = Literal["All", "Address", "AddressIdentifier", "Identifier", "Topics"]
_PAYLOAD, _ACKNOWLEDGEMENT = 2, 1
_CONTROL = ("subscribe", "unsubscribe")
_MAX_EVENT = 256 * 1024 * 1024
_MAX_UNREAD = 4096  # frames; the hub's own window is what normally binds
_HEARTBEAT = 15.0
_CONNECT_SECONDS = 10.0  # before the next notifier is tried
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Event(msgspec.Struct, frozen=True):
    """One event of the journal: `topic` such as `SaveBlock`, `payload` the node's protobuf message."""

    topic: str
    payload: bytes
    sequence: int
    """Its place in the journal of the notifier that told it: the same in every delivery by that one."""
    marks: int = 0
    """What the notifier has to say about it: 1 contested, 2 finality without its block, 4 replayed, 8 incomplete."""
    id: str = ""
    """Its name, the same on every notifier of the network. Empty: the notifier is of an earlier version."""


class Hub:
    """Events as an async iterator of `Event`, and `Missed` for what is gone from the journal.

    An event counts as handled, and is acknowledged, when the next one is asked for. Keep `place` then, and give it to
    the next `Hub`: it goes on there. When the connection ends another one is made, with the next of the notifiers if
    there are several, and goes on behind what came.

    What was lost by one of several notifiers is asked of the others, and missed when none that can be reached has it.

    With one notifier everything comes once. Another one goes on a little before the place: of what that tells again,
    what came to this `Hub` before is left out; what came to an earlier `Hub` comes again, under the same `id`.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        resume_after: int | None = None,
        place: str = "",
        level: Level = "All",
        address: str = "",
        identifier: str = "",
        topics: tuple[str, ...] = (),
        name: str = "",
    ) -> None:
        """`url`: of one notifier's hub, or of several of the same network. `resume_after`: a sequence of the one.

        `place`: of an earlier consumer. Raises `ValueError` for what is none, and for a sequence with several
        notifiers, as it would mean something else to each (0, the beginning, does not).
        """
        self._urls = (url,) if isinstance(url, str) else tuple(url)
        if not self._urls or (resume_after and (len(self._urls) > 1 or place)):
            raise ValueError("resume_after belongs to one notifier: give several with a place, or none")
        begun = Place.of_text(place) if place else None
        self.last = begun.after if begun is not None else resume_after
        """The sequence of the newest event that was handled, on the notifier that told it."""
        self.head = 0
        """The newest sequence that the present hub spoke of."""
        self._wish = field(1, level.encode()) + field(2, address.encode()) + field(3, identifier.encode())
        for topic in topics:  # an empty one stands for anything in its place, so it is written too
            self._wish += varint(4 << 3 | 2) + varint(len(topic.encode())) + topic.encode()
        self._wish += field(5, name.encode())
        self._unread: deque[Event | Missed] = deque()
        self._told = Told(begun)
        self._came = self._done = 0
        """How many events came, and how many of them were handled."""
        self._at = 0
        self._newest = resume_after
        """The newest sequence from the notifier that told last, …"""
        self._teller: int | None = None if resume_after is None else 0
        """… which is this one of `urls`."""
        self._journal = ""
        """What the present notifier's journal is known by."""
        self._lacking: set[int] = set()
        """Notifiers that lack an unknown number of events, by what they said since the newest event came."""
        self._leaves = False
        """Whether the present one is left for that."""
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._given: Event | Missed | None = None
        self._unacknowledged: deque[int] = deque()
        """Sequences that the present connection told and that were not handled yet, in order."""
        self._left_out = 0
        """The newest sequence that it told again and that was left out."""
        self._end: ClientError | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def place(self) -> str:
        """Where the next consumer goes on, on any of the notifiers; empty: no event with an id was handled yet."""
        place = self._told.place(self._done)
        return "" if place is None else place.text()

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
            self._done += 1
            if self._unacknowledged and self._unacknowledged[0] == given.sequence:  # else told by another connection
                self._unacknowledged.popleft()
                await self._acknowledge(given.sequence)
        elif given is not None and given.until is not None:
            self.last = int(given.until)

    async def _acknowledge(self, sequence: int = 0) -> None:
        """Say what was handled; what was left out counts as that once all before it was handled."""
        if not self._unacknowledged:
            sequence, self._left_out = max(sequence, self._left_out), 0
        if sequence and self._socket is not None and not self._socket.closed:
            with contextlib.suppress(ConnectionError, RuntimeError):  # the next connection resumes behind it
                await self._socket.send_bytes(field(2, sequence) + field(3, _ACKNOWLEDGEMENT))

    async def _run(self) -> None:
        await load_aiohttp()
        import aiohttp

        pause = _FIRST_PAUSE
        async with aiohttp.ClientSession() as session:
            while self._end is None:
                try:
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        socket = await session.ws_connect(
                            self._urls[self._at], heartbeat=_HEARTBEAT, max_msg_size=_MAX_EVENT, autoping=True
                        )
                    async with socket:
                        begun = time.monotonic()
                        await self._hold(socket)
                        if time.monotonic() - begun > _LONGEST_PAUSE:  # one that ends at once is no success
                            pause = _FIRST_PAUSE
                except (aiohttp.ClientError, TimeoutError, OSError):
                    pass
                self._socket = None
                self._at = (self._at + 1) % len(self._urls)
                if self._at:  # there is another one to try at once
                    continue
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _hold(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        wish = self._wish
        place = self._told.place(self._came)
        if place is not None:
            wish += (
                varint(6 << 3) + varint(place.after) + field(7, place.id.encode()) + field(9, place.journal.encode())
            )
            for event_id, since in place.handled:
                handled = field(1, event_id.encode()) + field(2, since)
                wish += varint(8 << 3 | 2) + varint(len(handled)) + handled
        elif self._newest == 0 or (self._newest is not None and self._teller == self._at):
            wish += varint(6 << 3) + varint(self._newest) + (field(9, self._journal.encode()) if self._newest else b"")
        elif self._newest is not None:
            self._newest = None
            self._unread.append(Missed(topic="hub", why="connection lost"))
            self._arrived.set()
        await socket.send_bytes(field(3, _PAYLOAD) + field(4, wish) + field(5, b"subscribe"))
        self._socket = socket
        self._unacknowledged.clear()
        self._left_out, self._leaves = 0, False
        async for frame in socket:
            if isinstance(frame.data, bytes):
                self._take(frame.data)
            if self._left_out:
                await self._acknowledge()
            while len(self._unread) >= _MAX_UNREAD:
                self._room.clear()
                await self._room.wait()
            if self._end is not None or self._leaves:
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
            self._gap(_number(gap.get(1, 0)), _number(gap.get(2, 0)), gap.get(3), bool(gap.get(4, 0)))
        else:
            told = Event(
                topic, payload, _number(fields.get(2, 0)), _number(fields.get(7, 0)), _text(fields.get(8, b""))
            )
            self._event(told)

    def _subscribed(self, reply: dict[int, int | bytes]) -> None:
        self.head = _number(reply.get(4, 0))
        if not reply.get(2, 0):
            self._end = Refused(_text(reply.get(3, b"")), code="subscribe")
            self._arrived.set()
            return
        if self._newest is None:
            self._newest = self.head
        self._teller = self._at
        self._journal = _text(reply.get(6, b""))

    def _gap(self, first: int, last: int, resumes_after: int | bytes | None, uncounted: bool) -> None:
        others = len(self._urls) > 1 and self._told.place(self._came) is not None
        if uncounted and others and self._at not in self._lacking:  # the others may have what this one lacks
            self._lacking.add(self._at)
            self._leaves = True
            return
        count = None if uncounted else last - first + 1
        gap = Missed(topic="hub", why="gone from the journal", count=count, since=first, until=last)
        # A journal that was put back gives the lost sequences out once more, to other events.
        self._newest = last if resumes_after is None else _number(resumes_after)
        self._unread.append(gap)
        self._arrived.set()

    def _event(self, event: Event) -> None:
        if event.id in self._told if event.id else event.sequence <= (self._newest or 0):
            self._left_out = event.sequence  # told before the connection ended
            return
        self._newest, self.head = event.sequence, max(self.head, event.sequence)
        self._lacking.clear()
        self._came += 1
        if event.id:
            self._told.add(self._came, event.sequence, event.id, self._journal)
        self._unacknowledged.append(event.sequence)
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
