"""Claims on a server that is slow or busy: a seat is lost to nobody for that."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from millrace.relayer.journal import sharing as sharing_module
from millrace.relayer.journal.portions import AT_ONCE, PORTIONS
from millrace.relayer.journal.progress import Progress
from millrace.relayer.journal.seats import Made, Renewed, Seat, SeatError, Seats
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.journal.writer import JournalError
from millrace.runtime.postgres import Connection, Unavailable
from millrace.runtime.postgres import Postgres as Database
from millrace.runtime.settings import Secret
from relayer.journal.test_seats import ALICE, A, B, row, sat
from servers.postgres import Postgres

LONG = 60.0
Open = Callable[..., Seats]


@pytest.fixture
async def opened(postgres: Postgres) -> AsyncIterator[Open]:
    """Opens connections to the same claims, as relayers of their own would."""
    made: list[Seats] = []
    schema = secrets.token_hex(4)

    def open_(seats: int = 2) -> Seats:
        made.append(Seats(Secret(postgres.url), schema, seats, LONG))
        return made[-1]

    try:
        yield open_
    finally:
        for seats in made:
            await seats.close()


class Busy(Seats):
    """Of a server that answers all, and takes for each claim the time in which the next one is asked for."""

    def __init__(self) -> None:
        super().__init__(Secret("postgresql://nowhere"), "none", 1, LONG)
        self.claims = 0
        self.claiming = asyncio.Event()
        self.renewed = asyncio.Event()

    async def open(self) -> str:
        return "all"

    async def sit(self, *_: object) -> Seat:
        return Seat(0, "", "", 0, 0, 0, None, "", PORTIONS)

    async def _insert(self, *_: object) -> Made:
        self.claims += 1
        self.claiming.set()
        await asyncio.sleep(0.01)
        return Made(True, frozenset())

    async def renew(self, _: Progress) -> Renewed:
        self.renewed.set()
        return Renewed(self.claims, self.claims, PORTIONS, False, 0, ())

    async def written_off(self) -> dict[bytes, int]:
        return {}

    async def leave(self) -> None: ...


async def test_a_seat_is_renewed_however_many_claims_come() -> None:
    """Between any two statements somebody asks for the next one: the renewal, and who flushes, wait for one of them."""
    seats = Busy()
    sharing = Sharing(seats, A, "here", lambda: 0)
    await sharing.sit()
    sharing.start()
    numbers = iter(range(10**6))

    async def without_end() -> None:
        while True:
            await sharing.take([row(next(numbers))])

    claiming = [asyncio.create_task(without_end())]
    try:
        async with asyncio.timeout(20):
            await seats.claiming.wait()
            claiming.append(asyncio.create_task(without_end()))  # asks while the other's is claimed, and so on
            await seats.renewed.wait()
            sharing.sent(b"sender", 1)
            await sharing.flush()
    finally:
        for task in claiming:
            task.cancel()
        await asyncio.gather(*claiming, return_exceptions=True)
        await sharing.close()


class Renewing(Busy):
    """Of a server that answers a renewal when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool] = []
        self.answers = asyncio.Event()

    async def renew(self, progress: Progress) -> Renewed:
        self.renewed.set()
        await self.answers.wait()
        self.told.append(bool(progress.sent))
        return await super().renew(progress)


async def test_what_is_to_be_broadcast_is_known_when_it_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the server is being told of it already, with a renewal that came in between."""
    monkeypatch.setattr(sharing_module, "TELL_SECONDS", 0.01)
    seats = Renewing()
    sharing = Sharing(seats, A, "here", lambda: 0)
    await sharing.sit()
    sharing.sent(b"sender", 1)
    sharing.start()
    async with asyncio.timeout(20):
        await seats.renewed.wait()
    flushed = asyncio.create_task(sharing.flush())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not flushed.done() and not seats.told
    seats.answers.set()
    async with asyncio.timeout(20):
        await flushed
    assert seats.told[0]
    await sharing.flush()
    await sharing.close()


@pytest.mark.parametrize("is_told", [True, False])
async def test_who_loses_the_seat_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch, is_told: bool) -> None:
    """What the server was being told then, or was to be told later, is not known to it: whoever waits hears so."""
    monkeypatch.setattr(sharing_module, "TELL_SECONDS", 0.01)
    seats = Renewing()
    sharing = Sharing(seats, A, "here", lambda: 0)
    await sharing.sit()
    if is_told:
        sharing.sent(b"sender", 1)

    async def lost(progress: Progress) -> Renewed:
        seats.renewed.set()
        await seats.answers.wait()
        raise SeatError("another has it")

    monkeypatch.setattr(seats, "renew", lost)
    sharing.start()
    async with asyncio.timeout(20):
        await seats.renewed.wait()
    if not is_told:
        sharing.sent(b"sender", 1)
    flushed = asyncio.create_task(sharing.flush())
    await asyncio.sleep(0)
    seats.answers.set()
    async with asyncio.timeout(20):
        with pytest.raises(JournalError, match="another has it"):
            await flushed
        with pytest.raises(JournalError, match="another has it"):
            await sharing.flush()
    await sharing.close()


async def test_a_renewal_waits_for_nobody_who_takes_portions(opened: Open, postgres: Postgres) -> None:
    """Who stands still while it does keeps others from taking some, and nobody from going on with its seat."""
    seats, other = opened(), Database(Secret(postgres.url), "it stands still")
    await sat(seats, A)
    schema = f'"{seats._schema}"'
    left = f"SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM {schema}.seats WHERE word <> ''"
    postgres.sql(f"UPDATE {schema}.seats SET portions = 0 WHERE word = ''")
    postgres.sql(f"UPDATE {schema}.seats SET expires_at = clock_timestamp() + interval '20 s' WHERE word <> ''")
    await other.ask(lambda connection: connection.execute(f"BEGIN; SELECT 1 FROM {schema}.sharing FOR UPDATE"))
    renewed = await seats.renew(Progress(wants=True))
    assert float(postgres.sql(left)) > LONG / 2 and renewed.portions == PORTIONS
    await other.leave()
    assert (await seats.renew(Progress(wants=True))).portions == PORTIONS + AT_ONCE


async def test_who_stands_by_keeps_nobody_from_taking_portions(opened: Open, postgres: Postgres) -> None:
    """Wherever in its question for a seat it stands still, it has locked nothing."""
    holder, stands_by = opened(seats=1), opened(seats=1)
    await sat(holder, A)
    await stands_by.open()
    postgres.sql(f'UPDATE "{holder._schema}".seats SET portions = 0')
    taken: list[int] = []

    class Between:
        """The connection, with portions taken by the other behind each of its statements."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection
            self.transaction = connection.transaction

        def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
            ask = getattr(self._connection, name)

            async def asked(*args: Any) -> Any:
                answer = await ask(*args)
                taken.append((await holder.renew(Progress(wants=True))).portions)
                return answer

            return asked

    ask = stands_by._db.ask
    stands_by._db.ask = lambda work: ask(lambda connection: work(Between(connection)))  # type: ignore[method-assign]
    assert await stands_by.sit(B, "host:/b") is None
    assert taken == [min(PORTIONS, turn * AT_ONCE) for turn in range(1, 6)]


