"""A bounded queue between a connection and a reader, with a policy for a reader who is too slow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Literal, Self, TypeVar

from millrace_client.errors import SlowReader
from millrace_client.messages import Missed

T = TypeVar("T")

Policy = Literal["drop", "latest", "close"]
"""`drop`: the oldest message goes, and a `Missed` counts them; `latest`: only the newest is kept, nothing is said of
the others; `close`: the subscription ends with `SlowReader`."""


class Mailbox(Generic[T]):
    """At most `size` unread messages of a topic; what was missed stands between them as `Missed`."""

    def __init__(self, topic: str, size: int = 1024, policy: Policy = "drop") -> None:
        self._topic, self._policy = topic, policy
        self._size = 1 if policy == "latest" else size
        self._items: deque[T | Missed] = deque()
        self._unread = 0
        self._left_out = 0
        self._arrived = asyncio.Event()
        self._end: BaseException | None = None

    def put(self, message: T) -> None:
        """A message came."""
        if self._end is not None:
            return
        if self._unread == self._size:
            if self._policy == "close":
                self.end(SlowReader(f"{self._topic}: more than {self._size} messages were not read; subscribe again"))
                return
            self._forget_oldest()
        self._items.append(message)
        self._unread += 1
        self._arrived.set()

    def missed(self, missed: Missed) -> None:
        """Something did not come. Two such spans in a row become one, so there is at most one to a message."""
        last = self._items[-1] if self._items else None
        if isinstance(last, Missed):
            self._items[-1] = self._joined(last, missed)
        else:
            self._items.append(missed)
        self._arrived.set()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes; who reads gets what is there, then the error or the end."""
        self._end = self._end or error or StopAsyncIteration()
        self._arrived.set()

    def _forget_oldest(self) -> None:
        for place, item in enumerate(self._items):
            if not isinstance(item, Missed):
                del self._items[place]
                self._join_at(place)
                break
        self._unread -= 1
        if self._policy == "drop":
            self._left_out += 1

    def _join_at(self, place: int) -> None:
        """Make one of two spans between which a message is gone."""
        if not 0 < place < len(self._items):
            return
        first, second = self._items[place - 1], self._items[place]
        if isinstance(first, Missed) and isinstance(second, Missed):
            self._items[place - 1] = self._joined(first, second)
            del self._items[place]

    def _joined(self, first: Missed, second: Missed) -> Missed:
        reasons = dict.fromkeys([*first.why.split(" and "), *second.why.split(" and ")])
        return Missed(
            topic=self._topic,
            why=" and ".join(reasons),
            count=None if first.count is None or second.count is None else first.count + second.count,
            since=second.since if first.since is None else first.since,
            until=first.until if second.until is None else second.until,
        )

    async def get(self) -> T | Missed:
        """The next message, or what was missed before it. Raises what the subscription ended with."""
        while True:
            if self._left_out:
                count, self._left_out = self._left_out, 0
                return Missed(topic=self._topic, why="reader too slow", count=count)
            if self._items:
                item = self._items.popleft()
                self._unread -= not isinstance(item, Missed)
                return item
            if self._end is not None:
                raise self._end
            self._arrived.clear()
            await self._arrived.wait()

    def __len__(self) -> int:
        return self._unread

    def __aiter__(self) -> AsyncIterator[T | Missed]:
        return self

    async def __anext__(self) -> T | Missed:
        return await self.get()


class Subscription(Generic[T]):
    """Messages of one topic, and `Missed` where some did not come. Leaving the `async with`, or `close`, ends it."""

    def __init__(self, mailbox: Mailbox[T], leave: Callable[[], Awaitable[None]]) -> None:
        self._mailbox, self._leave = mailbox, leave

    async def next(self, timeout: float | None = None) -> T | Missed:
        """The next message. Raises `TimeoutError` after `timeout` seconds without one."""
        async with asyncio.timeout(timeout):
            return await self._mailbox.get()

    async def close(self) -> None:
        """End the subscription."""
        self._mailbox.end()
        await self._leave()

    def __aiter__(self) -> AsyncIterator[T | Missed]:
        return self

    async def __anext__(self) -> T | Missed:
        return await self._mailbox.get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
