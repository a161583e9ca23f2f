"""The safe start of a folder that does not know all that was signed with its keys: an older copy, or a new one.

What was signed for a sender went at most some nonces beyond the account's of that time, and an account's nonce never
falls. So whoever waits until what was sent has come to the chain or is sent no more, then asks the chain for an
account's nonce, and signs only beyond that nonce and those bounds, signs nothing for which there is another payload.
Below it only claims that were brought from elsewhere (`claims`) tell what was signed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from millrace.relayer.journal import claims, identity, memory
from millrace.relayer.journal.advice import told
from millrace.relayer.journal.audit import Spent
from millrace.relayer.journal.durable import NotWhole, read_sealed, write_sealed
from millrace.relayer.journal.handover import Handover
from millrace.relayer.journal.identity import Identity, IdentityError
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.leases import Held, LeaseStore, when
from millrace.relayer.journal.mark import NOTHING, Mark
from millrace.relayer.journal.reading import read_only
from millrace.relayer.rules.policy import Budget, Quotas
from millrace.runtime.clocks import UnhurriedClock

FILE = "recovery"
MAX_NOTING = 256
"""First nonces on their way to the disk: more senders than come for the first time in one group of the journal, and
looked up again in some 2 ms."""
_LOST = ". Put back the file of this very folder, or make another safe start (`millrace relayer recover`)"
_DAMAGED = "Restore a backup, or begin with an empty folder"
Read = Callable[[str, tuple[Any, ...]], list[Any]]
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class RecoveryError(Exception):
    """A safe start cannot be made; the text says why."""


class Recovery(msgspec.Struct, frozen=True):
    """A safe start: what is not known, and until when it is waited.

    The folder's identity and, from the first start on, its journal say of which epoch the last one is: without its file
    nobody would know what may not be signed.
    """

    epoch: int
    """Of the folder from then on."""
    made_ms: int
    known_ms: int
    """All that was signed until then is in the journal; 0: nothing is known."""
    held_ms: int
    """When the keys were used last, as far as that is known, else `made_ms`. By a clock that was set back since it is
    later than `made_ms`: how long before that all was known is what counts."""
    until_ms: int
    """Nothing is signed before."""
    ahead: int
    """What is signed is at least so many nonces beyond the account's when its sender comes for the first time."""
    charges: bool
    """Whether the most that may have been spent meanwhile counts in the budgets."""
    set_back_ms: int = 0
    """By how much their clock was set back meanwhile, as far as is known: for so much longer they were in use."""
    id: str = ""
    """Of the folder; empty of an earlier version."""


def bound(quotas: Quotas, max_nonce_gap: int) -> int:
    """How far the first nonce that cannot have been signed lies beyond the account's: `/v1/sign` goes so far, and what
    is broadcast begins at the account's nonce and is bounded in flight."""
    return max(quotas.sign_only_ahead + 1, quotas.sender_in_flight + max_nonce_gap)


def read(data_dir: Path, ours: Identity, applied: int) -> Recovery | None:
    """The last safe start of a folder, `applied` the epoch of the last that its journal knows. Raises `RecoveryError`
    when that is not the file's.
    """
    path, least = data_dir / FILE, max(ours.recovered, applied)
    try:
        found = read_sealed(path, Recovery)
    except FileNotFoundError:
        if least == 0:
            return None
        raise RecoveryError(
            f"{path}, which says what may not be signed since the safe start, is missing{_LOST}"
        ) from None
    except OSError as error:
        raise RecoveryError(f"{path}: {error.strerror}; let this user read it{_LOST}") from None
    except NotWhole as error:
        raise RecoveryError(f"{error}{_LOST}") from None
    if found.id not in ("", ours.id):
        raise RecoveryError(f"{path} belongs to the data directory {found.id}, and this one is {ours.id}{_LOST}")
    if found.epoch < least:
        raise RecoveryError(f"{path} is an older copy: it is of epoch {found.epoch}, and epoch {least} was one{_LOST}")
    return found


