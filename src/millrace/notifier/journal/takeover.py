"""Journals of the formats 1 to 3, whose events were in the database too, become a log and tables.

All is made beside the old journal, in a folder that takes its place at the end: whenever it is interrupted, a start
goes on with what is whole.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from millrace.notifier.journal.log import Log
from millrace.notifier.journal.memories import FILE_NAME, Memories, create, damaged, unusable
from millrace.notifier.journal.recent import Recent
from millrace.notifier.journal.rows import SELECT, JournalUnusable, entry_of, intact
from millrace.notifier.journal.segments import Place
from millrace.notifier.journal.sqlite_schema import APPLICATION_ID, FROM_ANY, OLDER
from millrace.notifier.rules.entry import Entry
from millrace.runtime import files

log = logging.getLogger(__name__)

_COMMIT_BYTES = 4 * 1024 * 1024  # of payloads
_COMMIT_EVENTS = 1024


def take_over(directory: Path, log_name: str) -> None:
    """Make a journal of today of an older one, if there is one. Raises `JournalUnusable`."""
    old, events = directory / FILE_NAME, directory / log_name
    made = events / FILE_NAME
    if _format_of(old) in OLDER:
        fresh = directory / f"{log_name}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        if made.exists():  # interrupted before the last step; an earlier version may have written since
            events.rename(fresh)
            shutil.rmtree(fresh)
        elif events.exists():
            raise JournalUnusable(
                f"{old} is a journal of an earlier version, and {events} the log of a later one:"
                " choose another data_dir, or move one of them away and start again"
            )
        log.info("a journal of an earlier version is taken over", extra={"file": str(old)})
        try:
            _convert(old, fresh)
        except sqlite3.DatabaseError as error:
            raise unusable(old, error) from error
        except (msgspec.DecodeError, ValueError, TypeError, KeyError) as error:
            raise damaged(old, error) from error
        except JournalUnusable:
            raise
        except OSError as error:
            raise JournalUnusable(f"{fresh}: {error}. Make room for a copy of the journal and start again") from error
        fresh.rename(events)
        files.sync(directory)
        made.replace(old)
        files.sync(directory)


def _format_of(path: Path) -> int:
    """Of a journal; 0 of what is none, which whoever opens it will say."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as db:
        try:
            ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
            return int(db.execute("PRAGMA user_version").fetchone()[0]) if ours else 0
        except sqlite3.DatabaseError:
            return 0


def _convert(old: Path, fresh: Path) -> None:
    """Write all that a journal holds to a log and to tables in the folder `fresh`."""
    with closing(sqlite3.connect(old, isolation_level=None)) as db:
        # What the old database has in its own log must not be taken for the new one's.
        if db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise JournalUnusable(f"{old} is in use by another program: end it")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        facts = dict(db.execute("SELECT name, value FROM facts").fetchall())
        with closing(Log(fresh)) as made:
            start = _copy_events(db, made, facts)
        recent = Recent()
        if version >= 3:
            recent = Recent.read(row[0] for row in db.execute("SELECT change FROM changes ORDER BY id"))
        with closing(sqlite3.connect(fresh / FILE_NAME, isolation_level=None)) as new:
            create(new, facts["origin"])
        db.execute("ATTACH ? AS new", (str(fresh / FILE_NAME),))
        db.executescript(f"BEGIN; {OLDER[version]} {FROM_ANY} COMMIT;")
    with closing(Memories(fresh, writer=True)) as memories:
        memories.note_file(made.newest.number)
        memories.move(recent, made.end.number, start)
        memories.settle()


def _copy_events(db: sqlite3.Connection, made: Log, facts: dict[str, int]) -> Place:
    """Append all events to a new log; returns where the newest begin.

    Those that are damaged are left out: as before, whoever reads there is told that they are.
    """
    oldest, newest = db.execute("SELECT min(sequence), max(sequence) FROM events").fetchone()
    following = max(facts["next"], (newest or 0) + 1)
    made.begin(oldest or following, max(facts["origin"], facts.get("horizon", 0)))
    places = [made.place]
    for events in _stretches(db):
        if made.full:
            made.roll()
        places = [*places[-1:], made.place]
        _append(made, events[0].sequence, events)
    _append(made, following, [])
    return places[0]


def _stretches(db: sqlite3.Connection) -> Iterator[list[Entry]]:
    """The events that are whole, one behind the other, as many as a commit shall have."""
    events: list[Entry] = []
    size = 0
    for row in db.execute(f"{SELECT} ORDER BY sequence"):
        if not intact(row):
            log.error("an event of the journal fails its checksum and is left out", extra={"sequence": row[0]})
            continue
        entry = entry_of(row)
        full = size >= _COMMIT_BYTES or len(events) >= _COMMIT_EVENTS
        if events and (full or entry.sequence != events[-1].sequence + 1):
            yield events
            events, size = [], 0
        events.append(entry)
        size += len(entry.payload)
    if events:
        yield events


def _append(made: Log, first: int, events: list[Entry]) -> None:
    end = made.end
    kept = end.kept + sum(len(entry.payload) for entry in events)
    made.append(end._replace(number=end.number + 1, first=first, kept=kept, changes=b""), events)
