"""Seats and claims on a PostgreSQL server: who lost a seat claims nothing, and a server that forgot is found out."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from relayer_support import transfer, wallet

from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.journal import seats as seats_module
from millrace.relayer.journal import sharing as sharing_module
from millrace.relayer.journal.asking import RETRY_SECONDS
from millrace.relayer.journal.claim_errors import ClaimDamaged, ClaimsError, TakenElsewhere
from millrace.relayer.journal.claim_rows import Shared
from millrace.relayer.journal.portions import PORTIONS, Need
from millrace.relayer.journal.postgres_leases import PostgresLeases
from millrace.relayer.journal.progress import Progress
from millrace.relayer.journal.seats import UNTOLD, SeatError, Seats, TwinError
from millrace.relayer.journal.server_clock import ROUNDED_MS, ServerClock, wall_ms
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.writer import JournalError
from millrace.runtime.postgres import Connection, Damaged, Refused, Unavailable, Unfit, making
from millrace.runtime.postgres import Postgres as Database
from millrace.runtime.settings import Secret
from servers.postgres import Postgres, Standby

ALICE = wallet(1)
A, B, C = "a" * 32, "b" * 32, "c" * 32
LONG, SHORT = 60.0, 0.05
"""Of leases: no test lasts so long; over at once."""


Open = Callable[..., Seats]


@pytest.fixture
async def opened(postgres: Postgres) -> AsyncIterator[Open]:
    """Opens connections to the same claims, as relayers of their own would."""
    postgres.ensure()
    made: list[Seats] = []
    schema = secrets.token_hex(4)

    def open_(seats: int = 2, seconds: float = LONG, **more: bool) -> Seats:
        made.append(Seats(Secret(postgres.url), schema, seats, seconds, **more))
        return made[-1]

    try:
        yield open_
    finally:
        for seats in made:
            await seats.close()


def row(nonce: int, data: bytes = b"") -> Record:
    tx = transfer(ALICE, nonce, data=data)
    return Record(
        tx.sender, nonce, client_hash(tx), None, to_proto(tx),
        "relay", tx.relayer, 10, None, "ip", 1000 + nonce, "journalled", True,
    )  # fmt: skip


async def sat(seats: Seats, folder: str) -> int:
    """Take a seat; its position."""
    await seats.open()
    seat = await seats.sit(folder, f"host:/{folder[0]}")
    assert seat is not None
    return seat.position


async def all_since(seats: Seats, ended_ms: int = 0, made_ms: int = 0) -> list[Shared]:
    """Claims of the seat, see `Seats.each_since`."""
    found: list[Shared] = []

    async def take(page: list[Shared]) -> None:
        found.extend(page)

    await seats.each_since(ended_ms, made_ms, take)
    return found


async def eventually(ask: Callable[[], Awaitable[object]]) -> object:
    """The first answer that is one: leases end by the server's clock."""
    async with asyncio.timeout(10):
        while (answer := await ask()) is None:
            await asyncio.sleep(0.01)
    return answer


async def test_as_many_have_seats_as_there_are(opened: Open) -> None:
    """A further one stands by until a seat is left; a folder gets its own back; another number of seats is refused."""
    one, two, three = opened(), opened(), opened()
    await sat(one, A)
    await sat(two, B)
    await one.settle_in(A, 5)
    await three.open()
    assert await three.sit(C, "host:/c") is None
    await one.leave()
    await two.leave()
    again = opened()
    await again.open()
    seat = await again.sit(A, "host:/a")
    assert seat is not None and (seat.left_by, seat.reservations) == (one._word, 5)
    with pytest.raises(Refused, match="claims_seats"):
        await opened(seats=3).open()
    with pytest.raises(Refused, match="synchronous_standby_names"):
        await opened(needs_standby=True).open()


async def test_a_copied_folder_has_no_seat_beside_the_other(opened: Open) -> None:
    """From the moment on at which one of them has sat down; the other may when that one has left."""
    one, copy, third = opened(), opened(), opened()
    await sat(one, A)
    await copy.open()
    with pytest.raises(TwinError, match="host:/a"):
        await copy.sit(A, "host:/copy")
    await sat(third, B)
    number = one.number
    await one.leave()
    seat = await copy.sit(A, "host:/copy")
    assert seat is not None and seat.number == number


@pytest.mark.parametrize("end", ["left", "killed"])
async def test_a_seat_says_who_had_it_last(opened: Open, postgres: Postgres, end: str) -> None:
    """By the word of that process, however it ended, and of nobody else: also where one folder had it both times."""
    seats, other = opened(seats=1), opened(seats=1)
    await sat(seats, A)
    await other.open()
    for holder, next_one in (seats, other), (other, seats), (seats, other):
        if end == "left":
            await holder.leave()
        else:
            postgres.sql(f"UPDATE \"{seats._schema}\".seats SET expires_at = '-infinity'")
        seat = await next_one.sit(A, "host:/a")
        assert seat is not None and (seat.left_by, seat.word) == (holder._word, next_one._word)


async def test_of_a_seat_that_a_version_before_left_nobody_knows_all(opened: Open, postgres: Postgres) -> None:
    """Such a relayer leaves no word; one that was killed leaves its own, and reservations that no journal has."""
    seats = opened(seats=1)
    for word in "", "of a version before":
        await sat(seats, A)
        await seats.settle_in(A, 5)
        await seats.leave()
        postgres.sql(f"UPDATE \"{seats._schema}\".seats SET word = '{word}'")
        seat = await seats.sit(A, "host:/a")
        assert seat is not None and (seat.left_by, seat.reservations) == (word, 5)
        await seats.leave()
        seat = await seats.sit(A, "host:/a")
        assert seat is not None and seat.reservations == UNTOLD, "which a version before goes by, when it is back"
        await seats.leave()