def applied(read_rows: Read) -> int:
    """The epoch of the last safe start that a journal knows, 0 without any. Raises as reading does."""
    found = read_rows("SELECT value FROM meta WHERE name = 'recovery'", ())
    return int(found[0][0]) if found else 0


def prepare(
    data_dir: Path, keys: Collection[bytes], store: LeaseStore, *, wait_seconds: float, ahead: int, charges: bool
) -> Recovery:
    """What a safe start of this folder would be; nothing is changed. Raises `RecoveryError`, or `OSError`."""
    if not keys:  # nobody would be asked whether they are in use, and the wait be over before they are free
        raise RecoveryError(
            "a safe start is one of keys, and none is named: set `key_files` (or `key_env`) as for the relayer. One "
            "without keys needs none: it begins with a new folder (`millrace relayer init`)"
        )
    remembered = store.remembered(keys).values()
    ours, now = _identity(data_dir), time.time_ns() // 1_000_000
    known_ms, set_back_ms = _known(data_dir, ours, now)
    set_backs_since = (held.set_back_ms for held in remembered if held.set_back_at_ms >= known_ms)
    return Recovery(
        epoch=max([ours.epoch, *(held.epoch for held in remembered)]) + 1,
        made_ms=now,
        known_ms=known_ms,
        held_ms=max((max(held.used_ms, held.held_ms) for held in remembered), default=now),
        until_ms=now if not wait_seconds else _latest(remembered, now) + int(wait_seconds * 1000),
        ahead=ahead,
        charges=charges,
        set_back_ms=max(set_backs_since, default=set_back_ms),
        id=ours.id,
    )


def _latest(remembered: Collection[Held], now_ms: int) -> int:
    """What the clock had come to while the keys were in use, where it is behind that now: put right, it would end a
    wait at once. At most a day on, as that clock may have been years ahead."""
    seen = (max(held.used_ms, held.held_ms, held.set_back_at_ms) for held in remembered)
    return max(now_ms, min(max(seen, default=0), now_ms + DAY_MS))


def make(
    data_dir: Path, keys: Collection[bytes], store: LeaseStore, plan: Recovery, *, place: str, mark_path: str
) -> Identity:
    """Make the folder one that starts safely, and the holder of the keys. No relayer may run on it.

    Raises `LeaseError` when one of the keys is in use, `RecoveryError`, or `OSError`. What fails before the folder can
    start leaves their last holder what it was. Killed meanwhile it can be done again: the identity is written last.
    """
    ours, remembered = _identity(data_dir), store.remembered(keys)
    with Handover(store) as hands:
        for key in keys:
            hands.take([key], remembered.get(key, Held(ours.id, 0, 0, place)))
        write_sealed(data_dir / FILE, plan)
        is_begun = _accept(data_dir, ours, mark_path)
        made = Identity(ours.id, plan.epoch, "ready" if is_begun else "new", recovered=plan.epoch)
        hands.to(Held(ours.id, plan.epoch, 0, place))
        try:
            identity.write(data_dir, made)
        except IdentityError:
            if not _is(data_dir, made):
                hands.back()
            raise
    return made


def _is(data_dir: Path, made: Identity) -> bool:
    """Whether the folder has this identity: it may be there though its disk failed after that."""
    with contextlib.suppress(IdentityError):
        return identity.read(data_dir) == made
    return False


def _accept(data_dir: Path, ours: Identity, mark_path: str) -> bool:
    """Have what is there taken for all there was; whether there is a journal that was ever begun."""
    journal = data_dir / identity.JOURNAL
    mark = Mark(memory.mark_place(journal, mark_path), ours.id)
    try:
        if memory.is_begun(journal):
            memory.accept(journal, mark, ours)
            return True
    except sqlite3.Error as error:
        raise RecoveryError(told(error, journal, _DAMAGED)) from None
    mark.make(NOTHING)
    return False


