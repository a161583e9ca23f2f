"""What a relayer keeps to after a safe start: first nonces are written once, bounded, for who signed something."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from relayer_support import with_identity

from millrace.relayer.journal import recovery
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.recovery import Recovery, SafeStart
from millrace.relayer.journal.writer import Write

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
