"""What a relayer keeps to after a safe start: first nonces are written once, bounded, for who signed something."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
from relayer_support import with_identity

from millrace.relayer.journal import audit, identity, recovery
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.leases import FileLeases, Held, LeaseError, LeaseStore
from millrace.relayer.journal.recovery import Recovery, RecoveryError, SafeStart
from millrace.relayer.journal.writer import Write
from millrace.relayer.rules.policy import Budget

AHEAD = 5


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    made = Journal(with_identity(tmp_path) / "journal.sqlite")
    made.open()
    yield made
    await made.close()


def safe_start(journal: Journal) -> SafeStart:
    return SafeStart(journal, Recovery(2, 0, 0, 0, 0, AHEAD, charges=False))


def sender(number: int) -> bytes:
    return number.to_bytes(32, "big")


def is_free(start: SafeStart, who: bytes, nonce: int, account_nonce: int) -> bool:
    return start.why_not_this(who, nonce, b"h", account_nonce) is None


def rows(journal: Journal) -> list[tuple[bytes, int, int]]:
    return journal.read("SELECT sender, epoch, nonce FROM first_seen ORDER BY sender")


async def test_the_first_nonce_stays(journal: Journal) -> None:
    """What was noted first counts, at once and after a restart, however far the account has come since."""
    start = safe_start(journal)
    start.note(sender(1), 3)
    for known in (start, start, safe_start(journal)):
        known.note(sender(1), 7)
        assert not is_free(known, sender(1), 7, 7) and is_free(known, sender(1), 8, 8)
        await journal.flush()
    assert rows(journal) == [(sender(1), 2, 3)]


async def test_the_next_safe_start_forgets_them(journal: Journal) -> None:
    """What was noted after an earlier safe start is asked for no more once another one is applied, and goes."""
    start = safe_start(journal)
    for number in range(3):
        start.note(sender(number), 3)
    await journal.flush()
    assert len(rows(journal)) == 3
    await SafeStart(journal, Recovery(3, 0, 0, 0, 0, AHEAD, charges=False)).apply()
    assert rows(journal) == []


async def test_a_question_writes_nothing(journal: Journal) -> None:
    """Who only asks leaves nothing behind: neither a row nor a change that waits."""
    start = safe_start(journal)
    waiting = journal.waiting
    for number in range(50):
        assert not is_free(start, sender(number), 4, 0) and is_free(start, sender(number), 5, 0)
    assert (journal.waiting, start.noting) == (waiting, 0)
    await journal.flush()
    assert rows(journal) == []


async def test_while_the_disk_fails_so_many_wait_and_no_more(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sender waits once, as many as there is room for; the others are counted and noted when they come again."""
    monkeypatch.setattr(recovery, "MAX_NOTING", 3)
    start = safe_start(journal)
    queued: list[Write] = []
    with monkeypatch.context() as failing:
        failing.setattr(journal, "change", queued.append)
        for _ in range(4):
            for number in range(5):
                start.note(sender(number), 3)
    assert (len(queued), start.noting, start.left_out) == (3, 3, 8)
    assert not is_free(start, sender(4), 11, 7) and is_free(start, sender(4), 12, 7), "not noted: no more is signed"

    journal.change(*queued)
    await journal.flush()
    start.note(sender(4), 7)
    assert (start.noting, start.left_out) == (1, 8)
    await journal.flush()
    assert rows(journal) == [*((sender(number), 2, 3) for number in range(3)), (sender(4), 2, 7)]


