"""What gossip was asked to publish and has not answered: a process that stands still and does not die is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from millrace.runtime.tasks import end_tasks

Publish = Callable[[str, bytes], Awaitable[int]]

SILENT_SECONDS = 2.0
"""Gossip answers in milliseconds, or in a second where every remote peer is slow; blocks come every 0.6 to 6 s."""


class Publishing:
    """Gossip is silent when publishes are under way and none has been answered for `SILENT_SECONDS`.

    From then on it is asked for nothing more, so what is under way stays bounded; any answer ends the silence, and
    the end of its process answers everything. `on_return` is called when it turns out to have peers again.
    """

    def __init__(self, publish: Publish, on_return: Callable[[], None], clock: Callable[[], float]) -> None:
        self._publish = publish
        self._on_return = on_return
        self._clock = clock
        self._unanswered: dict[asyncio.Task[int], float] = {}
        """When each was asked for, the oldest first."""
        self._heard_at = clock()
        self._silence: asyncio.Future[None] | None = None
        """What waits for an answer waits for this, too."""
        self.is_silent = False
        self.silences = 0
        """Times that gossip went silent."""

    async def publish(self, topic: str, data: bytes) -> int | None:
        """To how many peers this went; `None` when gossip is silent: then nobody knows whether it goes out."""
        if self.is_silent:
            return None
        if self._silence is None:
            self._silence = asyncio.get_running_loop().create_future()
        asked = asyncio.ensure_future(self._publish(topic, data))
        self._unanswered[asked] = self._clock()
        asked.add_done_callback(self._answered)
        await asyncio.wait((asked, self._silence), return_when=asyncio.FIRST_COMPLETED)
        return asked.result() if asked.done() else None

    def look(self) -> None:
        """Find out whether gossip has gone silent; everybody who waits for it is told at the same moment."""
        if self.is_silent or not self._unanswered:
            return
        since = max(self._heard_at, next(iter(self._unanswered.values())))
        if self._clock() - since >= SILENT_SECONDS:
            self.is_silent = True
            self.silences += 1
            if self._silence is not None:
                self._silence.set_result(None)
                self._silence = None

    async def stop(self) -> None:
        """Wait for no answer any more."""
        await end_tasks(self._unanswered)

    def _answered(self, asked: asyncio.Task[int]) -> None:
        del self._unanswered[asked]
        self._heard_at = self._clock()
        was_silent, self.is_silent = self.is_silent, False
        taken = not asked.cancelled() and asked.exception() is None and asked.result() > 0
        if was_silent and taken:
            self._on_return()
