"""The running relayer's side of its leases: when it may sign, what it waits for, and when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import pytest

from millrace.relayer.journal import leases
from millrace.relayer.journal.holding import keeper_of, sharing_of
from millrace.relayer.journal.identity import Identity
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.lease_keeper import LeaseKeeper
from millrace.relayer.journal.leases import FileLeases, Held, LeaseError, LeaseHeld, LeaseStore
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.settings import RelayerSettings
from millrace.runtime.postgres import Refused, Unavailable
from millrace.runtime.settings import Secret

KEY, OTHER = b"\1" * 32, b"\2" * 32


class Store:
    """Leases that a test decides about: each call takes the next of `answers`, an error or nothing."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left = seconds
        """Of what is taken or renewed: others may have renewed it a while ago."""
        self.answers: Iterator[Exception | None] = iter(())
        self.asked: list[tuple[str, Held]] = []
        self.called = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def _answer(self, what: str, mine: Held) -> None:
        self.asked.append((what, mine))
        self.loop.call_soon_threadsafe(self.called.set)
        error = next(self.answers, None)
        if error is not None:
            raise error

    def remembered(self, keys: Collection[bytes]) -> dict[bytes, Held]:
        return {}

    def take(self, keys: Collection[bytes], mine: Held, *, force: bool = False) -> float:
        self._answer("take", mine)
        return self.left

    def renew(self, mine: Held) -> float:
        self._answer("renew", mine)
        return self.left

    def give_back(self, keys: Collection[bytes], mine: Held) -> None:
        self._answer("give back", mine)

    def close(self) -> None:
        self.asked.append(("close", self.asked[-1][1]))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def kept(store: LeaseStore, clock: Clock, positions: Iterator[int]):  # type: ignore[no-untyped-def]
    keeper = LeaseKeeper(lambda: store, Identity("a" * 32, 3), "here", lambda: next(positions), clock)
    try:
        yield keeper
    finally:
        await keeper.close()


async def test_it_may_sign_for_two_thirds_of_the_time_it_asked_for() -> None:
    """Counted from before the question; a renewal begins it anew, and a key that was not taken may never sign."""
    store, clock = Store(15.0), Clock()
    async with kept(store, clock, iter(range(100))) as keeper:
        assert keeper.why_not([KEY]) is not None and keeper.why_not([]) is None
        await keeper.take([KEY])
        clock.now += 9.9
        assert keeper.why_not([KEY]) is None and 0 < keeper.seconds_left < 0.2
        assert "no lease" in str(keeper.why_not([KEY, OTHER]))
        clock.now += 0.2
        assert "renewed" in str(keeper.why_not([KEY]))
        await keeper._renew()
        assert keeper.why_not([KEY]) is None
        await keeper.give_back([KEY])
        assert "no lease" in str(keeper.why_not([KEY]))


async def test_row_10_where_leases_cannot_be_written_nothing_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk of the leases nobody remembers how far the journal has come: it goes no further, nor after some
    seconds of a disk that says nothing."""
    clock, store = Clock(), FileLeases(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    async with kept(store, clock, iter(range(100))) as keeper:
        await keeper.take([KEY])
        with monkeypatch.context() as failing:
            failing.setattr(leases, "write_sealed", full)
            with pytest.raises(OSError, match="no room"):
                await keeper._renew()
            assert "renewed" in str(keeper.why_not([KEY]))
        await keeper._renew()
        clock.now += 5.9
        assert keeper.why_not([KEY]) is None
        clock.now += 0.2
        assert "renewed" in str(keeper.why_not([KEY]))


async def test_what_others_renewed_a_while_ago_ends_earlier() -> None:
    """What is left of a lease that several hold together counts, whatever a whole one is, less the last third."""
    store, clock = Store(15.0), Clock()
    async with kept(store, clock, iter(range(100))) as keeper:
        store.left = 12.0
        await keeper.take([KEY])
        assert keeper.seconds_left == pytest.approx(7.0)
        store.left = 15.0
        await keeper.take([OTHER])
        assert keeper.seconds_left == pytest.approx(7.0), "the first key has no more for that"
        store.left = 9.0
        await keeper._renew()
        assert keeper.seconds_left == pytest.approx(4.0)


async def test_a_server_that_is_away_for_a_moment_ends_no_start() -> None:
    """It is asked again until it answers; what it refuses is refused."""
    store = Store(15.0)
    async with kept(store, Clock(), iter(range(100))) as keeper:
        store.answers = iter([Unavailable("away"), Unavailable("away"), None])
        async with asyncio.timeout(20):
            await keeper.take([KEY])
        assert [what for what, _ in store.asked] == ["take"] * 3 and keeper.why_not([KEY]) is None
        store.answers = iter([Refused("no such database")])
        with pytest.raises(Refused):
            await keeper.take([OTHER])


async def test_a_lease_ends_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the time since boot: the clock that stops meanwhile would let a lease outlive its row."""
    real, slept = time.clock_gettime, 0.0
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: real(clock) + (slept if clock == time.CLOCK_BOOTTIME else 0.0)
    )
    store = Store(3_000.0)
    keeper = LeaseKeeper(lambda: store, Identity("a" * 32, 3), "here", lambda: 0)
    try:
        await keeper.take([KEY])
        assert keeper.why_not([KEY]) is None
        slept = 2_000.0
        assert keeper.why_not([KEY]) == "the leases of the keys cannot be renewed"
    finally:
        await keeper.close()