async def test_claims_of_the_version_before_are_brought_up_to_date(opened: Open, postgres: Postgres) -> None:
    """Not beside a relayer of that version; what was claimed stays, and each seat needs all it may have spent."""
    old, new = opened(seconds=SHORT), opened()
    position = await sat(old, A)
    assert await old.claim([row(1)], position)
    schema = f'"{old._schema}"'
    postgres.sql(
        f"ALTER TABLE {schema}.seats DROP portions, DROP needed, DROP wants",
        f"ALTER TABLE {schema}.claims DROP signature",
        f"UPDATE {schema}.sharing SET version = 1",
        f"UPDATE {schema}.seats SET expires_at = now() + interval '1 h' WHERE seat = {old.number}",
    )
    with pytest.raises(Refused, match=r"host:/a holds a seat.*stop all relayers"):
        await new.open()
    postgres.sql(f"UPDATE {schema}.seats SET expires_at = now()")
    await new.open()
    seat = await new.sit(A, "host:/a")
    assert seat is not None and (seat.number, seat.position, seat.portions) == (old.number, 1, PORTIONS)
    other = opened()
    await sat(other, B)
    await new.leave()
    assert await portions_of(other, wants=True, may_vacate=True) == (PORTIONS, False), "who left it may have spent all"
    assert await other.whose([(ALICE.public, 1)])
    with pytest.raises(SeatError):
        await old.position()
    postgres.sql(f"UPDATE {schema}.sharing SET version = 3")
    with pytest.raises(Refused, match="start that version"):
        await opened().open()


async def test_a_connection_that_is_slow_makes_no_time_uncertain(opened: Open) -> None:
    """How far clocks are apart is known but for the question itself: neither connecting nor committing counts."""
    one, at = opened(), 1000.0
    await sat(one, A)
    one.clock = ServerClock(lambda: 0, lambda: at)
    connected, ask = one._db._on_connect, one._db.ask
    assert connected is not None

    async def slowly(connection: Connection) -> None:
        nonlocal at
        await connected(connection)
        at += 5

    async def late(work: Callable[[Connection], Awaitable[Any]]) -> Any:
        nonlocal at
        answer = await ask(work)
        at += 3
        return answer

    one._db._on_connect, one._db.ask = slowly, late  # type: ignore[method-assign]
    for again in (partial(one.sit, A, "host:/a"), partial(one.renew, Progress())):
        one._db._drop()
        await again()
        assert one.clock.most_ahead_ms - one.clock.least_ahead_ms <= ROUNDED_MS + 1


async def test_row_10_a_nonce_has_one_owner(opened: Open) -> None:
    """Of two payloads, and of two seats, the first one has it for good; the server says who."""
    one, two = opened(), opened()
    await sat(one, A)
    await sat(two, B)
    assert await one.claim([row(1), row(2)], 0)
    assert not await two.claim([row(2, b"other"), row(3)], 0)
    whose = await two.whose([(ALICE.public, nonce) for nonce in (1, 2, 3, 4)])
    assert {nonce: (claimed.client_hash, claimed.seat) for (_, nonce), claimed in whose.items()} == {
        1: (row(1).client_hash, one.number),
        2: (row(2).client_hash, one.number),
        3: (row(3).client_hash, two.number),
    }
    asked = {(ALICE.public, 2, 2**62), (ALICE.public, 1, 1), (ALICE.public, 4, 9)}
    found = (await two.claimed(asked))[ALICE.public]
    assert {nonce: (claimed.seat, claimed.tx) for nonce, claimed in found.items()} == {
        nonce: (one.number if nonce < 3 else two.number, row(nonce).tx) for nonce in (1, 2, 3)
    }


async def test_who_lost_its_seat_claims_and_tells_nothing(opened: Open) -> None:
    """A lease that ran out while nobody wanted it goes on; once another has the seat the first one changes nothing."""
    frozen, other = opened(seats=1, seconds=SHORT), opened(seats=1)
    await sat(frozen, A)
    await other.open()
    assert await frozen.claim([row(1)], 0)
    await eventually(lambda: other.sit(B, "host:/b"))
    for late in (
        frozen.claim([row(2)], 1),
        frozen.renew(Progress(ends=[(ALICE.public, 1, row(1).client_hash, "finished", "1", 1)])),
        frozen.each_since(0, 0, lambda _: asyncio.sleep(0)),
        frozen.settle_in(A, 1),
    ):
        with pytest.raises(SeatError, match="taken over"):
            await late
    assert list(await other.whose([(ALICE.public, 2)])) == []
    (claimed,) = (await other.whose([(ALICE.public, 1)])).values()
    assert claimed.state == "journalled"


async def test_a_server_that_forgot_is_found_out(opened: Open, postgres: Postgres) -> None:
    """Claims that were acknowledged and are gone, as on a promoted standby that was behind, end the relayer."""
    seats = opened(seats=1)
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    await sharing.take([row(1)])
    postgres.sql(f'DELETE FROM "{seats._schema}".claims', f'UPDATE "{seats._schema}".seats SET position = 0')
    with pytest.raises(JournalError, match="forgotten"):
        await sharing.take([row(1, b"other")])
    with pytest.raises(OSError, match="claims no more"):
        await sharing.run()
    with pytest.raises(JournalError, match="claims no more"):
        await sharing.take([row(2)])
    await sharing.close()


async def test_one_forgotten_claim_is_found_out_by_who_takes_portions(opened: Open, postgres: Postgres) -> None:
    """To take some moves the seat on, too: that must not make up for a commit of a claim that is gone."""
    seats = opened(seats=1)
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    await sharing.take([row(1)])
    sharing.portions.need = lambda: Need(PORTIONS, 1)  # it has none left
    postgres.sql(f'DELETE FROM "{seats._schema}".claims', f'UPDATE "{seats._schema}".seats SET position = position - 1')
    async with asyncio.timeout(10):
        with pytest.raises(OSError, match="forgotten"):
            await sharing.run()
    await sharing.close()


def forget_last(seats: Seats, postgres: Postgres) -> None:
    """What a server that was put back from a backup does not know: the last commit of a seat, and its claims."""
    schema, seat = f'"{seats._schema}"', seats.number
    postgres.sql(
        f"CREATE TABLE {schema}.kept AS SELECT * FROM {schema}.claims WHERE seat = {seat}",
        f"DELETE FROM {schema}.claims WHERE seat = {seat}",
        f"UPDATE {schema}.seats SET position = position - 1 WHERE seat = {seat}",
    )


