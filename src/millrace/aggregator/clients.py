"""What the limits know of each client, in one piece of memory that all workers of a service share.

A table of fixed size: sets of eight slots, a slot for a client. A keyed digest of a client's name says which set is
his, so that nobody can aim at another's set; in a full set the client idle for longest is forgotten. Whoever reads and
writes a slot holds a lock on its set, which the kernel takes back from a process that dies. What a process that died in
the middle leaves is a slot with a count too few. A process that stands still while it holds a lock holds nobody up for
longer than `LOCK_SECONDS`: the others then go on without it.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

WAYS = 8
"""Slots of a set. With half of all slots taken by clients that came at random, one set in fifty is full."""
NAME_BYTES = 48
"""Of a client's name with its mark; an IPv6 network has 43 characters at most."""
MOST_MARKS = 1024
"""Moments that a slot remembers. A larger limit is counted in groups of requests, to a thousandth of it."""
LOCK_SECONDS = 0.002
"""A thousand times what is done under a lock: longer waits mean that its holder stands still."""
KEY_BYTES = 16
_MARK = b"\x01"  # begins a name: no name contains it, so a name is found where a slot begins and nowhere else
_NEVER = struct.pack("d", -math.inf)


class Slot(NamedTuple):
    """What is known of one client, without the moments of his requests. Times are of `time.monotonic`."""

    seen: float = -math.inf
    """When he last asked, or was answered."""
    position: int = 0
    """Of the oldest moment."""
    grouped: int = 0
    """Requests of the present group that are still free."""
    asked: int = 0
    """Requests admitted since other machines were told."""
    heard: int = 0
    """The last period of which other machines were heard; see `fleet.py`."""
    left: float = 0.0
    """Seconds of processor time that were left to him at `left_at`."""
    left_at: float = -math.inf
    spent: float = 0.0
    """Seconds that he has taken since other machines were told."""


Fields = tuple[float, int, int, int, int, float, float, float]
"""Of a slot, as they lie in memory: a tuple is made in half of the time."""
_SLOT = struct.Struct("d4Q3d")


