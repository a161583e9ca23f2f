"""Delivery of the whole journal to a broker: what every kind of broker has in common.

A sink reads the journal from a cursor of its own, at the broker's pace; nobody waits for it. When the way to the
broker breaks, it connects again and goes on after the cursor; so the broker may get a message twice, under one
message id, and never misses one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from millrace.chain import outport
from millrace.notifier.brokers.cursor_file import Cursor, CursorFile
from millrace.notifier.brokers.item import Item, Verdict
from millrace.notifier.journal.journal import Journal
from millrace.notifier.journal.tail import Tail
from millrace.notifier.metrics import Metrics, SinkMetrics
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules.confirm_window import ConfirmWindow
from millrace.notifier.rules.entry import Entry
from millrace.notifier.rules.hub_protocol import GAP, gap
from millrace.notifier.settings import NotifierSettings
from millrace.runtime.tasks import end_tasks

if TYPE_CHECKING:
    from millrace.notifier.brokers.claims import Claims

log = logging.getLogger(__name__)
_log_cursor = OccasionalLog(log, logging.ERROR, "the cursor of a sink cannot be written")

BACK_OFF = 0.5, 30.0  # seconds before connecting again: first, longest
OPEN_SECONDS = 10.0  # to connect and get ready
CLOSE_SECONDS = 2.0  # for a goodbye
_POLL_SECONDS = 0.1  # between two looks at what another notifier has published
_READ_BYTES = 4 * 1024 * 1024  # of the journal at a time
_READ_EVENTS = 64  # of the newest events in memory at a time
_SAVE_EVERY = 0.25  # seconds between writes of the cursor: its fsync shares the journal's disk


class NoConfirm(ConnectionError):
    """The broker stays silent about what it was sent."""


class Bounds(NamedTuple):
    """What a sink may have under way, and what it never sends."""

    messages: int
    """Messages sent and not confirmed."""
    bytes: int
    """Their payload bytes; a larger message goes alone."""
    confirm_timeout: float
    """Seconds without any confirm, while some are due, after which the sink connects again."""
    message_bytes: int
    """A larger payload is told as a gap."""


class Sink(ABC):
    """Publishes the journal to one broker. All methods are for the event loop's thread."""

    expected: ClassVar[tuple[type[Exception], ...]] = (OSError, TimeoutError)
    """Errors that a broker or the way to it may cause; others are defects, and logged as such."""
    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors by which the broker refused a message, which is sent again."""

    def __init__(
        self, name: str, bounds: Bounds, settings: NotifierSettings, metrics: Metrics, journal: Journal
    ) -> None:
        self.name = name
        self.bounds = bounds
        self._metrics = SinkMetrics(metrics, name)
        self._journal = journal
        self._executed_topic = settings.executed_topic
        self._recent = Tail(settings.tail_bytes)  # the hub keeps the same ones, so they take memory once
        self._file = CursorFile(settings.data_dir / f"{name}.cursor")
        self._file_thread = ThreadPoolExecutor(1, f"{name}-cursor")  # one write after the other, also at the end
        self._window: ConfirmWindow
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._failure: Exception | None = None
        self._trouble = f"{name}: not connected yet"
        self._file_trouble = ""
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._claims: Claims | None = None
        self._ahead: tuple[int, list[Item]] = 0, []
        if settings.redis_url:
            from millrace.notifier.brokers.claims import Claims  # with its client library, which takes long to load

            self._claims = Claims(settings, name, journal.block, self._metrics.claim_failures.inc)

    async def start(self) -> None:
        """Begin where the cursor stands; a new sink begins with the journal's oldest event.

        Does not wait for the broker. Raises `CursorUnusable` for a damaged cursor.
        """
        cursor = self._begin(await asyncio.to_thread(self._file.load))
        self._window = ConfirmWindow(cursor, self.bounds.messages, self.bounds.bytes)
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._save_often())]
        self._moved.set()  # to the present run: with the broker away, more starts may follow than a journal remembers
        if self._claims is not None:
            self._claims.start(lambda: self.connected, lambda: self.lag == 0)

    def _begin(self, kept: Cursor | None) -> int:
        """The sequence after which this journal has what the broker may not have."""
        journal = self._journal
        if kept is None:
            return journal.oldest - 1
        # A journal restored from a backup may end before the cursor: what it had behind its end may be lost for good.
        shared = journal.runs.shared(kept.run, kept.sequence) if kept.run else journal.runs.present.after
        if shared is not None and shared >= kept.sequence:
            return kept.sequence
        log.error("the cursor is of another journal; all events are published", extra={"path": str(self._file.path)})
        return min(kept.sequence, journal.origin - 1)  # so that a gap is told before them

    async def stop(self) -> None:
        """Wait a little for what is on its way, then keep the cursor."""
        self._stopping = True
        self._wake.set()
        if self.connected:
            await asyncio.wait(self._tasks[:1], timeout=CLOSE_SECONDS)
        await end_tasks(self._tasks)
        await self._save()
        self._file_thread.shutdown()
        if self._claims is not None:
            await self._claims.stop()

    def tell(self, entries: list[Entry]) -> None:
        """The journal has news."""
        for entry in entries:
            self._recent.append(entry)
        self._wake.set()

    @property
    def connected(self) -> bool:
        """Whether the broker takes messages, as far as is known."""
        return not self._trouble

    @property
    def problems(self) -> list[str]:
        """What an operator should know; empty when all is well."""
        claiming = self._claims.trouble if self._claims is not None else ""
        return [text for text in (self._trouble, self._file_trouble, claiming and f"{self.name}: {claiming}") if text]

    @property
    def leading(self) -> bool:
        """Whether this notifier is the one that publishes; without others it always is."""
        return self._claims is None or self._claims.leading

    @property
    def cursor(self) -> int:
        """Every event up to this sequence is confirmed."""
        return self._window.cursor

    @property
    def lag(self) -> int:
        """Sequences between the journal's head and the cursor."""
        return max(0, self._journal.head - self._window.cursor)

    @property
    def queued(self) -> int:
        """Messages sent and not confirmed."""
        return self._window.unconfirmed

    def refresh_gauges(self) -> None:
        """Write the present state into the metrics."""
        self._metrics.connected.set(self.connected)
        self._metrics.leading.set(self.leading)
        self._metrics.queue.set(self.queued)
        self._metrics.lag.set(self.lag)
        self._metrics.cursor.set(self.cursor)

    # The connection.

    @abstractmethod
    async def _deliver(self) -> None:
        """Connect and publish until the way to the broker fails (raise), or all is confirmed at the end (return)."""

    async def _run(self) -> None:
        delay = BACK_OFF[0]
        while True:
            before = self._window.cursor
            self._failure = None
            try:
                await self._deliver()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                self._note(ConnectionError("the connection was given up"))  # by the library: nobody cancelled us
            except Exception as error:  # whatever it is, consumers of the hub must not feel it
                self._note(error)
            self._window.rewind()
            if self._stopping:
                return
            if self._window.cursor > before:
                delay = BACK_OFF[0]
            self._metrics.reconnects.inc()
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, BACK_OFF[1])

    def _opened(self, target: str) -> None:
        """The broker is reached and ready; `target` names where messages go."""
        self._trouble = ""
        log.info("publishing", extra={"sink": self.name, "target": target, "after": self._window.cursor})

    def _note(self, error: Exception) -> None:
        self._trouble = f"{self.name}: {type(error).__name__}: {error}"[:300]
        if isinstance(error, self.refusals):
            self._metrics.refused.inc()
        if isinstance(error, self.expected):
            log.warning("the broker cannot be published to", extra={"why": self._trouble})
        else:
            log.error("publishing failed by a defect", exc_info=error, extra={"sink": self.name})

    def _fail(self, error: BaseException | None) -> None:
        """Make the delivery give up this connection; of several reasons the first counts."""
        if not isinstance(error, Exception):
            error = ConnectionError("the connection was lost")
        self._failure = self._failure or error
        self._wake.set()

    def _require_life(self) -> None:
        """Raise why this connection is to be given up, if it is."""
        if self._failure is not None:
            raise self._failure
        since = self._window.quiet_since
        if since is not None and now() - since >= self.bounds.confirm_timeout:
            raise NoConfirm(f"no confirm for {self.bounds.confirm_timeout:g} s")

    async def _wait(self) -> None:
        """Return on news of the journal, a confirm or a failure, and when a confirm is overdue."""
        since = self._window.quiet_since
        left = None if since is None else max(0.0, since + self.bounds.confirm_timeout - now())
        try:
            async with asyncio.timeout(left):
                await self._wake.wait()
        except TimeoutError:
            return

    def _confirm(self, sequence: int) -> None:
        """The broker has this message for good."""
        self._metrics.confirmed.inc()
        self._settle(sequence)

    def _settle(self, sequence: int) -> None:
        before = self._window.cursor
        self._window.confirmed(sequence, now())
        if self._window.cursor > before:
            self._moved.set()
            if self._claims is not None:
                self._claims.confirmed(self._window.cursor)
        self._wake.set()

    # From the journal to messages.

    @property
    def behind(self) -> bool:
        """Whether the journal has events that were not sent."""
        return self._journal.head > self._window.position

    async def _next_items(self, after: int) -> list[Item]:
        """What follows the sequence `after` and is to be sent now; may be nothing though the journal has more."""
        if self._claims is None:
            return await self._read_items(after)
        if self._ahead[0] != after or not self._ahead[1]:
            self._ahead = after, await self._read_items(after)
        verdict, items = await self._claims.judge(self._ahead[1])
        if verdict is Verdict.WAIT:
            await asyncio.sleep(_POLL_SECONDS)
            return []
        self._ahead = items[-1].sequence, self._ahead[1][len(items) :]
        if verdict is Verdict.PUBLISH:
            return items
        for item in items:
            self._metrics.passed.inc()
            self._window.sent(item.sequence, 0, now())
            self._settle(item.sequence)
        return []

    async def _read_items(self, after: int) -> list[Item]:
        """What follows the sequence `after`, with a gap for each stretch that cannot be delivered."""
        head = self._journal.head
        entries = self._recent.after(after, _READ_EVENTS) or await self._journal.read(after, _READ_BYTES)
        if not entries:
            return [self._gap(after + 1, head)]
        items = []
        for entry in entries:
            if entry.sequence > after + 1:
                items.append(self._gap(after + 1, entry.sequence - 1))
            items.append(self._event(entry))
            after = entry.sequence
        return items

    def _event(self, entry: Entry) -> Item:
        if len(entry.payload) > self.bounds.message_bytes:
            gap = self._gap(entry.sequence, entry.sequence)
            return gap._replace(claim=entry.message_id, received_ms=entry.received_ms)
        return Item(
            entry.sequence,
            self._executed_topic if entry.topic == outport.EXECUTED_BLOCK else entry.topic,
            entry.shard,
            entry.marks,
            entry.message_id,
            entry.payload,
            entry.message_id,
            entry.received_ms,
        )

    def _gap(self, first: int, last: int) -> Item:
        self._metrics.gaps.inc()
        log.error("events are not published", extra={"sink": self.name, "first": first, "last": last})
        payload = gap(self._journal.origin, first, last)
        message_id = f"{GAP}:{first}:{last}"
        if self._claims is not None:  # sequences are one journal's own: another's gap of the same ones is not the same
            message_id += f":{self._journal.runs.writer(last)}"
        return Item(last, GAP, None, 0, message_id, payload, message_id)

    # The cursor on disk.

    async def _save_often(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            await self._save()
            await asyncio.sleep(_SAVE_EVERY)

    async def _save(self) -> None:
        loop = asyncio.get_running_loop()
        cursor = Cursor(self._window.cursor, self._journal.runs.present.name)
        try:
            await loop.run_in_executor(self._file_thread, self._file.save, cursor)
        except OSError as error:
            self._file_trouble = f"{self.name}: the cursor cannot be written: {error.strerror}"
            _log_cursor(sink=self.name, why=str(error))
            self._moved.set()
        else:
            self._file_trouble = ""


def now() -> float:
    """The loop's clock, seconds."""
    return asyncio.get_running_loop().time()