def put_back(seats: Seats, postgres: Postgres) -> None:
    """The server knows all again."""
    schema, seat = f'"{seats._schema}"', seats.number
    postgres.sql(
        f"INSERT INTO {schema}.claims SELECT * FROM {schema}.kept",
        f"UPDATE {schema}.seats SET position = position + 1 WHERE seat = {seat}",
    )


async def test_row_10_who_is_idle_finds_a_server_that_forgot_what_others_claimed(
    opened: Open, postgres: Postgres
) -> None:
    """Its own seat is as it was; but what another signed would be free for it, so it has lost its seat, too."""
    idle, busy = opened(), opened()
    position = await sat(idle, A)
    assert await busy.claim([row(1)], await sat(busy, B))
    await idle.renew(Progress())
    forget_last(busy, postgres)
    with pytest.raises(SeatError, match="forgotten"):
        await idle.renew(Progress())
    idle._db._drop()  # as it is when a server is put back: it is not asked for more before it has all
    with pytest.raises(Unavailable, match="forgotten"):
        await idle.claim([row(1, b"other")], position)
    put_back(busy, postgres)
    assert not await idle.claim([row(1, b"other")], position)


async def test_row_10_who_stands_by_takes_no_seat_of_a_server_that_forgot(opened: Open, postgres: Postgres) -> None:
    """It has seen how many commits there were, and waits for the server that has them."""
    one, later = opened(seats=1), opened(seats=1)
    position = await sat(one, A)
    assert await one.claim([row(1)], position)
    await later.open()
    assert await later.sit(B, "host:/b") is None
    number = one.number
    await one.leave()
    one.number = number
    forget_last(one, postgres)
    with pytest.raises(Unavailable, match="forgotten"):
        await later.sit(B, "host:/b")
    put_back(one, postgres)
    assert await later.sit(B, "host:/b") is not None


async def test_row_10_a_server_that_forgot_all_seats_is_one_that_forgot(opened: Open, postgres: Postgres) -> None:
    """Who has a seat, and who stands by and knows how many commits there were, say so."""
    one, later = opened(seats=1), opened(seats=1)
    position = await sat(one, A)
    assert await one.claim([row(1)], position)
    await later.open()
    assert await later.sit(B, "host:/b") is None
    postgres.sql(f'DELETE FROM "{one._schema}".seats')
    one._db._drop()
    with pytest.raises(Unavailable, match="forgotten"):
        await one.position()
    with pytest.raises(Unavailable, match="forgotten"):
        await later.sit(B, "host:/b")