def _identity(data_dir: Path) -> Identity:
    """Of a folder whose file is lost, what its journal says. Raises `RecoveryError`."""
    try:
        owner = identity.owner_of(data_dir)
        if owner is not None and not (data_dir / identity.FILE).exists():
            return Identity(owner, 0)
        ours = identity.read(data_dir)
    except IdentityError as error:
        raise RecoveryError(str(error)) from None
    if owner is not None and owner != ours.id:
        raise RecoveryError(f"{data_dir}: its journal belongs to another folder ({owner}): put back both of one folder")
    return ours


def _known(data_dir: Path, ours: Identity, now_ms: int) -> tuple[int, int]:
    """Until when all that was signed is in the journal, and by how much the clock was set back after that, as far as
    the safe start before knew it. Raises `RecoveryError`.

    What that one left to be counted still is, for a day: of one that cannot be read nobody knows what that was.
    """
    last, known = 0, 0
    path = data_dir / identity.JOURNAL
    if path.exists():
        try:
            with contextlib.closing(read_only(path)) as connection:
                there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
                if "audit" in there:
                    newest = connection.execute("SELECT time_ms FROM audit ORDER BY id DESC LIMIT 1").fetchone()
                    last = int(newest[0]) if newest else 0
                if "meta" in there:
                    known = applied(lambda sql, values: connection.execute(sql, values).fetchall())
        except sqlite3.Error as error:
            raise RecoveryError(told(error, path, _DAMAGED)) from None
    try:
        before = read(data_dir, ours, known)
    except RecoveryError:
        return 0, 0
    if before is None or not before.charges or before.made_ms < now_ms - DAY_MS:
        return last, 0
    return min(last, before.known_ms), before.set_back_ms