def test_row_44_a_clock_set_forward_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was signed before may still run for as long as it was said, whatever the clock is set to meanwhile."""
    real = time.time_ns
    plan = Recovery(1, 0, 0, 0, real() // 1_000_000 + 3_600_000, 0, charges=False)
    waiting = SafeStart(cast(Journal, None), plan)
    monkeypatch.setattr(time, "time_ns", lambda: real() + 86_400 * 10**9)
    assert waiting.why_not() is not None


class Remembering:
    """A store of leases that remembers one key, held last so many ms from now."""

    def __init__(self, ahead_ms: int) -> None:
        self._held = Held("an id", 1, 0, "somewhere", time.time_ns() // 1_000_000 + ahead_ms)

    def remembered(self, keys: object) -> dict[bytes, Held]:
        return {sender(1): self._held}


@pytest.mark.parametrize(
    ("reserved", "held", "minutes"),
    [
        pytest.param(-20, 0, 21, id="a clock that was never set"),
        pytest.param(40, 60, 21, id="set back by an hour before the safe start"),
        pytest.param(0, 60 * 24 * 365, 24 * 60 + 1, id="years ahead before the safe start"),
        pytest.param(60, 0, 24 * 60 + 1, id="set back by an hour while the keys were in use"),
        pytest.param(0.5, 0, 1, id="killed right after a reservation"),
    ],
)
async def test_row_44_a_safe_start_counts_what_was_spent_by_a_clock_that_was_set_back(
    journal: Journal, tmp_path: Path, reserved: float, held: int, minutes: int
) -> None:
    """What may have been spent since the last known reservation counts, though the clock says that was later."""
    folder = tmp_path / "older"
    identity.make(folder)
    with contextlib.closing(sqlite3.connect(folder / identity.JOURNAL, isolation_level=None)) as connection:
        connection.executescript(audit.SCHEMA)
        at = time.time_ns() // 1_000_000 + int(reserved * 60_000)
        audit.write(connection, [(at, "reserve", sender(1), sender(2), 0, bytes(32), 1)])
    store = cast(LeaseStore, Remembering(held * 60_000 + 1_000))
    plan = recovery.prepare(folder, [sender(1)], store, wait_seconds=0, ahead=0, charges=True)
    (spent,) = SafeStart(journal, plan).charges([sender(1)], Budget(per_minute=1, per_hour=10**6, per_day=10**6))
    assert spent.fee == minutes
    assert spent.time_ms == min(plan.held_ms, plan.made_ms + recovery.DAY_MS)


@pytest.mark.parametrize("step", ["write_sealed", "_accept", "identity"])
def test_a_safe_start_that_fails_leaves_the_last_holder_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whatever of it the disk refuses, who held the keys is their holder still; done again it comes through."""
    identity.make(tmp_path / "used")
    identity.make(tmp_path / "safe")
    last = Held(identity.read(tmp_path / "used").id, 1, 7, "used")
    store = FileLeases(tmp_path / "leases")
    store.take([sender(1)], last)
    store.give_back([sender(1)], last)

    def work() -> None:
        plan = recovery.prepare(tmp_path / "safe", [sender(1)], store, wait_seconds=0, ahead=0, charges=True)
        recovery.make(tmp_path / "safe", [sender(1)], store, plan, place="safe", mark_path="")

    def full(*_: object) -> None:
        raise IdentityError("no room") if step == "identity" else OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as failing:
        failing.setattr(*((identity, "write") if step == "identity" else (recovery, step)), full)
        with pytest.raises((OSError, IdentityError), match="no room"):
            work()
    store.take([sender(1)], last)
    store.give_back([sender(1)], last)
    work()
    with pytest.raises(LeaseError, match="another folder"):
        store.take([sender(1)], last)


def test_row_10_a_safe_start_without_keys_is_refused(tmp_path: Path) -> None:
    """It would wait for nobody: whoever has the keys could go on signing until the folder is started."""
    identity.make(tmp_path / "data")
    store = FileLeases(tmp_path / "leases")
    with pytest.raises(RecoveryError, match="key_files"):
        recovery.prepare(tmp_path / "data", [], store, wait_seconds=0, ahead=0, charges=True)


@pytest.mark.parametrize(
    ("ahead", "wait", "expected"),
    [
        pytest.param(120, 10, 130, id="two hours behind when it is made"),
        pytest.param(60 * 24 * 365, 10, 24 * 60 + 10, id="years ahead when they were used"),
        pytest.param(-5, 10, 10, id="a clock that was never set"),
        pytest.param(120, 0, 0, id="no wait is asked for"),
    ],
)
@pytest.mark.parametrize("of", ["held_ms", "used_ms", "set_back_at_ms"])
def test_row_44_a_wait_is_counted_from_when_keys_were_used_last(
    tmp_path: Path, of: str, ahead: int, wait: int, expected: int
) -> None:
    """By a clock that is behind that it would be over as soon as the clock is put right."""
    identity.make(tmp_path)
    store = cast(LeaseStore, Remembering(-600_000))
    seen = {of: time.time_ns() // 1_000_000 + ahead * 60_000}
    store._held = msgspec.structs.replace(store._held, **seen)  # type: ignore[attr-defined]
    plan = recovery.prepare(tmp_path, [sender(1)], store, wait_seconds=wait * 60, ahead=0, charges=False)
    assert plan.until_ms - plan.made_ms == pytest.approx(expected * 60_000, abs=1000)