async def test_what_was_asked_while_the_server_died_is_answered_by_the_next_one(
    opened: Open, postgres: Postgres
) -> None:
    """A claim whose answer was lost is asked again until it is known; what comes meanwhile is refused."""
    sharing = Sharing(opened(), A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    await sharing.take([row(1)])
    postgres.kill()
    asked = asyncio.ensure_future(sharing.take([row(2)]))
    async with asyncio.timeout(10):
        while sharing.failed is None:
            await asyncio.sleep(0.01)
    with pytest.raises(JournalError):
        await sharing.take([row(3)])
    assert not asked.done()
    await postgres.restart()
    await asked
    await sharing.take([row(3)])
    await sharing.take([row(2)])  # the same again: it is ours
    with pytest.raises(TakenElsewhere) as caught:
        await sharing.take([row(2, b"other")])
    assert caught.value.claimed.client_hash == row(2).client_hash
    await sharing.close()


async def test_an_answer_that_was_lost_counts(opened: Open) -> None:
    """A commit that came through although nobody heard of it is neither taken for lost nor made twice."""
    seats = opened(seats=1)
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    heard = seats._insert

    async def unheard(*args: Any) -> int | None:
        seats._insert = heard  # type: ignore[method-assign]
        await heard(*args)
        raise Unavailable("the connection was lost behind the commit")

    seats._insert = unheard  # type: ignore[method-assign, assignment]
    sharing.start()
    await sharing.take([row(1)])
    await sharing.take([row(2)])
    assert await seats.position() == 3, "once for the first, once for its being asked again, once for the second"
    await sharing.close()


async def test_two_relayers_that_claim_the_same_nonces_at_once(opened: Open) -> None:
    """Whatever the order of what they are asked, each nonce has one owner, who is told so, and the other too."""
    both = [Sharing(opened(), folder, "here", lambda: 0) for folder in (A, B)]
    for sharing in both:
        await sharing.sit()
        sharing.start()
    for start in range(0, 100, 10):
        asked = [
            (sharing, [row(nonce, data) for nonce in order])
            for sharing, data in zip(both, (b"one", b"two"), strict=True)
            for order in (range(start, start + 5), range(start + 9, start + 4, -1))
        ]
        results = await asyncio.gather(
            *(sharing.take([item]) for sharing, rows in asked for item in rows), return_exceptions=True
        )
        assert sum(result is None for result in results) == 10
        assert all(result is None or isinstance(result, TakenElsewhere) for result in results)
    for sharing in both:
        await sharing.close()


async def test_what_was_refused_before_it_was_signed_is_free_again(opened: Open) -> None:
    """A claim that did not get into its own journal is nobody's, and another payload may have the nonce."""
    seats = opened(seats=1)
    position = await sat(seats, A)
    assert await seats.claim([row(1)], position)
    await seats.renew(Progress(void=[(ALICE.public, 1, row(1).client_hash)]))
    assert await seats.claim([row(1, b"other")], position + 1)
    ended = msgspec.structs.replace(row(1, b"other"), state="finished")
    await seats.renew(Progress(ends=[(ALICE.public, 1, ended.client_hash, "finished", "7", 2000)]))
    await seats.renew(Progress(void=[(ALICE.public, 1, ended.client_hash)]))
    (claimed,) = (await seats.whose([(ALICE.public, 1)])).values()
    assert (claimed.state, claimed.cost) == ("finished", "7"), "what ended is not undone"
    await seats.forget(3000)
    assert not await seats.whose([(ALICE.public, 1)])


async def test_what_is_claimed_again_before_its_end_is_told_stays_claimed(opened: Open) -> None:
    """The same bytes may come again at once after they were refused: then their claim is neither deleted nor over."""
    seats = opened(seats=1)
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    item = row(1)
    await sharing.take([item])
    sharing.ended([(ALICE.public, 1, item.client_hash, "superseded", "0", 2000)])
    sharing.void([(ALICE.public, 1, item.client_hash)])
    await sharing.take([item])
    await sharing.close()  # tells everything
    again = opened(seats=1)
    await sat(again, A)
    (claimed,) = (await again.whose([(ALICE.public, 1)])).values()
    assert (claimed.client_hash, claimed.state, claimed.cost) == (item.client_hash, "journalled", None)


async def test_a_claim_is_deleted_only_when_our_own_journal_knows(opened: Open) -> None:
    """Who is killed before that has a row of it, and is not to find that nobody has claimed it."""
    written = False

    async def journal() -> None:
        if not written:
            raise JournalError("the disk fails")

    sharing = Sharing(opened(seats=1), A, "host:/a", lambda: 0, journal)
    await sharing.sit()
    sharing.start()
    await sharing.take([row(1), row(2)])
    sharing.ended([(ALICE.public, nonce, row(nonce).client_hash, "superseded", "0", 2000) for nonce in (1, 2)])
    sharing.void([(ALICE.public, 1, row(1).client_hash)])
    names = [(ALICE.public, 1), (ALICE.public, 2)]

    async def states() -> list[str]:
        return [claimed.state for claimed in (await sharing.whose(names)).values()]

    async def second_is_over() -> object:
        return "superseded" in await states() or None

    await eventually(second_is_over)
    assert sorted(await states()) == ["journalled", "superseded"]
    with pytest.raises(JournalError, match="not written"):
        await sharing.take([row(1)])
    written = True
    await sharing.take([row(1, b"other")])
    assert (await sharing.whose(names))[ALICE.public, 1].client_hash == row(1, b"other").client_hash
    await sharing.close()


async def test_two_that_begin_at_once(opened: Open, postgres: Postgres) -> None:
    """Who comes while another makes the schema waits for it, and does not stumble over it."""
    seats, first = opened(), Database(Secret(postgres.url), "test")

    async def make(connection: Connection) -> asyncio.Future[str]:
        async with making(connection):
            await connection.execute(f'CREATE SCHEMA "{seats._schema}"')
            second = asyncio.ensure_future(seats.open())
            async with asyncio.timeout(10):
                while not await connection.fetchval("SELECT true FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            assert not second.done()
            return second

    assert await (await first.ask(make))
    await first.leave()


async def test_who_stands_by_holds_no_claim_up(opened: Open) -> None:
    """It asks for a seat each second: what is made already is not made anew, for which claims would have to wait."""
    first = opened()
    await sat(first, A)
    other = opened()

    async def work(connection: Connection) -> None:
        async with connection.transaction(), asyncio.timeout(20):
            await connection.execute("LOCK TABLE claims IN ROW EXCLUSIVE MODE")  # as a claim does
            await other.open()

    await first._db.ask(work)


async def test_who_stands_still_in_the_middle_holds_nobody_up_for_long(opened: Open, postgres: Postgres) -> None:
    """A transaction that nobody goes on with is ended by the server, and with it what it had locked."""
    frozen = opened()
    await sat(frozen, A)
    text = await frozen._db.ask(lambda connection: connection.fetchval("SHOW idle_in_transaction_session_timeout"))
    leases = PostgresLeases(Secret(postgres.url), frozen._schema, LONG)
    words = await asyncio.to_thread(leases._db.fetch, "SHOW idle_in_transaction_session_timeout")
    await asyncio.to_thread(leases.close)
    assert text == words[0][0] == "5s"


async def test_what_another_let_go_meanwhile_is_claimed_and_not_only_thought_ours(opened: Open) -> None:
    """Between our claim, which it was in the way of, and our question whose it is, the nonce became free."""
    other, seats = opened(), opened()
    position = await sat(other, A)
    assert await other.claim([row(1)], position)
    sharing = Sharing(seats, B, "host:/b", lambda: 0)
    await sharing.sit()
    ask = seats.whose

    async def late(names: Any) -> Any:
        await other.renew(Progress(void=[(ALICE.public, 1, row(1).client_hash)]))
        return await ask(names)

    seats.whose = late  # type: ignore[method-assign]
    sharing.start()
    await sharing.take([row(1, b"other")])
    assert not await other.claim([row(1)], position + 1), "else two payloads of the nonce are signed"
    await sharing.close()


async def test_a_seat_is_not_taken_in_the_middle_of_what_its_holder_tells(opened: Open) -> None:
    """Who takes it signs what it finds claimed: nothing of that may be deleted in a commit that comes behind."""
    late, other = opened(seats=1, seconds=SHORT), opened(seats=1)
    position = await sat(late, A)
    assert await late.claim([row(1)], position)
    await other.open()
    sat_meanwhile: list[object] = []

    class Between:
        """The connection, with somebody else's try to sit behind each of its statements."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection
            self.transaction = connection.transaction

        async def execute(self, *args: Any) -> Any:
            return await self._tried(self._connection.execute(*args))

        async def fetchrow(self, *args: Any) -> Any:
            return await self._tried(self._connection.fetchrow(*args))

        async def _tried(self, work: Awaitable[Any]) -> Any:
            answer = await work
            await asyncio.sleep(2 * SHORT)  # the lease ends by the server's clock
            sat_meanwhile.append(await other.sit(B, "host:/b"))
            return answer

    ask = late._db.ask

    async def asked(work: Callable[[Connection], Awaitable[Any]]) -> Any:
        return await ask(lambda connection: work(Between(connection)))

    late._db.ask = asked  # type: ignore[method-assign]
    with contextlib.suppress(SeatError):
        await late.renew(Progress(void=[(ALICE.public, 1, row(1).client_hash)]))
    there = await other.whose([(ALICE.public, 1)])
    assert (sat_meanwhile, list(there)) == ([None] * 3, []), "deleted, and then nobody had the seat meanwhile"


async def test_a_seat_is_taken_once_however_often_it_is_asked_for(opened: Open) -> None:
    """Who did not hear the answer asks again, and does not keep another from the second seat."""
    one, two = opened(), opened()
    await one.open()
    first, again = await one.sit(A, "host:/a"), await one.sit(A, "host:/a")
    assert first is not None and again is not None and first.number == again.number
    await sat(two, B)


async def test_a_claim_that_comes_late_is_no_sign_of_a_server_that_forgot(opened: Open) -> None:
    """A statement that was given up may reach the server after our question how far it is, and before the next one."""
    seats = opened(seats=1)
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    heard, position = seats._insert, seats.position

    async def given_up(*args: Any) -> int | None:
        async def then() -> int:
            known = await position()
            seats.position = position  # type: ignore[method-assign]
            await heard(*args)
            return known

        seats._insert, seats.position = heard, then  # type: ignore[method-assign]
        raise Unavailable("no answer in time")

    seats._insert = given_up  # type: ignore[method-assign, assignment]
    sharing.start()
    await sharing.take([row(1)])
    await sharing.take([row(2)])
    assert sharing.lost is None
    await sharing.close()


async def portions_of(seats: Seats, **progress: Any) -> tuple[int, bool]:
    renewed = await seats.renew(Progress(**progress))
    return renewed.portions, renewed.others_want


async def test_portions_go_from_who_gives_to_who_wants(opened: Open, postgres: Postgres) -> None:
    """All together are never more than there are, and who stops needing them hears that others want some."""
    one, two = opened(), opened()
    await sat(one, A)
    await sat(two, B)
    assert await portions_of(one, wants=True) == (PORTIONS, False), "nobody has given any"
    assert await portions_of(two, needed=3) == (PORTIONS, True)
    assert await portions_of(two, keeps=54, needed=3, wants=False) == (54, True)
    assert await portions_of(one, wants=True) == (PORTIONS + 10, False)
    assert await portions_of(two, wants=True) == (54, True)
    await portions_of(one)
    assert await portions_of(one, keeps=40) == (40, True)
    both = await asyncio.gather(*(portions_of(seats, wants=True) for seats in (one, two)))
    assert sum(portions for portions, _ in both) <= 2 * PORTIONS


async def test_portions_are_taken_once_whatever_the_server_isolates_by_default(
    opened: Open, postgres: Postgres
) -> None:
    """Two that want the same ones: the second counts what the first took, also where it began to ask before that."""
    one, two, third = opened(seats=3), opened(seats=3), opened(seats=3)
    postgres.sql("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'")
    try:
        for seats, folder in ((one, A), (two, B), (third, C)):
            await sat(seats, folder)
        await portions_of(third, keeps=PORTIONS - 16)
        begun, go_on = asyncio.Event(), asyncio.Event()
        more = two._more

        async def later(connection: Connection, *, vacate: bool) -> Any:
            begun.set()
            await go_on.wait()
            return await more(connection, vacate=vacate)

        two._more = later  # type: ignore[method-assign]
        second = asyncio.ensure_future(portions_of(two, wants=True))
        await begun.wait()
        first = await portions_of(one, wants=True)
        go_on.set()
        assert (first[0], (await second)[0]) == (PORTIONS + 16, PORTIONS)
    finally:
        postgres.sql("ALTER DATABASE postgres RESET default_transaction_isolation")


async def test_what_a_lost_relayer_did_not_need_is_used_by_others(opened: Open, postgres: Postgres) -> None:
    """Its last claim said what is needed; the rest is taken once it was not heard of for long, and it is out then."""
    one, lost = opened(), opened()
    await sat(one, A)
    position = await sat(lost, B)
    assert await lost.claim([row(1)], position, needed=60)
    gone = f"UPDATE \"{lost._schema}\".seats SET expires_at = now() - interval '%s' WHERE seat = {lost.number}"
    postgres.sql(gone % "50 s")
    assert await portions_of(one, wants=True, may_vacate=True) == (PORTIONS, False)
    postgres.sql(gone % "70 s")
    assert await portions_of(one, wants=True) == (PORTIONS, False), "the server may have been away itself"
    assert await portions_of(one, wants=True, may_vacate=True) == (PORTIONS + 4, False)
    with pytest.raises(SeatError, match="taken over"):
        await lost.claim([row(2)], position + 1)
    third = opened()
    await third.open()
    seat = await third.sit(C, "host:/c")
    assert seat is not None and (seat.portions, seat.left_by) == (60, lost._word)


MINUTES_MS = 300_000


async def test_times_are_the_servers_whatever_clocks_say(opened: Open) -> None:
    """What one spent a moment ago was a moment ago for who takes its seat, with clocks that are minutes apart."""
    slow, fast = opened(seats=1), opened(seats=1)
    now = wall_ms()
    slow.clock = ServerClock(lambda: wall_ms() - MINUTES_MS)
    fast.clock = ServerClock(lambda: wall_ms() + MINUTES_MS)
    position = await sat(slow, A)
    made = [msgspec.structs.replace(row(nonce), created_ms=now - MINUTES_MS) for nonce in (1, 2)]
    assert await slow.claim(made, position)
    ends = [(ALICE.public, 2, made[1].client_hash, "finished", "7", now - MINUTES_MS)]
    await slow.renew(Progress(ends=ends, open_since=now))
    await slow.leave()
    await fast.open()
    seat = await fast.sit(B, "host:/b")
    assert seat is not None and seat.open_since == now
    taken: list[int] = []

    async def take(page: list[Shared]) -> None:
        taken.extend(item.record.created_ms for item in page)
        taken.extend(item.ended_ms for item in page if item.ended_ms is not None)

    await fast.each_since(now + MINUTES_MS - 10_000, seat.open_since, take)
    taken += [claimed.ended_ms or 0 for claimed in (await fast.whose([(ALICE.public, 2)])).values()]
    (told,) = (await fast.claimed({(ALICE.public, 2, 2)}))[ALICE.public].values()
    taken.append(told.ended_ms or 0)
    assert len(taken) == 5 and all(0 <= at - (now + MINUTES_MS) < MINUTES_MS for at in taken)
    await fast.forget(now)
    assert await fast.whose([(ALICE.public, 2)]), "by its clock that ended later"


async def test_a_clock_that_jumps_by_a_day_is_noticed_at_once(opened: Open) -> None:
    """Between two renewals, too: a claim is not dated a day back, where its fee would not be counted."""
    jumped, other = opened(seats=1), opened(seats=1)
    day, back = 86_400_000, [0]
    jumped.clock = ServerClock(lambda: wall_ms() - back[0])
    position = await sat(jumped, A)
    back[0] = day
    assert await jumped.claim([msgspec.structs.replace(row(1), created_ms=wall_ms() - day)], position)
    await jumped.leave()
    await sat(other, B)
    found = await all_since(other, wall_ms() - 10_000, wall_ms())
    assert [item.record.nonce for item in found] == [1]


async def test_the_oldest_open_claim_is_told_whatever_the_clock_did(opened: Open) -> None:
    """After a clock was set back a later claim is of an earlier time: who takes the seat looks for it from there on."""
    sharing = Sharing(opened(seats=1), A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    now = wall_ms()
    await sharing.take([msgspec.structs.replace(row(1), created_ms=now + 86_400_000)])
    await sharing.take([msgspec.structs.replace(row(2), created_ms=now)])
    await sharing.close()
    again = opened(seats=1)
    await again.open()
    seat = await again.sit(B, "host:/b")
    assert seat is not None and seat.open_since <= now


async def test_an_open_claim_is_found_by_who_takes_the_seat_though_the_clock_was_set_back(
    opened: Open, postgres: Postgres
) -> None:
    """What was signed days ago and may still run is at risk for whoever follows it, however its holder's clock goes."""
    holder, other = opened(seats=1), opened(seats=1)
    back, hours = [0], 48 * 3_600_000
    holder.clock = ServerClock(lambda: wall_ms() - back[0])
    sharing = Sharing(holder, A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    await sharing.take([msgspec.structs.replace(row(1), created_ms=wall_ms() - hours)])
    back[0] = 3_600_000
    await sharing.close()  # tells since when claims are open
    await other.open()
    seat = await other.sit(B, "host:/b")
    assert seat is not None
    found = await all_since(other, wall_ms(), seat.open_since)
    assert [item.record.nonce for item in found] == [1]


@pytest.mark.parametrize(("writer", "reader"), [(-400, 400), (400, -400), (0, 499), (-900, 900)])
async def test_what_is_taken_over_is_never_older_than_it_was(opened: Open, writer: int, reader: int) -> None:
    """An answer takes a while, in which nobody knows the other's clock: a fee rather counts too long than too short."""
    one, two = opened(seats=1), opened(seats=1)
    one.clock = ServerClock(lambda: wall_ms() + writer)
    two.clock = ServerClock(lambda: wall_ms() + reader)
    position, made = await sat(one, A), wall_ms()
    assert await one.claim([msgspec.structs.replace(row(1), created_ms=made + writer)], position)
    await one.leave()
    await two.open()
    seat = await two.sit(B, "host:/b")
    assert seat is not None
    found: list[int] = []

    async def take(page: list[Shared]) -> None:
        found.extend(item.record.created_ms - reader for item in page)

    await two.each_since(made - 10_000, seat.open_since, take)
    assert [0 <= at - made < MINUTES_MS for at in found] == [True]


async def rows_read(postgres: Postgres, schema: str) -> int:
    """Claims that all sessions have read so far; those that have ended have said so."""
    return int(
        postgres.sql(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables "
            f"WHERE schemaname = '{schema}' AND relname = 'claims'"
        )
    )


OLD_ROWS = """
INSERT INTO "{0}".claims SELECT decode(md5(n::text), 'hex'), n, 'hash', 0, 'tx', 'relay', 'key', '1', 'ip',
    {1} + n * 7919 % 20000, 'finished', true, '1', {1} + n * 7919 % 20000 + 1, NULL FROM generate_series(1, 20000) AS n
"""
"""In no order of time, as in pages that are used again."""


async def test_an_old_open_claim_is_found_without_all_that_ended_since(opened: Open, postgres: Postgres) -> None:
    """A start reads what is open and what was made since, not the claims between; and so does forgetting."""
    made, yesterday = opened(seats=1), wall_ms() - 86_400_000
    await sat(made, A)
    postgres.sql(OLD_ROWS.format(made._schema, yesterday))
    postgres.sql(f"UPDATE \"{made._schema}\".claims SET state = 'journalled', ended_ms = NULL WHERE nonce IN (7, 7000)")
    await made.leave()
    before = await rows_read(postgres, made._schema)
    again, found = opened(seats=1), list[int]()
    await sat(again, A)

    async def take(page: list[Shared]) -> None:
        found.extend(item.record.nonce for item in page)

    await again.each_since(wall_ms() - 1000, yesterday, take)
    assert sorted(found) == [7, 7000]
    await again.forget(yesterday + 100)
    await again.leave()
    await again.close()
    async with asyncio.timeout(10):
        while (read := await rows_read(postgres, made._schema) - before) == 0:
            await asyncio.sleep(0.05)
    assert read < 1000
    left = int(postgres.sql(f'SELECT count(*) FROM "{made._schema}".claims'))
    assert 20_000 - 100 <= left < 20_000 - 80, "clocks are not told more exactly"


async def test_claims_are_forgotten_some_at_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody waits for long; the rest follows by itself, and what is open or ended later stays."""
    monkeypatch.setattr(seats_module, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(sharing_module, "TELL_SECONDS", 0.01)
    seats, now = opened(seats=1), wall_ms()
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    made = [msgspec.structs.replace(row(nonce), created_ms=now - 1000) for nonce in range(8)]
    await sharing.take(made)
    ended = [(item.sender, item.nonce, item.client_hash, "finished", "7", now - 900) for item in made[:5]]
    sharing.ended([*ended, (ALICE.public, 6, made[6].client_hash, "finished", "7", now + MINUTES_MS)])
    names = [(ALICE.public, nonce) for nonce in range(8)]
    async with asyncio.timeout(10):
        while (await sharing.whose(names))[names[6]].ended_ms is None:
            await asyncio.sleep(0.01)
        sharing.forget(now)
        while len(found := await sharing.whose(names)) > 3:
            await asyncio.sleep(0.01)
    assert sorted(nonce for _, nonce in found) == [5, 6, 7]
    await sharing.close()


async def test_the_indexes_of_an_earlier_version_are_brought_up_to_date(opened: Open, postgres: Postgres) -> None:
    """A table that was made without them gets them at the next start, whatever its version says."""
    one, two = opened(), opened()
    await one.open()
    schema = one._schema
    postgres.sql(
        f'DROP INDEX "{schema}".claims_made, "{schema}".claims_open, "{schema}".claims_written_off',
        f'CREATE INDEX claims_created ON "{schema}".claims USING brin (created_ms)',
    )
    await two.open()
    names = f"SELECT string_agg(indexname, ' ' ORDER BY indexname) FROM pg_indexes WHERE schemaname = '{schema}' "
    assert postgres.sql(names + "AND tablename = 'claims'") == "claims_made claims_open claims_pkey claims_written_off"


async def test_a_server_without_a_connection_left_is_one_that_is_away(opened: Open, postgres: Postgres) -> None:
    """Nothing is lost of what waits, and it is claimed once somebody else has left."""
    seats = opened()
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    others = [Database(Secret(postgres.url), "others") for _ in range(200)]
    seats._db._drop()
    try:
        with pytest.raises(Unavailable, match=r"too many|slots"):
            for other in others:
                await other.ask(lambda connection: connection.fetchval("SELECT 1"))
        sharing.start()
        asked = asyncio.ensure_future(sharing.take([row(1)]))
        async with asyncio.timeout(20):
            while sharing.failed is None:
                await asyncio.sleep(0.01)
        assert not asked.done() and sharing.lost is None
    finally:
        await asyncio.gather(*(other.leave() for other in others))
    async with asyncio.timeout(20):
        await asked
    await sharing.close()


async def test_row_10_nothing_is_claimed_while_no_standby_is_waited_for(opened: Open, postgres: Postgres) -> None:
    """Somebody sets the server's names of standbys to nothing under a running relayer: it says so, and waits."""

    async def set_names(names: str) -> None:
        postgres.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()")
        while await seats._db.ask(lambda connection: connection.fetchval(shown)) != names:
            pass

    seats, shown = opened(needs_standby=True), "SHOW synchronous_standby_names"
    seats._needs_standby = False
    seats._db._session = {**seats._db._session, "synchronous_commit": "local"}  # there is no standby here to wait for
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    try:
        await set_names("somebody")
        seats._needs_standby = True
        await sharing.sit()
        sharing.start()
        await sharing.take([row(1)])
        await set_names("")
        asked = asyncio.ensure_future(sharing.take([row(2)]))
        async with asyncio.timeout(20):
            while "no standby is waited for" not in (sharing.failed or ""):
                await asyncio.sleep(0.01)
        assert postgres.sql(f'SELECT nonce FROM "{seats._schema}".claims') == "1"
        assert sharing.why_not() == "the claims' server is not fit to be used" and not asked.done()
        async with sharing._asking.turn:
            seats._db._drop()
            with pytest.raises(Unfit, match="no standby"):  # a running relayer does not end for it
                await seats.whose([(ALICE.public, 1)])
        postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'somebody'", "SELECT pg_reload_conf()")
        async with asyncio.timeout(20):
            await asked
    finally:
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        await sharing.close()


def test_a_clock_of_a_server_that_was_set_is_noticed() -> None:
    """By how much at least, whichever way, once; an answer that took long says nothing."""
    at = 1000.0
    clock, found = ServerClock(lambda: 0, lambda: at), []
    for seconds, took in ((1000, 0), (1001, 1), (1002, 3), (4603, 1), (1004, 1), (1005, 1)):
        asked, at = at, at + took
        clock.answered(asked, seconds * 1000)
        found.append(clock.set_by)
    assert [round(seconds) for seconds in found] == [0, 0, 0, 3597, -3599, 0]


def break_claims_of(postgres: Postgres, schema: str, nonce: int, how: str) -> None:
    """The server does not insert a claim of this nonce."""
    postgres.sql(
        f'CREATE FUNCTION "{schema}".fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {how}; END$$',
        f'CREATE TRIGGER fail BEFORE INSERT ON "{schema}".claims FOR EACH ROW WHEN (NEW.nonce = {nonce}) '
        f'EXECUTE FUNCTION "{schema}".fail()',
    )


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_damaged_claim_stops_nobody_else(opened: Open, postgres: Postgres, says_so: bool) -> None:
    """A nonce that the server has and cannot read is refused, alone; what was asked with it is claimed."""
    seats = opened()
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    how = "RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'" if says_so else "RETURN NULL"
    break_claims_of(postgres, seats._schema, 2, how)
    asked = [asyncio.ensure_future(sharing.take([row(nonce)])) for nonce in (1, 2, 3)]
    await asyncio.sleep(0)
    sharing.start()
    async with asyncio.timeout(20):
        first, second, third = await asyncio.gather(*asked, return_exceptions=True)
    assert first is None and third is None and isinstance(second, JournalError if says_so else TakenElsewhere)
    await sharing.take([row(4)])
    assert sharing.lost is None and sharing.has(ALICE.public, 4) and not sharing.has(ALICE.public, 2)
    await sharing.close()


async def test_what_others_wrote_off_and_cannot_be_read_stays_as_it_was(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged claim of others ends no relayer: what was known goes on counting, and it is said once."""
    seats, other = opened(), opened()
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    position = await sat(other, B)
    assert await other.claim([row(1), row(2)], position)
    await other.renew(Progress(ends=[(ALICE.public, 1, row(1).client_hash, "superseded", "10", None)]))
    await sharing.settle_in()
    assert sharing.written_off.of_key(row(1).relayer or b"") == 10, "and what is only in flight is not in it"

    async def damaged() -> dict[bytes, int]:
        raise Damaged("invalid page")

    monkeypatch.setattr(seats, "written_off", damaged)
    await sharing._tell()
    await sharing._tell()
    assert sharing.written_off.of_key(row(1).relayer or b"") == 10 and sharing.failed is None
    assert [record.message for record in caplog.records].count("what others wrote off cannot be read") == 1
    await sharing.close()


async def test_what_cannot_be_told_for_damage_is_not_forgotten(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relayer whose claims' ends the server cannot take down ends; it does not go on as if they were told."""
    seats = opened()
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()

    async def damaged(*_: object) -> None:
        raise Damaged("invalid page")

    monkeypatch.setattr(seats, "renew", damaged)
    with pytest.raises(ClaimsError, match="invalid page") as raised:
        await sharing._tell()
    assert not isinstance(raised.value, ClaimDamaged)


async def test_a_server_whose_disk_is_full_is_one_that_is_away(
    opened: Open, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while it answers how far it is: new claims are refused, it is asked after pauses, and said once."""
    seats, pauses = opened(), asyncio.Semaphore(0)
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    full = "RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'"
    break_claims_of(postgres, seats._schema, 2, full)
    sharing.start()
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        if seconds == RETRY_SECONDS:
            pauses.release()
        await sleep(0 if seconds == RETRY_SECONDS else seconds)

    monkeypatch.setattr(asyncio, "sleep", counted)
    asked = asyncio.ensure_future(sharing.take([row(2)]))
    async with asyncio.timeout(20):
        for _ in range(3):
            await pauses.acquire()
            with pytest.raises(JournalError):
                await sharing.take([row(3)])
    said = [record.getMessage() for record in caplog.records if "claims' server" in record.getMessage()]
    assert said == ["the claims' server does not answer: nothing is accepted"] and not asked.done()
    postgres.sql(f'DROP TRIGGER fail ON "{seats._schema}".claims')
    async with asyncio.timeout(20):
        await asked
    await sharing.take([row(3)])
    await sharing.close()


async def test_row_10_of_two_primaries_the_promoted_one_is_taken(opened: Open, postgres: Postgres) -> None:
    """The old one acknowledges what it is asked, too: nobody goes to it who was, or can be, with the other."""
    before, standby = opened(), Standby(postgres)
    try:
        await asyncio.to_thread(standby.prepare)
        await standby.restart()
        postgres.wait_for_standby()
        position = await sat(before, A)
        assert await before.claim([row(1)], position)
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        await asyncio.to_thread(standby.promote)
        url = postgres.url.replace(str(postgres.port), f"{postgres.port},127.0.0.1:{standby.port}")
        seats = Seats(Secret(url), before._schema, 2, LONG)
        position = await sat(seats, B)
        assert await seats._db.ask(lambda connection: connection.fetchval("SELECT inet_server_port()")) == standby.port
        await asyncio.to_thread(standby.kill)
        seats._db._drop()
        with pytest.raises(Unavailable, match="an old primary, of timeline 1, and another was promoted, of timeline 2"):
            await seats.position()
        await standby.restart()
        assert await seats.position() == position
        await seats.close()
    finally:
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        standby.close()


async def test_what_failed_is_told_whatever_is_known_first(opened: Open) -> None:
    """That it failed, or what it did cost; what another payload of the nonce took has not failed."""
    sharing = Sharing(opened(seats=1), A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    await sharing.take([row(nonce) for nonce in range(1, 5)])
    sharing.lose(ALICE.public, 1)
    sharing.lose(ALICE.public, 4)
    states = {1: "finished", 2: "finished", 3: "finished", 4: "superseded"}
    sharing.ended([(ALICE.public, nonce, row(nonce).client_hash, state, "7", 2000) for nonce, state in states.items()])
    sharing.lose(ALICE.public, 2)
    await sharing.close()  # tells everything
    again = opened(seats=1)
    await sat(again, A)
    found = await all_since(again)
    assert {item.record.nonce: item.record.state for item in found} == states
    assert {item.record.nonce for item in found if item.failed} == {1, 2}
    whose = await again.whose([(ALICE.public, 1)])
    assert [claimed.state for claimed in whose.values()] == ["finished"]


async def test_what_was_given_up_and_failed_is_told_as_failed(opened: Open) -> None:
    """Its receiver's shard was heard of first, then that it ran: a loss; where another payload ran it is none."""
    sharing = Sharing(opened(seats=1), A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    await sharing.take([row(1), row(2)])
    for nonce in (1, 2):
        sharing.ended([(ALICE.public, nonce, row(nonce).client_hash, "superseded", "7", None)])
        sharing.lose(ALICE.public, nonce)
    sharing.written_off_is_over(ALICE.public, 1, "finished", None, 2000)
    sharing.written_off_is_over(ALICE.public, 2, "superseded", "0", 2000)
    await sharing.close()  # tells everything
    again = opened(seats=1)
    await sat(again, A)
    found = await all_since(again)
    told = {item.record.nonce: (item.record.state, item.failed) for item in found}
    assert told == {1: ("finished", True), 2: ("superseded", False)}


async def test_what_was_being_told_is_told_by_who_stops(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop meets a server that has not answered yet: who takes the seat need not find out again how claims ended."""
    seats, other = opened(seats=1), opened(seats=1)
    sharing = Sharing(seats, A, "host:/a", lambda: 0)
    await sharing.sit()
    sharing.start()
    await sharing.take([row(1), row(2)])
    renew, asked = seats.renew, asyncio.Event()

    async def silent(progress: Progress) -> Any:
        if not progress.ends:
            return await renew(progress)
        monkeypatch.undo()
        asked.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(seats, "renew", silent)
    sharing.lose(ALICE.public, 1)
    sharing.ended([(ALICE.public, 1, row(1).client_hash, "finished", "7", 2000)])
    async with asyncio.timeout(20):
        await asked.wait()
    sharing.ended([(ALICE.public, 2, row(2).client_hash, "superseded", "0", 2000)])
    await sharing.close()
    await sat(other, B)
    found = await all_since(other)
    told = {item.record.nonce: (item.record.state, item.failed) for item in found}
    assert told == {1: ("finished", True), 2: ("superseded", False)}


async def test_a_seat_is_taken_when_its_lease_is_over_and_not_before(opened: Open, postgres: Postgres) -> None:
    """Whoever has it may be slow, and is not put out for that."""
    holder, other = opened(seats=1), opened(seats=1)
    await sat(holder, A)
    await other.open()
    seats = f'"{holder._schema}".seats'
    while True:
        postgres.sql(f"UPDATE {seats} SET word = 'holder', expires_at = clock_timestamp() + interval '1 s'")
        text = postgres.sql(f"SELECT extract(epoch FROM expires_at) FROM {seats}")
        if await other.sit(B, "host:/b") is None:
            break
        assert float(postgres.sql("SELECT extract(epoch FROM clock_timestamp())")) >= float(text)
    await eventually(lambda: other.sit(B, "host:/b"))