class Clients:
    """The table, for at least `most` clients, each with `marks` moments. Any thread may use it.

    `shared` is the descriptor of a file that other processes have as well (`shared_file`); without one the table is
    this process's alone.
    """

    def __init__(self, most: int, marks: int, shared: int | None = None) -> None:
        self.marks = marks
        self._sets = -(-most // WAYS)
        self._slot_bytes = _SLOT.size + 8 * marks
        self._set_bytes = WAYS * (NAME_BYTES + self._slot_bytes)
        self._told = KEY_BYTES + self._sets * self._set_bytes
        """Where the marks begin of slots that have something to tell other machines."""
        size = self._told + self._sets * WAYS
        self._file = shared
        if shared is None:
            self._memory = mmap.mmap(-1, size)
        else:
            if os.fstat(shared).st_size != size:
                os.ftruncate(shared, size)
            self._memory = mmap.mmap(shared, size)
        if not any(self._memory[:KEY_BYTES]):  # whoever makes the table, before it is shared
            self._memory[:KEY_BYTES] = os.urandom(KEY_BYTES)
        self._key = bytes(self._memory[:KEY_BYTES])
        self._thread = threading.Lock()
        self._locked = -1
        """Which set is locked, by whoever has `_thread`."""
        self._set_of = lru_cache(maxsize=4096)(self._find_set)
        self._fresh = _SLOT.pack(*Slot()) + _NEVER * marks

    def enter(self, client: str) -> int:
        """Where a client's slot is, made if he has none; his until `leave`, which is due whatever happens."""
        at, name = self._set_of(client)
        self._thread.acquire()
        try:
            self._locked = at if self._file is not None and self._lock(at) else -1
            found = self._memory.find(name, at, at + WAYS * NAME_BYTES)
            return self._body(at, (found - at) // NAME_BYTES) if found >= 0 else self._made(at, name)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Let others have the slot."""
        if self._locked >= 0:
            assert self._file is not None
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._locked)
            self._locked = -1
        self._thread.release()

    def read(self, at: int) -> Fields:
        """What is known of a client, the fields of `Slot`."""
        found: Fields = _SLOT.unpack_from(self._memory, at)
        return found

    def write(self, at: int, fields: Fields) -> None:
        """Remember it."""
        _SLOT.pack_into(self._memory, at, *fields)

    def moment(self, at: int, position: int) -> float:
        """One of a client's moments; -inf where there was none."""
        found: float = _MOMENT.unpack_from(self._memory, at + _SLOT.size + 8 * position)[0]
        return found

    def set_moment(self, at: int, position: int, moment: float) -> None:
        """Remember when a client has asked."""
        _MOMENT.pack_into(self._memory, at + _SLOT.size + 8 * position, moment)

    def moments(self, at: int) -> tuple[float, ...]:
        """All of a client's moments."""
        return struct.unpack_from(f"{self.marks}d", self._memory, at + _SLOT.size)

    def set_moments(self, at: int, moments: Sequence[float]) -> None:
        """Remember others in their place, the oldest first; as many as there are."""
        struct.pack_into(f"{self.marks}d", self._memory, at + _SLOT.size, *moments)

    def peek(self, client: str) -> Slot | None:
        """What is known of a client, if anything: nobody is forgotten for this."""
        at, name = self._set_of(client)
        found = self._memory.find(name, at, at + WAYS * NAME_BYTES)
        return None if found < 0 else Slot._make(self.read(self._body(at, (found - at) // NAME_BYTES)))

    def tell(self, at: int) -> None:
        """Other machines should hear of this client."""
        self._memory[self._told + self._number(at)] = 1

    def untold(self, most: int) -> list[str]:
        """Up to `most` clients that other machines should hear of; they then count as told."""
        names: list[str] = []
        at = self._memory.find(b"\x01", self._told)
        while at >= 0 and len(names) < most:
            self._memory[at] = 0
            row, way = divmod(at - self._told, WAYS)
            start = KEY_BYTES + row * self._set_bytes + way * NAME_BYTES
            name = bytes(self._memory[start + 1 : start + NAME_BYTES]).rstrip(b"\0").decode(errors="replace")
            if name:
                names.append(name)
            at = self._memory.find(b"\x01", at + 1)
        return names

    def __len__(self) -> int:
        rows = (KEY_BYTES + row * self._set_bytes for row in range(self._sets))
        return sum(self._memory[at : at + WAYS * NAME_BYTES].count(_MARK) for at in rows)

    def _find_set(self, client: str) -> tuple[int, bytes]:
        """Where a client's set begins, and his name as it stands there."""
        name = (_MARK + client.encode("utf-8", "replace")[: NAME_BYTES - 1]).ljust(NAME_BYTES, b"\0")
        digest = blake2b(name, key=self._key, digest_size=8).digest()
        return KEY_BYTES + int.from_bytes(digest, "little") % self._sets * self._set_bytes, name

    def _made(self, at: int, name: bytes) -> int:
        """A slot for a new client of the set at `at`: an empty one, or that of the one idle for longest."""
        memory = self._memory
        names = memory[at : at + WAYS * NAME_BYTES]
        free = [way for way in range(WAYS) if not names[way * NAME_BYTES]]
        way = free[0] if free else min(range(WAYS), key=lambda way: self.read(self._body(at, way))[0])
        body, start = self._body(at, way), at + way * NAME_BYTES
        memory[start : start + NAME_BYTES] = bytes(NAME_BYTES)  # a slot half made is nobody's
        memory[body : body + self._slot_bytes] = self._fresh
        memory[self._told + self._number(body)] = 0
        memory[start : start + NAME_BYTES] = name
        return body

    def _body(self, at: int, way: int) -> int:
        return at + WAYS * NAME_BYTES + way * self._slot_bytes

    def _number(self, body: int) -> int:
        """Which slot of all begins there."""
        row, rest = divmod(body - KEY_BYTES, self._set_bytes)
        return row * WAYS + (rest - WAYS * NAME_BYTES) // self._slot_bytes

    def _lock(self, at: int) -> bool:
        """Lock a set against other processes, unless its holder stands still."""
        assert self._file is not None
        until = 0.0
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
                return True
            except OSError:
                now = time.monotonic()
                until = until or now + LOCK_SECONDS
                if now > until:
                    return False
                os.sched_yield()


_MOMENT = struct.Struct("d")
Clock = Callable[[], float]


def shared_file() -> int:
    """A file in memory for a table that several processes share. The caller closes it."""
    return os.memfd_create("clients")
