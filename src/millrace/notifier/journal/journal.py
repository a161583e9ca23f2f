"""The journal as the rest of the notifier uses it: one writer thread with group commit, one reader thread.

Payloads queue for the writer. It takes all that wait, appends their news in one transaction and returns once
that is on disk; only then are the nodes answered and the consumers served. While the disk refuses, the batch
is tried again and no node is answered: nodes then hold back, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from millrace.chain import outport, outport_json
from millrace.notifier.journal.changes import BlockKey
from millrace.notifier.journal.dead_letters import DeadLetters
from millrace.notifier.journal.file_store import Store
from millrace.notifier.journal.processor import Arrival, Processor
from millrace.notifier.journal.rows import PRUNE_ROWS, JournalReader, JournalStore, JournalUnusable
from millrace.notifier.metrics import Metrics
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules.dedup import Block
from millrace.notifier.rules.entry import Entry, now_ms
from millrace.notifier.rules.runs import Runs
from millrace.notifier.settings import NotifierSettings
from millrace.runtime.clocks import UnhurriedClock

log = logging.getLogger(__name__)
_log_dead_letter = OccasionalLog(log, logging.WARNING, "dead letter")

T = TypeVar("T")

_MAX_BATCH = 256  # messages in one commit
_TICK = 0.25  # seconds between looks at what is overdue, while no message comes
_PRUNE_EVERY = 1.0  # seconds
_RETRY = 0.5, 5.0  # seconds between attempts while the disk refuses: first, longest
_SET_BACK_MS = 1000  # a clock that goes back by less delays what waits by less


class _Job(NamedTuple):
    arrival: Arrival
    done: Callable[[], None]
    as_json: bool


class Journal:
    """Owns the data directory, and the database if it is elsewhere. All methods are for the event loop's thread."""

    def __init__(
        self, settings: NotifierSettings, metrics: Metrics, on_committed: Callable[[list[Entry]], None]
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._on_committed = on_committed
        self._unhurried = UnhurriedClock(now_ms)
        self._looked_ms = 0
        """When what is overdue was looked for last."""
        self._finalized_wait_ms = int(settings.finalized_wait * 1000)
        self._answering_ms = 0
        """Since when nodes are answered without a delay; what is due from them may not have come before."""
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(1, "journal-read")
        self._thread = threading.Thread(target=self._write_forever, name="journal-write", daemon=True)
        self._stopping = threading.Event()
        self.head = 0
        """Newest committed sequence."""
        self.oldest = 0
        """Oldest sequence still here; beyond `head` when the journal is empty."""
        self.origin = 0
        """No sequence of this journal is or ever was as small as this."""
        self.runs: Runs
        """Whose sequences are whose."""
        self.failing = ""
        """Why the disk refuses at the moment; empty when it does not."""
        self.defect: asyncio.Future[None]
        """Carries the exception of a writer that had to give up."""
        self.last_block_ms: dict[int, int] = {}
        """Shard -> when its newest block came; without those that name another shard, too."""

    async def start(self) -> None:
        """Open or create the journal. Raises `JournalUnusable` with what to do about it."""
        self._loop = asyncio.get_running_loop()
        self.defect = self._loop.create_future()
        await self._loop.run_in_executor(self._readers, self._open)
        self._warmed = self._readers.submit(self._processor.remember_newest)
        self._thread.start()

    @property
    def disk_bytes(self) -> int:
        """How long the files of events are; 0 with a database elsewhere."""
        return self._store.disk_bytes

    async def warmed(self) -> None:
        """Return once the newest blocks are remembered; nodes may send before, and are answered then."""
        await asyncio.wrap_future(self._warmed)

    def _open(self) -> None:
        directory = self._settings.data_dir
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = (directory / "lock").open("w")
        except OSError as error:
            raise JournalUnusable(f"{directory}: {error.strerror}: choose a data_dir that can be written") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise JournalUnusable(f"{directory} is in use by another notifier: stop it or choose another") from error
        try:
            self._store, self._reader = self._open_stores(directory)
        except BaseException:
            self._lock.close()
            raise
        self._dead = DeadLetters(directory, self._settings.dead_letter_bytes)
        self._processor = Processor(self._store, self._dead, self._metrics, self._settings.shards)
        self.last_block_ms = {shard: saved for shard, (_, saved) in self._store.shards().items()}
        self.origin, self.runs = self._store.origin, self._store.runs
        self.head, self.oldest = self._store.next_sequence - 1, self._store.oldest
        self._looked_ms = max((entry.received_ms for entry in self._store.newest), default=0)
        self._answering_ms = now_ms()

    def _open_stores(self, directory: Path) -> tuple[JournalStore, JournalReader]:
        """The writer's and the reader's view."""
        url, schema = self._settings.journal_url, self._settings.journal_schema
        if not url:
            store = Store(directory)
            return store, store.reader()
        from millrace.notifier.journal.postgres_store import PostgresStore  # with its client library
        from millrace.runtime.postgres import Unavailable

        try:
            return PostgresStore(url, schema, writer=True), PostgresStore(url, schema, writer=False)
        except Unavailable as error:
            raise JournalUnusable(f"{error}. Start the server, or correct journal_url") from None

    async def stop(self) -> None:
        """Write what is queued, then close the files."""
        self._queue.put(None)
        self._stopping.set()
        await self._loop.run_in_executor(None, self._thread.join)
        await self._loop.run_in_executor(self._readers, self._close)
        self._readers.shutdown()

    def _close(self) -> None:
        self._reader.close()
        self._dead.close()
        self._store.close()
        self._lock.close()

    def submit(self, arrival: Arrival, done: Callable[[], None], *, as_json: bool = False) -> None:
        """Queue a payload; `done` is called on the loop once all that it told is on disk.

        With `as_json` the payload is what `outport_json.decode_envelope` gave.
        """
        self._queue.put(_Job(arrival, done, as_json))

    async def read(self, after: int, max_bytes: int) -> list[Entry]:
        """Committed events beyond the sequence `after`: at least one if there is one, then up to `max_bytes`."""
        entries: list[Entry] = []
        while not entries:  # behind a stretch that is damaged, however long, there may be more
            read = functools.partial(self._reader.read, after, max_bytes)
            entries, corrupt = await self._loop.run_in_executor(self._readers, self._patiently, read, ([], []))
            if entries:  # what stands behind the last one is found again, by who asks for more
                corrupt = [sequence for sequence in corrupt if sequence < entries[-1].sequence]
            if not corrupt:
                break
            if self.failing:  # perhaps the whole disk is away: what it does not give now may come again
                entries = []
                await asyncio.sleep(_RETRY[0])
                continue
            self._metrics.corrupt.inc(len(corrupt))
            log.error("events of the journal fail their checksum or cannot be read", extra={"sequences": corrupt[:10]})
            after = corrupt[-1]
        return entries

    async def block(self, shard: int, block_hash: bytes) -> Block | None:
        """What is remembered of a block, as of the latest commit."""
        key = shard, block_hash
        ask = functools.partial(self._reader.blocks, [key])
        return (await self._loop.run_in_executor(self._readers, self._patiently, ask, {})).get(key)

    async def first_heard(self, keys: Sequence[BlockKey]) -> dict[BlockKey, int]:
        """Of those blocks that are remembered: the sequence before which nothing was heard of them."""
        ask = functools.partial(self._reader.blocks, keys)
        known = await self._loop.run_in_executor(self._readers, self._patiently, ask, {})
        return {key: block.first_sequence for key, block in known.items()}

    def _patiently(self, ask: Callable[[], T], at_the_end: T) -> T:
        """While the database cannot be reached, whoever reads waits, as nodes do."""
        delay = _RETRY[0]
        while True:
            try:
                return ask()
            except JournalUnusable:
                raise
            except OSError as error:
                log.error("the journal cannot be read; consumers wait", extra={"why": str(error)})
                if self._stopping.wait(delay):
                    return at_the_end
                delay = min(2 * delay, _RETRY[1])

    # The writer's thread.

    def _write_forever(self) -> None:
        problem: BaseException
        try:
            self._write_until_stopped()
            return
        except sqlite3.DatabaseError as error:
            problem = JournalUnusable.damaged(self._store.place, error)
        except BaseException as error:
            problem = error
        # The loop may be gone already when the process is being torn down.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._give_up, problem)

    def _give_up(self, error: BaseException) -> None:
        if not self.defect.done():
            self.defect.set_exception(error)

    def _write_until_stopped(self) -> None:
        self._warmed.result()
        pruned = time.monotonic()
        while True:
            batch, last = self._collect()
            count = self._commit(batch)
            now = time.monotonic()
            if now - pruned >= _PRUNE_EVERY:
                pruned = now if self._prune(count) == 0 else pruned
            if last:
                return

    def _collect(self) -> tuple[list[_Job], bool]:
        """All jobs that wait, or none after a tick; and whether the end was asked for."""
        batch: list[_Job] = []
        try:
            job = self._queue.get(timeout=_TICK)
            while job is not None:
                batch.append(job)
                if len(batch) >= _MAX_BATCH:
                    return batch, False
                job = self._queue.get_nowait()
        except queue.Empty:
            return batch, False
        return batch, True

    def _commit(self, batch: list[_Job]) -> int:
        """Write what a batch tells, and answer; returns how many events it made."""
        began, delay = now_ms(), _RETRY[0]
        prepared: list[Entry] | None = None  # of the attempt before
        while True:
            try:
                if not self._store.landed() or prepared is None:
                    prepared = None
                    prepared = self._prepare(batch)
                    self._write(batch)
                break
            except JournalUnusable:
                raise
            except (sqlite3.OperationalError, OSError) as error:
                self._take_back()
                self._metrics.commit_failures.inc()
                self.failing = str(error)
                log.error("the disk refuses; nodes are not answered until it takes events", extra={"why": self.failing})
                if _is_full(error):
                    self._make_room()
                if self._stopping.wait(delay):
                    return 0  # never answered, so the nodes send it all again
                delay = min(2 * delay, _RETRY[1])
                self._answering_ms = now_ms()
        self._dead.keep()
        for job in batch:
            job.arrival.observer.keep()
        self.failing, self._looked_ms = "", now_ms()
        if self._looked_ms - began > self._finalized_wait_ms / 2:
            self._answering_ms = self._looked_ms
        if batch or prepared:
            self._loop.call_soon_threadsafe(self._committed, batch, prepared, self._processor.blocks_ms)
        return len(prepared)

    def _prepare(self, batch: list[_Job]) -> list[Entry]:
        """Append the news of a batch in a new transaction."""
        self._store.begin()
        self._dead.begin()
        self._processor.blocks_ms = {}
        for job in batch:
            job.arrival.observer.take_back()
        entries: list[Entry] = []
        for job in batch:
            arrival = self._translate(job.arrival) if job.as_json else job.arrival
            if arrival is not None:
                entries += self._processor.process(arrival)
        entries += self._processor.release_overdue(self._overdue_ms())
        return entries

    def _overdue_ms(self) -> int:
        """What is held since before this time waits no longer.

        Everything where the clock was set back meanwhile. Nothing where nodes were not answered just now: the node that
        told of a finality sends its block when it is.
        """
        now, before, wait = now_ms(), self._looked_ms, self._finalized_wait_ms
        if now <= before - _SET_BACK_MS:
            self._answering_ms = now
            return before + _SET_BACK_MS
        return now - wait if now - self._answering_ms > wait else 0

    def _translate(self, arrival: Arrival) -> Arrival | None:
        """An arrival in JSON with its payload in protobuf; `None` when that is impossible: it is a dead letter then."""
        try:
            arrival = arrival._replace(payload=outport_json.unwrap(arrival.payload))
            if arrival.topic not in outport.PAYLOADS:
                return arrival
            unknown: list[str] = []
            payload = outport_json.to_protobuf(arrival.topic, arrival.payload, unknown)
            return arrival._replace(payload=payload, unknown=tuple(unknown))
        except outport.OutportError as error:
            reason = str(error)
        except Exception as error:  # a defect of ours must neither stop the node nor lose its message
            log.exception("message could not be translated", extra={"topic": arrival.topic})
            reason = f"defect: {type(error).__name__}: {error}"[:500]
        self._processor.tally.add(self._metrics.dead_letters)
        self._dead.add(now_ms(), arrival.remote, arrival.topic, arrival.version, reason, arrival.payload)
        _log_dead_letter(topic=arrival.topic[:64], remote=arrival.remote, reason=reason)
        return None

    def _write(self, batch: list[_Job]) -> None:
        """Put what was prepared on disk."""
        began = time.perf_counter()
        self._dead.sync()
        self._store.commit()
        self._processor.tally.publish()
        if batch:
            self._metrics.commit_seconds.observe(time.perf_counter() - began)
            self._metrics.batch_messages.observe(len(batch))

    def _take_back(self) -> None:
        """Undo an attempt to commit. What is not the store's goes with the next one: it may have landed after all."""
        self._store.rollback()
        self._processor.tally.back_to(0)

    def _make_room(self) -> None:
        """Let go of what retention does not keep any more, up to a whole file."""
        before = self._store.disk_bytes
        while self._prune() and self._store.disk_bytes >= before and not self._stopping.is_set():
            pass
        self._prune()  # deletes what the one before gave up

    def _prune(self, count: int = 0) -> int:
        """Let some of what is kept too long go, or so many where more have come; returns how many events went."""
        settings = self._settings
        try:
            self._store.begin()
            before = self._unhurried() - int(settings.retention_seconds * 1000)
            gone = self._store.prune(before, settings.retention_bytes, settings.dedup_window, max(PRUNE_ROWS, count))
            self._store.commit()
        except JournalUnusable:
            raise
        except (sqlite3.OperationalError, OSError) as error:
            self._store.rollback()
            log.warning("the journal could not be pruned", extra={"why": str(error)})
            return 0
        if gone:
            self._metrics.pruned.inc(gone)
            self._loop.call_soon_threadsafe(self._set_oldest, self._store.oldest)
        return gone

    def _set_oldest(self, oldest: int) -> None:
        self.oldest = oldest

    # Back on the loop.

    def _committed(self, batch: list[_Job], entries: list[Entry], blocks_ms: dict[int, int]) -> None:
        if entries:
            self.head = entries[-1].sequence
            self.last_block_ms |= blocks_ms
        self._metrics.journal_bytes.set(self._store.payload_bytes)
        for job in batch:
            try:
                job.done()
            except Exception:  # one node's trouble is not the others'
                log.exception("an acknowledgement could not be sent")
        if entries:
            self._on_committed(entries)


def _is_full(error: Exception) -> bool:
    """Whether room would help."""
    return (
        getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    )
