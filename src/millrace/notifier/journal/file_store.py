"""The journal in files: a log of commits, and beside it the memory of the rules in tables.

The log is the journal: what a commit appended to it is on disk when it returns, events and what the rules remember
since then, with a checksum over each event and one over all else. A commit writes little more than it has to say, once,
and in one place; a database wrote every page that it touched whole, and large payloads twice. Memories whose keys are
hashes have no such order: they wait in memory, and move to tables (`memories`) many at a time. A start reads the log
again from there.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millrace.notifier.journal import takeover
from millrace.notifier.journal.changes import BlockKey, Changes
from millrace.notifier.journal.log import Log, LogReader
from millrace.notifier.journal.memories import FILE_NAME, Memories, damaged, unusable
from millrace.notifier.journal.recent import Recent, encode
from millrace.notifier.journal.rows import (
    NEWEST_BYTES,
    NEWEST_EVENTS,
    PRUNE_ROWS,
    JournalUnusable,
    held_of,
    prunable,
    update_held,
    update_live,
)
from millrace.notifier.journal.segments import Commit, Place, SegmentDamaged
from millrace.notifier.rules.dedup import Block
from millrace.notifier.rules.entry import Entry

LOG_NAME = "events"
# Memories that are in no table, or commits that have some, before they are moved there: that takes some 50 ms, and a
# start reads as many commits in 15.
_MAX_RECENT = 4096
_FORGOTTEN_ROWS = 512  # deleted in one transaction at least
_FORGOTTEN_SHARE = 4  # … and for each event since the one before; so the tables outgrow window and era by little


class Store:
    """The writer's view of the journal; also the memory of the rules (`dedup.Index`)."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        takeover.take_over(directory, LOG_NAME)
        self._memories = Memories(directory, writer=True)
        self.origin = self._memories.origin
        self.log = Log(directory / LOG_NAME)
        self.recent = Recent()
        """What was committed and is not in the tables."""
        self._newest: deque[tuple[Place, Commit]] = deque()  # the commits with the newest events
        self._newest_events = self._newest_bytes = 0
        self._last = Place(0, 0)  # of the newest commit
        try:
            self._open()
            self.runs = self._memories.begin_run(self.log.end.next - 1)
        except (SegmentDamaged, msgspec.DecodeError, ValueError, TypeError) as error:
            self._release()
            raise damaged(self.path, error) from error
        except sqlite3.Error as error:
            self._release()
            raise unusable(self.path, error) from error
        except OSError as error:
            self._release()
            raise JournalUnusable(f"{self.log.directory}: {error}. Mend that and start again") from error
        self.next_sequence: int = self.log.end.next
        self.oldest: int = self.log.end.oldest
        self.payload_bytes: int = self.log.end.kept
        self._horizon = self.log.end.horizon
        self._changes = Changes()
        self._collected = self.next_sequence
        self._undo = self._state()

    @property
    def place(self) -> str:
        return str(self.path)

    @property
    def disk_bytes(self) -> int:
        return self.log.bytes

    def _open(self) -> None:
        memories = self._memories
        if memories.newest_file:
            changes = []
            for place, commit in self.log.recover(memories.start, memories.moved, memories.newest_file):
                if commit.number > memories.moved and commit.changes:
                    changes.append(commit.changes)
                self._note(place, commit)
            self.recent = Recent.read(changes)
        else:
            self.log.begin(self.origin + 1, horizon=self.origin)
            memories.note_file(self.log.newest.number)
        self._held = memories.held()  # blocks whose mark waits, in tables or not
        update_held(self._held, self.recent.blocks)
        self._reader = LogReader(self.log)
        self.newest = self._read_newest()

    def _note(self, place: Place, commit: Commit) -> None:
        """Keep the places of those commits that a start wants to read, whatever was moved to tables."""
        self._last = place
        if not commit.events:
            return
        self._newest.append((place, commit._replace(changes=b"")))
        self._newest_events += commit.events
        self._newest_bytes += commit.size
        oldest = self._newest[0][1]
        while self._newest_events - oldest.events >= NEWEST_EVENTS or self._newest_bytes - oldest.size >= NEWEST_BYTES:
            self._newest.popleft()
            self._newest_events -= oldest.events
            self._newest_bytes -= oldest.size
            oldest = self._newest[0][1]

    def _read_newest(self) -> list[Entry]:
        if not self._newest:
            return []
        place, commit = self._newest[0]
        self._reader.remember([(commit.first, place)])
        newest: list[Entry] = []
        size = 0
        for sequence, entry in reversed(list(self._reader.events(commit.first - 1))):
            if size >= NEWEST_BYTES or len(newest) >= NEWEST_EVENTS:
                break
            if entry is None:
                raise SegmentDamaged(f"event {sequence} fails its checksum")
            newest.append(entry)
            size += len(entry.payload)
        return newest[::-1]

    def reader(self) -> Reader:
        """For another thread; sees what is committed."""
        return Reader(self)

    def close(self) -> None:
        """Mark the end: at the next start damage before it is not taken for a write that was cut off."""
        self.rollback()
        end = self.log.end
        if end.events or end.changes:
            with contextlib.suppress(OSError):
                self.log.append(self._commit(), ())
        self._release()

    def _release(self) -> None:
        self.log.close()
        self._memories.close()

    # Transactions.

    def _state(self) -> tuple[int, int, int, int]:
        return self.next_sequence, self.oldest, self.payload_bytes, self._horizon

    def begin(self) -> None:
        self._undo = self._state()
        self._changes = Changes()

    def commit(self) -> None:
        """Return once everything since `begin` is on disk."""
        changes = self._changes
        if max(len(self.recent), self.log.end.number - self._memories.moved) >= _MAX_RECENT:
            self._move_recent()
        if self._state() == self._undo and not changes.remembers:
            return
        if self.log.full and changes:  # giving up events must not need room for a file
            self.log.roll()
        if self.log.newest.number != self._memories.newest_file:
            self._memories.note_file(self.log.newest.number)
        place = self.log.place
        self.log.append(self._commit(encode(changes) if changes.remembers else b""), changes.events)
        self._note(place, self.log.end)
        self.recent.absorb(changes)
        update_held(self._held, changes.blocks)
        self.begin()

    def _commit(self, changes: bytes = b"") -> Commit:
        """The next commit, as the state is now."""
        end = self.log.end
        return Commit(end.number + 1, end.next, 0, self.oldest, self.payload_bytes, self._horizon, 0, changes)

    def _move_recent(self) -> None:
        """Write what was remembered last to its tables."""
        self._memories.move(self.recent, self.log.end.number, self._start)
        self.recent = Recent()  # after the tables have it, for the readers

    @property
    def _start(self) -> Place:
        """Where a start would read the log from, once all is in tables."""
        return self._newest[0][0] if self._newest else self._last

    def rollback(self) -> None:
        self._changes = Changes()
        self.next_sequence, self.oldest, self.payload_bytes, self._horizon = self._undo

    def landed(self) -> bool:
        """A file's answer is never lost."""
        return False

    def mark(self) -> tuple[int, ...]:
        """A point inside a transaction to go back to."""
        return self.next_sequence, self.payload_bytes, *self._changes.mark()

    def back_to(self, mark: tuple[int, ...]) -> None:
        self.next_sequence, self.payload_bytes, undo, events = mark
        self._changes.back_to(undo, events)

    # Events.

    def append(self, topic: str, shard: int, marks: int, message_id: str, now: int, payload: bytes) -> Entry:
        """Add an event under the next sequence."""
        entry = Entry(self.next_sequence, topic, shard, marks, message_id, now, payload)
        self._changes.events.append(entry)
        self.next_sequence += 1
        self.payload_bytes += len(payload)
        return entry

    def read(self, after: int, max_bytes: int, max_rows: int = 1024) -> tuple[list[Entry], list[int]]:
        """Events beyond the sequence `after`, at least one if there is one; and the sequences found corrupt."""
        return self._reader.read(after, max_bytes, max_rows)

    def prune(self, before_ms: int, max_bytes: int, dedup_window: int, rows: int = PRUNE_ROWS) -> int:
        """Give up some of the oldest events and memories beyond the bounds; return how many events go.

        Files and rows that earlier commits gave up are deleted now.
        """
        self._delete_files()
        sizes = self._reader.sizes(self.oldest - 1, rows)
        last, gone, freed = prunable(sizes, before_ms, self.payload_bytes, max_bytes)
        if gone:
            self.oldest = last + 1
            self.payload_bytes = 0 if self.oldest == self.next_sequence else max(0, self.payload_bytes - freed)
        horizon = self.next_sequence - dedup_window
        if horizon > self._horizon:
            try:
                self._forget()
                self._horizon = horizon
            except sqlite3.OperationalError:
                if not gone:  # else events leave first: a full disk may take the rest then
                    raise
        return gone

    def _delete_files(self) -> None:
        """Delete files of the log that hold nothing that is wanted; what only they remember moves to its tables."""
        self.log.drop(before=self._memories.start.segment)  # first what needs no room
        unwanted = self.log.droppable()
        if unwanted and unwanted[-1].number >= self._memories.start.segment < self._start.segment:
            self._move_recent()
        self.log.drop(before=self._memories.start.segment)

    def _forget(self) -> None:
        """Delete rows of what is forgotten, as of the latest commit."""
        count = max(_FORGOTTEN_ROWS, _FORGOTTEN_SHARE * (self.next_sequence - self._collected))
        self._collected = self.next_sequence
        self._memories.forget(self.log.end.horizon, count)

    # The memory of the rules.

    def block(self, shard: int, block_hash: bytes) -> Block | None:
        key = shard, block_hash
        block = self._changes.blocks.get(key) or self.recent.blocks.get(key) or self._memories.block(key)
        return None if block is None or self._is_forgotten(block) else block

    def _is_forgotten(self, block: Block) -> bool:
        return block.first_sequence < self._horizon and not block.held_since

    def put_block(self, shard: int, block_hash: bytes, block: Block) -> None:
        self._changes.put(self._changes.blocks, (shard, block_hash), block)

    def live_at(self, shard: int, nonce: int) -> list[bytes]:
        live = dict.fromkeys(self._memories.live_at(shard, nonce, self._horizon))
        for blocks in (self.recent.blocks, self._changes.blocks):
            update_live(live, blocks, shard, nonce, self._horizon)
        return list(live)

    def newest_nonce(self, shard: int) -> int | None:
        known = self._changes.nonces.get(shard) or self.recent.nonces.get(shard) or self._memories.shards().get(shard)
        return None if known is None else known[0]

    def set_newest_nonce(self, shard: int, nonce: int) -> None:
        self._changes.put(self._changes.nonces, shard, (nonce, time.time_ns() // 1_000_000))

    def shards(self) -> dict[int, tuple[int, int]]:
        """Shard -> nonce of its newest block, and when (ms) that came."""
        return self._memories.shards() | self.recent.nonces | self._changes.nonces

    def waiting(self, before_ms: int) -> list[tuple[int, bytes, Block]]:
        return held_of(self._held | self._changes.blocks, before_ms)

    def add_content(self, topic: str, shard: int, digest: bytes) -> bool:
        key = topic, shard, digest
        seen = self._changes.contents.get(key) or self.recent.contents.get(key)
        if seen is None:
            seen = self._memories.content(key)
        if seen is not None and seen >= self._horizon:
            return False
        self._changes.put(self._changes.contents, key, self.next_sequence)
        return True

    def swap_latest(self, topic: str, shard: int, digest: bytes) -> bool:
        key = topic, shard
        before = self._changes.latest.get(key) or self.recent.latest.get(key)
        if before is None:
            before = self._memories.latest(key)
        if before == digest:
            return False
        self._changes.put(self._changes.latest, key, digest)
        return True


class Reader:
    """A reading thread's view of the journal: what is committed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = LogReader(store.log)
        self._memories = Memories(store.path.parent, writer=False)

    def read(self, after: int, max_bytes: int, max_rows: int = 1024) -> tuple[list[Entry], list[int]]:
        """Events beyond the sequence `after`, at least one if there is one; and the sequences found corrupt."""
        return self._log.read(after, max_bytes, max_rows)

    def blocks(self, keys: Sequence[BlockKey]) -> dict[BlockKey, Block]:
        """Those of these blocks that are remembered."""
        recent = self._store.recent.blocks  # before the tables: what leaves it is in them
        found = self._memories.blocks([key for key in keys if key not in recent])
        return found | {key: recent[key] for key in keys if key in recent}

    def close(self) -> None:
        self._memories.close()