async def test_what_a_killed_process_left_is_waited_for_once() -> None:
    """Who holds it again after its time is alive: refused. So is who holds it for as long as it lives."""
    store = Store(15.0)
    async with kept(store, Clock(), iter(range(100))) as keeper:
        store.answers = iter([LeaseHeld("held", 0.01), None])
        await keeper.take([KEY])
        assert [what for what, _ in store.asked] == ["take", "take"] and keeper.why_not([KEY]) is None
        for answers in ([LeaseHeld("held", 0.01), LeaseHeld("held", 0.01)], [LeaseHeld("held")]):
            store.answers = iter(answers)
            with pytest.raises(LeaseHeld):
                await keeper.take([OTHER])
            assert next(store.answers, None) is None and keeper.why_not([OTHER]) is not None


async def test_a_store_that_is_away_is_asked_again() -> None:
    """Failures are counted, nothing ends, and what is remembered is how far the journal has come."""

    def positions() -> Iterator[int]:
        yield from (5, 6, 7)
        while True:
            yield 8

    store = Store(0.05)
    numbers = positions()
    async with kept(store, Clock(), numbers) as keeper:
        await keeper.take([KEY])
        store.answers = iter([OSError("away"), OSError("away"), None])
        keeper.start()
        running = asyncio.create_task(keeper.run())
        async with asyncio.timeout(10):
            while len(store.asked) < 5:
                store.called.clear()
                await store.called.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert keeper.failures == 2
        assert [mine.position for _, mine in store.asked][:5] == [5, 6, 7, 8, 8]
        assert {(mine.id, mine.epoch, mine.place) for _, mine in store.asked} == {("a" * 32, 3, "here")}
    assert [what for what, _ in store.asked][-2:] == ["give back", "close"]


async def test_keys_have_returned_when_they_may_sign_again() -> None:
    """A renewal that took longer than the lease it renewed returns nothing: who asked keys then is refused again."""
    store, clock = Store(0.05), Clock()

    def answers() -> Iterator[Exception | None]:
        for seconds in (0.0, 1.0, 1.0, 0.0, 0.0):
            clock.now += seconds
            yield None

    returns: list[int] = []
    async with kept(store, clock, iter(range(100))) as keeper:
        await keeper.take([KEY])
        keeper.on_return = lambda: returns.append(len(store.asked)) if keeper.why_not([KEY]) is None else None
        store.answers = answers()
        keeper.start()
        running = asyncio.create_task(keeper.run())
        async with asyncio.timeout(10):
            while len(store.asked) < 7:
                store.called.clear()
                await store.called.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert returns == [5], "of take and five renewals, after the first that was quick again"


async def test_who_lost_a_lease_ends() -> None:
    """Another has taken it over: nothing may be signed from that moment, and the service ends."""
    store = Store(0.05)
    async with kept(store, Clock(), iter(range(100))) as keeper:
        await keeper.take([KEY])
        store.answers = iter([LeaseError("taken over")])
        keeper.start()
        with pytest.raises(OSError, match=r"taken over.*signs no more"):
            async with asyncio.timeout(10):
                await keeper.run()
        assert keeper.why_not([KEY]) is not None


async def test_a_journal_that_cannot_be_read_is_where_it_was() -> None:
    """Its position does not fall for that."""

    def position() -> int:
        if store.asked:
            raise JournalError("away")
        return 7

    store = Store(15.0)
    keeper = LeaseKeeper(lambda: store, Identity("a" * 32, 1), "here", position)
    await keeper.take([KEY])
    await keeper._renew()
    await keeper.close()
    assert [mine.position for _, mine in store.asked][:3] == [7, 7, 7]


def test_a_lease_shorter_than_a_silence_of_the_server_is_refused(tmp_path: Path) -> None:
    """A silent server is asked anew after three seconds: a seat that ends by then is another's at each such silence."""
    journal, identity = Journal(tmp_path / "journal.sqlite"), Identity("a" * 32, 1)
    settings = RelayerSettings(claims_url=Secret("postgresql://nowhere"), lease_seconds=3.0, signer_timeout=1.0)
    with pytest.raises(ValueError, match="lease_seconds must be more than 3 with claims_url"):
        sharing_of(settings, identity, journal)
    sharing_of(msgspec.structs.replace(settings, lease_seconds=3.1), identity, journal)


async def test_a_lease_shorter_than_a_signature_is_refused(tmp_path: Path) -> None:
    """What is asked before two thirds of a lease must have its answer before its end."""
    journal = Journal(tmp_path / "journal.sqlite")
    url = Secret("postgresql://nowhere")
    for seconds, timeout, fits in ((15.0, 5.0, True), (14.9, 5.0, False), (3.0, 1.0, True)):
        settings = RelayerSettings(lease_url=url, lease_seconds=seconds, signer_timeout=timeout)
        if fits:
            await keeper_of(settings, Identity("a" * 32, 1), journal).close()
        else:
            with pytest.raises(ValueError, match="lease_seconds"):
                keeper_of(settings, Identity("a" * 32, 1), journal)
