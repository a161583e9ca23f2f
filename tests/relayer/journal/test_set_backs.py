"""By how much a clock was set back while keys were in use, and what a safe start makes of it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from msgspec.structs import replace

from millrace.relayer.journal import audit, identity, recovery
from millrace.relayer.journal.handover import Handover
from millrace.relayer.journal.leases import FileLeases, Held
from millrace.relayer.journal.set_backs import SetBacks

KEY = b"k" * 32
MINUTE = 60_000
START = 1_800_000_000_000
MINE = Held("a" * 32, 1, 5, "here")


class Clocks:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self, wall: int = START) -> None:
        self.wall, self.steady = wall, 1000.0

    def passes(self, ms: int) -> None:
        self.wall += ms
        self.steady += ms / 1000

    def followed(self) -> SetBacks:
        return SetBacks(lambda: self.steady, lambda: self.wall)


def test_what_is_noted() -> None:
    """Every time it was set back adds up, with what the clock had come to; forward, or by a moment, is nothing."""
    clocks = Clocks()
    known = clocks.followed()
    assert known.noted(MINE) == replace(MINE, used_ms=START)
    for by in (0, -500, 90 * MINUTE):
        clocks.passes(1_000)
        clocks.wall += by
        assert known.noted(MINE) == replace(MINE, used_ms=clocks.wall)
    clocks.passes(1_000)
    at = clocks.wall
    for in_all in (30, 60):
        clocks.wall -= 30 * MINUTE
        noted = known.noted(MINE)
        assert (noted.used_ms, noted.set_back_ms, noted.set_back_at_ms) == (clocks.wall, in_all * MINUTE, at)
        clocks.passes(1_000)


def test_over_restarts_and_on_another_machine() -> None:
    """What others noted is gone on with; who begins earlier than they ended was set back by that at least."""
    last = replace(MINE, used_ms=START, set_back_ms=7 * MINUTE, set_back_at_ms=START - MINUTE)
    for now, in_all, at in ((START + MINUTE, 7, START - MINUTE), (START - MINUTE, 8, START)):
        known = Clocks(now).followed()
        known.follow([last] * 3)  # of three keys
        known.follow([last])  # again, as somebody held them yet
        noted = known.noted(MINE)
        assert (noted.used_ms, noted.set_back_ms, noted.set_back_at_ms) == (now, in_all * MINUTE, at)


def test_what_we_noted_ourselves_is_met_again() -> None:
    """Whoever takes a key once more, or another beside it, finds its own notes there, and adds nothing for them."""
    clocks = Clocks()
    known = clocks.followed()
    known.follow([replace(MINE, used_ms=START + MINUTE, set_back_ms=7 * MINUTE)])
    clocks.passes(2 * MINUTE)
    clocks.wall -= 30 * MINUTE
    noted = known.noted(MINE)
    assert noted.set_back_ms == 38 * MINUTE
    known.follow([noted])
    assert known.noted(MINE) == noted


def test_commands_forget_none_of_it(tmp_path: Path) -> None:
    """Who hands keys over, or makes a safe start, leaves what was noted as it is."""
    store = FileLeases(tmp_path / "leases")
    used = replace(MINE, used_ms=START, set_back_ms=7, set_back_at_ms=8)
    store.take([KEY], used)
    store.give_back([KEY], used)
    with Handover(store) as hands:
        hands.take([KEY], MINE)
        hands.to(replace(MINE, epoch=2))
    found = store.remembered([KEY])[KEY]
    assert (found.epoch, found.used_ms, found.set_back_ms, found.set_back_at_ms) == (2, START, 7, 8)
    identity.make(tmp_path / "data")
    plan = recovery.prepare(tmp_path / "data", [KEY], store, wait_seconds=0, ahead=0, charges=True)
    recovery.make(tmp_path / "data", [KEY], store, plan, place="here", mark_path="")
    found = store.remembered([KEY])[KEY]
    assert (found.epoch, found.used_ms, found.set_back_ms, found.set_back_at_ms) == (plan.epoch, START, 7, 8)


def test_row_44_a_safe_start_knows_how_long_keys_were_used_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """Set back by less than the time since the last row that is known, which nothing in the journal tells."""
    identity.make(tmp_path / "data")
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / identity.JOURNAL)) as connection, connection:
        connection.executescript(audit.SCHEMA)
        audit.write(connection, [(START, "reserve", KEY, b"s" * 32, 0, bytes(32), 1)])
    clocks, store = Clocks(), FileLeases(tmp_path / "leases")
    known = clocks.followed()
    store.take([KEY], known.noted(MINE))
    clocks.passes(40 * MINUTE)
    clocks.wall -= 30 * MINUTE
    store.renew(known.noted(MINE))
    clocks.passes(10 * MINUTE)
    store.give_back([KEY], known.noted(MINE))
    plan = recovery.prepare(tmp_path / "data", [KEY], store, wait_seconds=0, ahead=0, charges=True)
    assert plan.held_ms - plan.known_ms == 20 * MINUTE and plan.set_back_ms == 30 * MINUTE
    assert recovery.unknown_ms(plan) == 50 * MINUTE
    # A copy that was made after the clock had passed that time again lacks nothing of it.
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / identity.JOURNAL)) as connection, connection:
        audit.write(connection, [(START + 41 * MINUTE, "reserve", KEY, b"s" * 32, 1, bytes(32), 1)])
    plan = recovery.prepare(tmp_path / "data", [KEY], store, wait_seconds=0, ahead=0, charges=True)
    assert plan.set_back_ms == 0
