"""What the broker of `service_bus_broker` holds: its settings, what it accepted, and what waits for whom."""

from __future__ import annotations

import sqlite3
from bisect import insort
from pathlib import Path
from typing import NamedTuple

import msgspec
from proton import Link, Message

FILE_NAME = "bus.sqlite3"


class Subscription(msgspec.Struct):
    """A subscription's settings."""

    sessions: bool = True


class Topic(msgspec.Struct):
    """A topic's settings."""

    subscriptions: dict[str, Subscription] = {}
    partitioned: bool = False
    """Refuses a batch whose messages have several session ids, as partitioned topics do."""


class Config(msgspec.Struct):
    """All that the broker is told."""

    key_name: str
    key: str
    topics: dict[str, Topic]
    max_message_bytes: int


class Stored(NamedTuple):
    """A message on its way through a subscription."""

    sequence: int
    session: str | None
    raw: bytes


class Storage:
    """Messages that were accepted, and which subscriptions still hold them."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")  # the kernel keeps what a killed process has written
        self._db.executescript(
            """
            CREATE TABLE IF NOT EXISTS messages
                (sequence INTEGER PRIMARY KEY, topic TEXT, session TEXT, message_id TEXT, raw BLOB);
            CREATE TABLE IF NOT EXISTS held (subscription TEXT, sequence INTEGER, PRIMARY KEY (subscription, sequence));
            """
        )

    def add(self, topic: str, subscriptions: list[str], messages: list[tuple[Message, bytes]]) -> list[Stored]:
        """Keep all of a transfer's messages, or none."""
        self._db.execute("BEGIN IMMEDIATE")
        stored = []
        for message, raw in messages:
            row = (topic, message.group_id, message.id, raw)
            sequence = self._db.execute(
                "INSERT INTO messages (topic, session, message_id, raw) VALUES (?,?,?,?)", row
            ).lastrowid
            assert sequence is not None
            self._db.executemany("INSERT INTO held VALUES (?,?)", [(name, sequence) for name in subscriptions])
            stored.append(Stored(sequence, message.group_id, raw))
        self._db.execute("COMMIT")
        return stored

    def held(self, subscription: str) -> list[Stored]:
        query = "SELECT sequence, session, raw FROM held JOIN messages USING (sequence) WHERE subscription = ?"
        return [Stored(*row) for row in self._db.execute(query + " ORDER BY sequence", (subscription,))]

    def drop(self, subscription: str, sequence: int) -> None:
        self._db.execute("DELETE FROM held WHERE subscription = ? AND sequence = ?", (subscription, sequence))


class Queue:
    """One subscription: what waits in it, by session, and the links that want it."""

    def __init__(self, path: str, sessions: bool, storage: Storage) -> None:
        self.path = path
        self.sessions = sessions
        self._storage = storage
        self._waiting: dict[str | None, list[Stored]] = {}
        self._owners: dict[str, Link] = {}
        self.links: list[Link] = []
        """Attached receivers."""
        self.queueing: list[Link] = []
        """Receivers to be attached once there is a session for them."""
        for stored in storage.held(path):
            self.put(stored)

    def put(self, stored: Stored) -> None:
        """Also puts back what was not settled: to its place in the order."""
        insort(self._waiting.setdefault(stored.session if self.sessions else None, []), stored)

    def take(self, session: str | None) -> Stored | None:
        waiting = self._waiting.get(session)
        if not waiting:
            return None
        stored = waiting.pop(0)
        if not waiting:
            del self._waiting[session]
        return stored

    def done(self, stored: Stored) -> None:
        self._storage.drop(self.path, stored.sequence)

    def claim(self, wanted: str | None, link: Link) -> str | None:
        """The session `wanted`, or any that has messages, if nobody else has it."""
        free = [wanted] if wanted is not None else [name for name in self._waiting if name is not None]
        for session in free:
            if session not in self._owners:
                self._owners[session] = link
                return session
        return None

    def leave(self, link: Link) -> None:
        self._owners = {session: owner for session, owner in self._owners.items() if owner != link}
        self.links = [other for other in self.links if other != link]
        self.queueing = [other for other in self.queueing if other != link]


def decode(raw: bytes) -> Message:
    message = Message()
    message.decode(raw)
    return message


_SECTION = b"\x00\x53"  # a described section; its number follows
_DATA = b"\x00\x53\x75"


def batched(raw: bytes) -> list[bytes]:
    """The messages inside a batch: its data sections, each an encoded message. Empty for a single message."""
    start = raw.find(_DATA)
    parts = []
    while 0 <= start < len(raw) and raw.startswith(_DATA, start):
        start += len(_DATA)
        wide = raw[start] == 0xB0  # binary with a length of four bytes, else one
        size = int.from_bytes(raw[start + 1 : start + (5 if wide else 2)], "big")
        start += 5 if wide else 2
        parts.append(raw[start : start + size])
        start += size
    return parts if len(parts) > 0 and all(part.startswith(_SECTION) for part in parts) else []