async def test_what_who_stands_by_reads_is_on_the_standby(opened: Open, postgres: Postgres) -> None:
    """How many commits there are counts for it once a commit behind them is acknowledged."""
    holder, stands_by = opened(seats=1), opened(seats=1)
    await sat(holder, A)
    await stands_by.open()
    postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    try:
        async with asyncio.timeout(20):
            with pytest.raises(Unavailable):
                while True:  # the server takes a moment to hear of its settings
                    await stands_by.sit(B, "host:/b")
    finally:
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


async def test_a_server_that_is_away_for_a_moment_ends_no_start(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the seat's holders claimed is asked for again, and what came of it before comes once more."""
    first, seats = opened(seats=1), opened(seats=1)
    assert await first.claim([row(1), row(2)], await sat(first, A))
    await first.leave()
    sharing = Sharing(seats, B, "host:/b", lambda: 0)
    await sharing.sit()
    ask, found = seats.each_since, list[int]()

    async def away_behind_it(*args: Any) -> None:
        monkeypatch.setattr(seats, "each_since", ask)
        await ask(*args)
        raise Unavailable("the connection was lost")

    async def take(page: list[Any]) -> None:
        found.extend(item.record.nonce for item in page)

    monkeypatch.setattr(seats, "each_since", away_behind_it)
    await sharing.each_since(0, 0, take)
    assert found == [1, 2, 1, 2]
    await sharing.close()


async def test_what_is_only_claimed_is_told_apart(opened: Open, postgres: Postgres) -> None:
    """By how far its holder keeps all; of an earlier version beside, which tells nothing of it, all counts as kept."""
    one = opened()
    position = await sat(one, A)
    schema = f'"{one._schema}"'
    postgres.sql(f"ALTER TABLE {schema}.claims DROP position", f"DROP TABLE {schema}.kept_up_to")
    two = opened()
    await sat(two, B)
    postgres.sql(
        f"INSERT INTO {schema}.claims (sender, nonce, client_hash, seat, tx, kind, relayer, fee, ip, created_ms, "
        f"state, broadcast) VALUES ('a', 1, 'a', {two.number}, '', 'relay', '', '1', '', 1, 'journalled', true)"
    )
    assert (await one.whose([(b"a", 1)]))[b"a", 1].is_kept
    assert await one.claim([row(1)], position)
    assert await one.claim([row(2)], position + 1)

    async def kept() -> list[bool]:
        asked = await two.whose([(ALICE.public, 1), (ALICE.public, 2)])
        found = (await two.claimed({(ALICE.public, 0, 2)}))[ALICE.public]
        assert {nonce: item.is_kept for (_, nonce), item in asked.items()} == {
            nonce: item.is_kept for nonce, item in found.items()
        }
        return [found[nonce].is_kept for nonce in (1, 2)]

    assert await kept() == [False, False]
    await one.claim_charged([row(3)], position + 2, kept=position + 1)
    assert await kept() == [True, False]
    await one.renew(Progress(kept=position + 2))
    assert await kept() == [True, True]
    await one.leave()
    three = opened()
    await sat(three, A)
    assert not (await two.whose([(ALICE.public, 3)]))[ALICE.public, 3].is_kept
    await three.settle_in(A, 0)
    assert (await two.whose([(ALICE.public, 3)]))[ALICE.public, 3].is_kept, "who takes the seat has read all of it"