class SafeStart:
    """What a running relayer keeps to after a safe start, and what imported claims say."""

    def __init__(self, journal: Journal, recovery: Recovery | None) -> None:
        self._journal = journal
        self.recovery = recovery
        self._now_ms = UnhurriedClock()
        """A clock that is set forward does not shorten the wait."""
        self._has_claims = False
        self._noting: dict[bytes, int] = {}
        """First nonces by sender, as far as their rows have not been seen on disk."""
        self._looked_at = -1
        """How many groups the journal had written when these were looked for."""
        self.left_out = 0
        """First nonces that were not noted for want of room."""

    @property
    def noting(self) -> int:
        """First nonces not yet known to be on disk."""
        return len(self._noting)

    async def apply(self) -> None:
        """Once, at the first start after it: nothing is signed that was not signed, events are read from now on.

        A row without a signature may have given way to another since it was copied. Events of before would tell of
        accounts as they were. Raises `JournalError`.
        """
        recovery = self.recovery
        if recovery is not None and not self._is_applied(recovery):
            self._journal.change(lambda connection: _apply(connection, recovery))
            await self._journal.flush()
        self._has_claims = bool(self._journal.read("SELECT 1 FROM imported_claims LIMIT 1"))

    def _is_applied(self, recovery: Recovery) -> bool:
        return applied(self._journal.read) == recovery.epoch

    def why_not(self) -> str | None:
        """Why nothing may be signed yet; `None` once it is waited long enough."""
        if self.recovery is None or self._now_ms() >= self.recovery.until_ms:
            return None
        return f"safe start: nothing is signed before {when(self.recovery.until_ms)}"

    def why_not_this(self, sender: bytes, nonce: int, client_hash: bytes, account_nonce: int) -> str | None:
        """Why this nonce may have another payload that is signed; `None` if there can be none. Changes nothing.

        Raises `JournalError`.
        """
        claim = claims.find(self._journal.read, sender) if self._has_claims else None
        if claim is not None and nonce <= claim.nonce:
            if (nonce, client_hash) == claim:
                return None
            return f"nonces up to {claim.nonce} were signed by an earlier copy of this relayer"
        if self.recovery is None or self.recovery.ahead == 0:
            return None
        noted = self._noted(sender, self.recovery.epoch)
        if noted is None:
            noted = self._noting.get(sender, account_nonce)
        first = noted + self.recovery.ahead
        if nonce >= first:
            return None
        return f"what was signed for nonces below {first} was lost with this relayer's memory"

    def note(self, sender: bytes, account_nonce: int) -> None:
        """A sender's own signature came: write down its account's nonce, if this is the first time.

        Without room it is left out and noted when it comes again; the nonce is no lower then, so that no more is signed
        because of it. Raises `JournalError`.
        """
        recovery = self.recovery
        if recovery is None or recovery.ahead == 0 or sender in self._noting:
            return
        if self._noted(sender, recovery.epoch) is not None:
            return
        if len(self._noting) >= MAX_NOTING:
            self._forget_written(recovery.epoch)
        if len(self._noting) >= MAX_NOTING:
            self.left_out += 1
            return
        self._noting[sender] = account_nonce
        # It lies in the queue before the row of what is let through by it.
        self._journal.change(lambda connection: _note_first(connection, sender, account_nonce, recovery.epoch))

    def _forget_written(self, epoch: int) -> None:
        """Make room, once for each group of the journal: a disk that fails is not asked by everybody."""
        if self._journal.commits != self._looked_at:
            self._looked_at = self._journal.commits
            self._noting = {
                sender: nonce for sender, nonce in self._noting.items() if self._noted(sender, epoch) is None
            }

    def _noted(self, sender: bytes, epoch: int) -> int | None:
        found = self._journal.read("SELECT nonce FROM first_seen WHERE sender = ? AND epoch = ?", (sender, epoch))
        return int(found[0][0]) if found else None

    def charges(self, keys: Collection[bytes], budget: Budget) -> list[Spent]:
        """The most that each key may have spent without our knowing it."""
        recovery = self.recovery
        if recovery is None or not recovery.charges:
            return []
        gap = unknown_ms(recovery)
        most = min(
            budget.per_minute * (gap // MINUTE_MS + 1),
            budget.per_hour * (gap // HOUR_MS + 1),
            budget.per_day * (gap // DAY_MS + 1),
        )
        at = min(recovery.held_ms, recovery.made_ms + DAY_MS)  # or a clock that was years ahead would count for years
        return [Spent(key, b"", b"recovery" + key, at, most, most) for key in keys]


def unknown_ms(recovery: Recovery) -> int:
    """For how long at most keys were used without our knowing what for."""
    gap = recovery.held_ms + recovery.set_back_ms - recovery.known_ms
    if gap < -MINUTE_MS:  # more than what is reserved between two looks at the clock: it was set back meanwhile
        return DAY_MS
    return max(0, min(gap, DAY_MS))  # nothing counts for longer


def _apply(connection: sqlite3.Connection, recovery: Recovery) -> None:
    # With its fee as its cost, a row gives way to no other.
    connection.execute(
        "UPDATE submissions SET state = 'superseded', cost = fee, ended_ms = ? WHERE relayer IS NOT NULL "
        "AND state IN ('journalled', 'expired') AND NOT EXISTS "
        "(SELECT 1 FROM signatures WHERE signatures.id = submissions.id)",
        (recovery.made_ms,),
    )
    connection.execute("DELETE FROM first_seen WHERE epoch < ?", (recovery.epoch,))  # nobody asks for them any more
    connection.execute("DELETE FROM meta WHERE name = 'cursor'")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('recovery', ?)", (str(recovery.epoch),))


def _note_first(connection: sqlite3.Connection, sender: bytes, nonce: int, epoch: int) -> None:
    """Who came first in this epoch stays; of an earlier one it is replaced."""
    connection.execute(
        "INSERT INTO first_seen VALUES (?, ?, ?) ON CONFLICT (sender) DO UPDATE SET epoch = ?2, nonce = ?3 "
        "WHERE first_seen.epoch < ?2",
        (sender, epoch, nonce),
    )
