"""Where reading the events goes on after a kill: written down, and never ahead of what the events led to.

What events change in the journal is written before a place that is kept after them. What became of transactions has a
file of its own, which is written a moment later: until that has it, who starts again reads the events once more. So it
does where an end was heard before the block that its transaction is in: until then only memory has it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from millrace.relayer.blocks.tracker import Tracker
from millrace.relayer.events.hub_client import EventSink, HubClient
from millrace.relayer.journal.fates import Fates
from millrace.relayer.journal.journal import Journal
from millrace.relayer.ledger.fates import FateBook
from millrace_client.places import Place

log = logging.getLogger(__name__)

SECONDS = 1.0
"""How often the place is written down."""
PATIENCE = 3_600.0
"""Seconds that a place waits for what became of transactions to be on disk. To read an hour again takes some seconds,
and to have stood still for longer than a notifier keeps its events (a day by default) would lose more than these."""


class Bookmark:
    """`begin` first, then `follow`; `keep` once more when nothing is read any more and `fates` is closed."""

    def __init__(
        self,
        journal: Journal,
        fates: Fates,
        book: FateBook,
        tracker: Tracker,
        *,
        has_one: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has_one`: whether all events come from one notifier."""
        self._journal = journal
        self._fates = fates
        self._book = book
        self._tracker = tracker
        self._has_one = has_one
        self._clock = clock
        self._hub: HubClient | None = None
        self._next: tuple[Place, int, float] | None = None
        """Kept as soon as so much of what became of transactions is on disk, or it has waited from then on too long."""
        self.is_known = False
        """Whether the journal says where reading goes on."""

    def begin(self, sink: EventSink) -> Place | None:
        """Where reading goes on; events are lost to `sink` where that was known, and cannot be read."""
        try:
            cursor, text = self._journal.cursor(), self._journal.cursor_place()
        except ValueError as error:
            return self._unread(None, error, sink)
        if cursor is None:
            return None
        self.is_known = True
        try:
            place = Place.of_text(text) if text else Place(cursor, "", ())
        except ValueError as error:
            return self._unread(cursor, error, sink)
        return place if place.after == cursor else Place(cursor, "", ())  # an earlier version wrote the cursor since

    def _unread(self, cursor: int | None, error: ValueError, sink: EventSink) -> Place | None:
        """Another version wrote it in another form. The cursor beside it is enough where there is one notifier only."""
        goes_on = (
            "reading goes on by the notifier's own sequence: nothing is lost as long as it is the same notifier"
            if cursor is not None and self._has_one
            else "reading begins at the newest event, as the sequence is not known or another notifier's: accounts are "
            "asked for again, and whoever waits for a status asks GET /v1/transactions/HASH"
        )
        log.error("where reading was cannot be read", extra={"error": str(error), "after": cursor, "now": goes_on})
        if cursor is not None and self._has_one:
            return Place(cursor, "", ())
        self.is_known = False
        first = (cursor or 0) + 1
        sink.on_gap(first, first)
        return None

    def follow(self, hub: HubClient) -> None:
        """Keep the place of this reader, from the moment it has one."""
        self._hub = hub
        hub.on_connection = self.keep

    async def run(self) -> None:
        """Every second, for ever."""
        while True:
            await asyncio.sleep(SECONDS)
            self.keep()

    def keep(self) -> None:
        """Write down how far the events need not be read again."""
        if self._next is not None:
            waiting, puts, since = self._next
            if self._fates.has(puts) or self._clock() - since > PATIENCE:
                self._write(waiting)
                self._next = None
        place = self._present()
        if place is None:
            return
        if not self.is_known or self._fates.has(self._fates.puts):
            self._write(place)
            self._next = None
        elif self._next is None:
            self._next = place, self._fates.puts, self._clock()

    def _present(self) -> Place | None:
        if self._hub is None:
            return None
        needed = [at for at in (self._tracker.low_water, self._book.low_water) if at is not None]
        low = min(needed, default=None)
        last = self._hub.last if low is None else low - 1
        place = None if last is None else self._hub.place(last)
        if place is None and low is not None and not self.is_known:
            # The first event is needed itself until what it tells of has ended everywhere, which may take a quarter of
            # an hour: nobody here waits for that. Of several notifiers no place is before it.
            place = self._hub.place(low)
        return place

    def _write(self, place: Place) -> None:
        self.is_known = True
        self._journal.keep_cursor(place.after, place.text())
