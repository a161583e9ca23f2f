"""What a relayer that shares its keys gave up, or claimed and did not keep: all others know it for what it is."""

from __future__ import annotations

import asyncio
import shutil
import threading
from typing import Any

import pytest
from relayer_support import RELAYERS, raw, submit, transfer, wallet

from millrace.chain.transaction import client_hash
from millrace.relayer.journal import sharing as sharing_module
from millrace.relayer.journal.seats import Made, SeatError, Seats
from millrace.relayer.journal.writer import JournalError, _DiskError
from millrace.relayer.protocol import reasons
from millrace.relayer.rules.stages import Origin
from millrace.relayer.signing.wire import Answer
from millrace.relayer.submission import finisher
from millrace.relayer.submission.batch import Accepted, Batch
from millrace.runtime.postgres import Unavailable
from relayer.test_sharing import Relayer, Several, relayed
from relayer.test_sharing import several as several
from servers.postgres import Postgres
from waiting import until

ALICE, KEY = wallet(1), RELAYERS[1].public
FEE = 100_000 * 10**9


async def renewed(relayer: Relayer) -> None:
    """Wait until the server has heard once more of a relayer."""
    sharing = relayer.service.sharing
    assert sharing is not None
    told, remember = asyncio.Event(), sharing._remember

    def heard(commits: int) -> None:
        remember(commits)
        told.set()

    sharing._remember = heard
    async with asyncio.timeout(10):
        await told.wait()
    sharing._remember = remember


def set_aside(relayer: Relayer) -> int:
    """Of what a relayer gave up itself, or those whose seat it took, and may still have to be paid."""
    return relayer.service.lifecycle.sponsor.written_off.of_key(KEY)


async def give_up(relayer: Relayer) -> None:
    """Relay a transaction, and write it off."""
    assert await submit(relayer, transfer(ALICE, 0)) == ["ok"]
    assert relayer.service.lifecycle.write_off(client_hash(transfer(ALICE, 0)))


def days_later(several: Several, postgres: Postgres) -> None:
    """Claims are two days old, and some holder knew of none that may still run."""
    schema = several.folder.name
    postgres.sql(
        f'UPDATE "{schema}".claims SET created_ms = created_ms - 172800000',
        f'UPDATE "{schema}".seats SET open_since = (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 600000',
    )


async def test_what_was_given_up_is_known_to_who_takes_the_seat_days_later(
    several: Several, postgres: Postgres
) -> None:
    """It may run as long as its nonce is not used, and who hears that tells all: nobody leaves the fee alone then."""
    one = await several.start("one", claims_seats=1)
    await give_up(one)
    await one.end()
    days_later(several, postgres)
    one = await several.start("one", claims_seats=1)
    await renewed(one)
    await one.end()
    two = await several.start("two", claims_seats=1)
    assert set_aside(two) == FEE
    two.service.lifecycle.nonce_moved(ALICE.public, 1)
    await renewed(two)
    await two.end()
    assert postgres.sql(f'SELECT count(*) FROM "{several.folder.name}".claims WHERE ended_ms IS NULL') == "0"


async def test_what_was_given_up_is_given_up_where_it_was_open(several: Several) -> None:
    """Who comes back to its seat, where another wrote off what it had in flight, knows that it may still run."""
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    await one.die()
    two = await several.start("two", claims_seats=1)
    assert two.service.lifecycle.write_off(client_hash(transfer(ALICE, 0)))
    await two.end()
    one = await several.start("one", claims_seats=1)
    assert set_aside(one) == FEE and not one.service.lifecycle.inflight.entries()
    one.service.lifecycle.nonce_moved(ALICE.public, 1)
    await one.end()
    two = await several.start("two", claims_seats=1)
    assert set_aside(two) == 0


async def test_what_was_given_up_is_set_aside_once(several: Several) -> None:
    """Who comes back to another seat leaves its fee to who has the one it was claimed for, and heard of it there."""
    one = await several.start("one")
    await give_up(one)
    await one.end()
    two = await several.start("two")
    three = await several.start("three")
    assert {two.service.sharing.seat.number, three.service.sharing.seat.number} == {0, 1}  # type: ignore[union-attr]
    holder, other = (two, three) if set_aside(two) else (three, two)
    assert (set_aside(holder), set_aside(other)) == (FEE, 0)
    await other.end()
    one = await several.start("one")
    assert set_aside(one) == 0
    assert one.service.sharing is not None and one.service.sharing.written_off.of_key(KEY) == FEE


def writer_of(relayer: Relayer) -> Any:
    """What writes a relayer's journal."""
    return relayer.service.journal._writer


async def can_write(relayer: Relayer) -> None:
    """Wait until its journal is written again."""
    async with asyncio.timeout(10):
        while relayer.service.journal.failed is not None:
            await asyncio.sleep(0.01)


async def test_what_its_disk_refuses_is_free_at_once(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is told that it is not ready may ask another relayer, also for other bytes; it claims nothing meanwhile."""
    one, two = await several.start("one"), await several.start("two")
    sharing = one.service.sharing
    assert sharing is not None
    with monkeypatch.context() as patch:
        patch.setattr(writer_of(one), "_try", lambda _: _DiskError("full"))
        assert await submit(one, transfer(ALICE, 0)) == ["not ready"]
        assert await submit(two, transfer(ALICE, 0, gas_limit=200_000)) == ["ok"]
        position = sharing._position
        assert await submit(one, transfer(wallet(2), 0)) == ["not ready"]
        assert sharing._position == position and not sharing.open
    assert await submit(two, transfer(wallet(2), 0)) == ["ok"]
    await can_write(one)
    assert await submit(one, transfer(wallet(2), 1)) == ["ok"]


async def test_what_another_only_claimed_is_not_accepted(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its disk is slow nobody promises anything for it; let go of, it is signed by who is asked then."""
    monkeypatch.setattr(sharing_module, "KEEPS_SECONDS", 0.5)
    one, two = await several.start("one"), await several.start("two")
    tx, slow = transfer(ALICE, 0), threading.Event()

    def late(_: Any) -> JournalError:
        slow.wait(60)
        return _DiskError("full")

    with monkeypatch.context() as patch:
        patch.setattr(writer_of(one), "_try", late)
        first = asyncio.ensure_future(submit(one, tx))
        try:
            async with asyncio.timeout(10):
                while one.service.sharing is None or not one.service.sharing.open:
                    await asyncio.sleep(0.005)
            assert await submit(two, tx) == ["relayer busy"]
            monkeypatch.setattr(sharing_module, "KEEPS_SECONDS", 20.0)
            again = asyncio.ensure_future(submit(two, tx))
            async with asyncio.timeout(10):
                while not two.service.lifecycle.inflight.entries():
                    await asyncio.sleep(0.005)
        finally:
            slow.set()
        assert (await first, await again) == (["not ready"], ["ok"])
    await can_write(one)
    assert await submit(one, tx) == ["pending"], "as soon as it is told that it is kept"


async def test_what_another_may_yet_refuse_is_not_accepted(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody promises what its holder's signing process has still to sign; refused there, who is asked judges it."""
    monkeypatch.setattr(sharing_module, "KEEPS_SECONDS", 0.5)
    one, two = await several.start("one"), await several.start("two")
    tx, asked, answers = transfer(ALICE, 0), asyncio.Event(), asyncio.Event()

    async def refuse_late(transactions: list[bytes]) -> list[Answer]:
        asked.set()
        await answers.wait()
        return await refuse(transactions)

    monkeypatch.setattr(one.service.signer, "sign", refuse_late)
    first = asyncio.ensure_future(submit(one, tx))
    await asked.wait()
    await renewed(one)
    await renewed(one)
    assert await submit(two, tx) == ["relayer busy"]
    monkeypatch.setattr(sharing_module, "KEEPS_SECONDS", 20.0)
    again = asyncio.ensure_future(submit(two, tx))
    await until(lambda: bool(two.service.lifecycle.inflight.entries()))
    answers.set()
    assert (await first, await again) == (["signer refused"], ["ok"])


async def test_who_takes_the_seat_of_one_without_a_disk_finds_nothing(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed as soon as it has told that it is not ready: nobody runs that later."""
    one = await several.start("one", claims_seats=1)
    with monkeypatch.context() as patch:
        patch.setattr(writer_of(one), "_try", lambda _: _DiskError("full"))
        assert await submit(one, transfer(ALICE, 0)) == ["not ready"]
        await one.die()
    two = await several.start("two", claims_seats=1)
    assert not two.service.lifecycle.inflight.entries()


async def test_what_may_have_come_through_is_not_told_as_refused(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a claim was lost, and another has the seat by then and runs it: so is what nobody knows told."""
    one = await several.start("one", claims_seats=1)
    sharing, claim = one.service.sharing, Seats.claim_charged
    assert sharing is not None
    seats, ask = sharing._seats, sharing._seats._db.ask

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    async def unheard(self: Seats, **asked: Any) -> Made:
        made = await claim(self, **asked)
        if self is not seats:
            return made
        seats._db.ask = away  # type: ignore[method-assign]
        raise Unavailable("its answer is lost")

    monkeypatch.setattr(Seats, "claim_charged", unheard)
    late = asyncio.ensure_future(relayed(one, transfer(ALICE, 0)))
    two = await several.start("two", claims_seats=1)
    seats._db.ask = ask  # type: ignore[method-assign]
    assert await late == reasons.IN_DOUBT
    (entry,) = two.service.lifecycle.inflight.entries()
    assert entry.sending and await submit(two, transfer(ALICE, 0)) == ["ok"]


async def test_what_was_claimed_before_it_was_asked_again_is_not_told_as_refused(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nonce beside it was another's, who has let go by the time it is asked, and then the seat is lost: who has it
    next runs what the first statement claimed."""
    one = await several.start("one", claims_seats=1)
    claim = Seats.claim_charged

    async def lost(*_: Any, **__: Any) -> Made:
        raise SeatError("seat 0 was taken over by another relayer")

    async def most(self: Seats, **asked: Any) -> Made:
        await claim(self, **asked)
        monkeypatch.setattr(Seats, "claim_charged", lost)
        return Made(False, frozenset())

    async def nobodys(*_: Any) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(Seats, "claim_charged", most)
    monkeypatch.setattr(Seats, "whose", nobodys)
    assert await relayed(one, transfer(ALICE, 0)) == reasons.IN_DOUBT
    monkeypatch.undo()
    await one.die()
    two = await several.start("two", claims_seats=1)
    (entry,) = two.service.lifecycle.inflight.entries()
    assert entry.sending


async def test_what_may_not_have_been_let_go_of_is_not_told_as_refused(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk failed, and it was killed before the server heard so: who has the seat next runs it."""
    one = await several.start("one", claims_seats=1)
    sharing = one.service.sharing
    assert sharing is not None

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    take = sharing.take

    async def taken(*asked: Any) -> None:
        await take(*asked)
        monkeypatch.setattr(writer_of(one), "_try", lambda _: _DiskError("full"))
        monkeypatch.setattr(sharing._seats, "renew", away)

    monkeypatch.setattr(sharing, "take", taken)
    late = asyncio.ensure_future(relayed(one, transfer(ALICE, 0)))
    await until(lambda: one.service.journal.failed is not None)
    await one.die()
    assert await late == reasons.IN_DOUBT
    monkeypatch.undo()
    two = await several.start("two", claims_seats=1)
    (entry,) = two.service.lifecycle.inflight.entries()
    assert entry.sending


async def refuse(transactions: list[bytes]) -> list[Answer]:
    """A signing process that finds something in everything."""
    return [Answer(refusal="no") for _ in transactions]


async def refused_unheard(relayer: Relayer, monkeypatch: pytest.MonkeyPatch, tx: Any) -> Any:
    """What a relayer answers that its signing process refuses, and that is killed before the server hears of it."""
    sharing = relayer.service.sharing
    assert sharing is not None and relayer.service.signer is not None

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    async def refuse_alone(transactions: list[bytes]) -> list[Answer]:
        monkeypatch.setattr(sharing._seats, "renew", away)
        return await refuse(transactions)

    monkeypatch.setattr(relayer.service.signer, "sign", refuse_alone)
    late = asyncio.ensure_future(relayed(relayer, tx))
    await until(lambda: sharing.failed is not None)
    await relayer.die()
    monkeypatch.undo()
    return await late


async def test_what_was_refused_is_run_by_nobody(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed as soon as it has told that its signing process refused: who has the seat next finds nothing."""
    one = await several.start("one", claims_seats=1)
    monkeypatch.setattr(one.service.signer, "sign", refuse)
    assert await submit(one, transfer(ALICE, 0)) == ["signer refused"]
    await one.die()
    two = await several.start("two", claims_seats=1)
    assert not two.service.lifecycle.inflight.entries()
    assert await submit(two, transfer(ALICE, 0, gas_limit=200_000)) == ["ok"]


async def test_what_was_refused_unheard_is_in_doubt(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has the seat next runs it: who asked was not told that it is refused, and its first holder follows it, too,
    when it is back."""
    one = await several.start("one", claims_seats=1)
    told: list[Any] = []
    kept: list[bytes] = []
    one.service.lifecycle.on_refused = told.append
    monkeypatch.setattr(one.service.lifecycle.fates, "_keep", lambda fate: kept.append(fate.client_hash))
    tx = transfer(ALICE, 0)
    assert await refused_unheard(one, monkeypatch, tx) == reasons.IN_DOUBT
    assert not told and client_hash(tx) not in kept
    for name in ("two", "one"):
        relayer = await several.start(name, claims_seats=1)
        (entry,) = relayer.service.lifecycle.inflight.entries()
        assert entry.client_hash == client_hash(tx) and entry.sending
        assert relayer.service.lifecycle.sponsor.budgets.at_risk(KEY) == FEE
        await relayer.die()


async def test_what_was_refused_unheard_is_let_go_of_by_who_refused_it(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else had its seat meanwhile: its nonce is free for other bytes."""
    one = await several.start("one", claims_seats=1)
    assert await refused_unheard(one, monkeypatch, transfer(ALICE, 0)) == reasons.IN_DOUBT
    one = await several.start("one", claims_seats=1)
    assert not one.service.lifecycle.inflight.entries()
    assert await submit(one, transfer(ALICE, 0, gas_limit=200_000)) == ["ok"]


async def with_an_older_copy(several: Several, postgres: Postgres) -> None:
    """A folder `one` that had its seat twice, and `old`, which is its copy of before the second time: what was claimed
    then is over and older than a day."""
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    await one.end()
    shutil.copytree(several.folder / "one", several.folder / "old")
    one = await several.start("one", claims_seats=1)
    assert await submit(one, *(transfer(ALICE, nonce) for nonce in range(1, 6))) == ["ok"] * 5
    one.service.lifecycle.nonce_moved(ALICE.public, 6)
    await one.end()
    days_later(several, postgres)
    postgres.sql(
        f'UPDATE "{several.folder.name}".claims SET ended_ms = ended_ms - 172800000 WHERE ended_ms IS NOT NULL'
    )
    several.world.api.set(ALICE.public, 6, 10**18)


async def test_row_10_of_a_folder_and_its_older_copy_in_turns_one_payload_is_signed(
    several: Several, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy signed what the folder had refused unheard: back again, that has more reservations, and does not let go
    of it as if nobody had been there."""
    await with_an_older_copy(several, postgres)
    one = await several.start("one", claims_seats=1)
    assert await refused_unheard(one, monkeypatch, transfer(ALICE, 6)) == reasons.IN_DOUBT
    old = await several.start("old", claims_seats=1)
    (entry,) = old.service.lifecycle.inflight.entries()
    assert entry.tx.nonce == 6 and entry.sending
    await old.die()
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 6, gas_limit=200_000)) == ["conflicting transaction"]
    (again,) = one.service.lifecycle.inflight.entries()
    assert again.tx == entry.tx, "with the signature of the copy"


async def test_row_1_what_an_older_copy_spent_is_counted_by_the_folder(several: Several, postgres: Postgres) -> None:
    """Which comes back with more reservations than the copy had, and reads what was claimed meanwhile all the same."""
    await with_an_older_copy(several, postgres)
    old = await several.start("old", claims_seats=1)
    assert await submit(old, transfer(ALICE, 6)) == ["ok"]
    (entry,) = old.service.lifecycle.inflight.entries()
    old.service.lifecycle.included(entry.chain_hash, None)
    await old.end()
    one = await several.start("one", claims_seats=1)
    now = asyncio.get_running_loop().time()
    assert one.service.lifecycle.sponsor.budgets.standing(KEY, now).spent_day == FEE


async def test_who_comes_back_knows_all_again_also_where_two_seats_had_its_folder(
    several: Several, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has read what was claimed for the seat that it has it lets go again of what it refused unheard there."""
    one = await several.start("one", claims_seats=2)
    await one.end()
    seats = f'"{several.folder.name}".seats'
    postgres.sql(f"UPDATE {seats} SET folder = (SELECT folder FROM {seats} WHERE seat = 0) WHERE seat = 1")
    one = await several.start("one", claims_seats=2)
    assert await refused_unheard(one, monkeypatch, transfer(ALICE, 0)) == reasons.IN_DOUBT
    one = await several.start("one", claims_seats=2)
    assert not one.service.lifecycle.inflight.entries()


def refusing_first(relayer: Relayer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have its signing process refuse the first of each question, and the claims' server away from the first one on;
    called, the server is back."""
    sharing, signer = relayer.service.sharing, relayer.service.signer
    assert sharing is not None and signer is not None
    sign, renew = signer.sign, sharing._seats.renew

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    async def refuse_first(transactions: list[bytes]) -> list[Answer]:
        monkeypatch.setattr(sharing._seats, "renew", away)
        return [Answer(refusal="no"), *(await sign(transactions))[1:]]

    monkeypatch.setattr(signer, "sign", refuse_first)
    return lambda: monkeypatch.setattr(sharing._seats, "renew", renew)


async def test_what_is_signed_beside_what_is_refused_is_sent_at_once(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the answer to what was refused waits for the claims' server: so long as that is away nothing else does."""
    one = await several.start("one", claims_seats=1)
    is_back = refusing_first(one, monkeypatch)
    late = asyncio.ensure_future(submit(one, *(transfer(ALICE, nonce) for nonce in range(3))))
    sent = await several.world.api.wait_submitted(2)
    assert {item["nonce"] for item in sent} == {1, 2} and not late.done()
    is_back()
    assert await late == ["signer refused", "ok", "ok"]


async def test_who_was_signed_for_beside_what_is_refused_is_answered_at_once(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short submissions go together: those of other clients do not wait for the claims' server with the refused one."""
    one = await several.start("one", claims_seats=1)
    pairs = [ALICE, wallet(1, 7)]
    several.world.api.set(pairs[1].public, 0, 10**18)
    for pair in pairs:
        await one.service.accounts.know(pair.public)
    is_back = refusing_first(one, monkeypatch)
    submitter = one.service.submitter
    group = [(Batch(Origin("relay", f"ip{at}"), 1, None), raw(transfer(pair, 0))) for at, pair in enumerate(pairs)]
    assert not await submitter.take_together(group)
    async with asyncio.timeout(10):
        (refused,) = await submitter.finish_together([batch for batch, _ in group])
    (other,) = [batch for batch, _ in group if batch is not refused]
    assert isinstance(other.answers()[0], Accepted)
    late = asyncio.ensure_future(submitter.finish(refused))
    is_back()
    assert (await late) == [reasons.SIGNER_REFUSED.but("no")]


async def test_who_waits_long_for_what_is_refused_is_told_that_it_is_in_doubt(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claims' server stays away: whether somebody finds what was refused is not known, and nobody waits longer."""
    monkeypatch.setattr(finisher, "TOLD_SECONDS", 0.1)
    one = await several.start("one", claims_seats=1)
    refusing_first(one, monkeypatch)
    assert await relayed(one, transfer(ALICE, 0)) == reasons.IN_DOUBT


async def refused_while_away(relayer: Relayer, monkeypatch: pytest.MonkeyPatch, tx: Any) -> None:
    """Its signing process refuses what it has claimed when the claims' server has gone away, which is back after the
    answer, and so is a signing process that refuses nothing."""
    sharing, signer = relayer.service.sharing, relayer.service.signer
    assert sharing is not None and signer is not None

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    async def is_away(yes: bool) -> None:
        await until(lambda: (sharing.failed is not None) == yes)

    with monkeypatch.context() as patch:

        async def refuse_away(transactions: list[bytes]) -> list[Answer]:
            patch.setattr(sharing._seats, "renew", away)
            await is_away(True)
            return await refuse(transactions)

        patch.setattr(signer, "sign", refuse_away)
        assert await relayed(relayer, tx) == reasons.IN_DOUBT
    await is_away(False)


async def test_who_listens_hears_what_became_of_what_was_in_doubt(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused while the claims' server was away: that nobody will run it is told when the server is back."""
    one = await several.start("one", claims_seats=1)
    told: list[Any] = []
    one.service.lifecycle.on_refused = told.append
    await refused_while_away(one, monkeypatch, transfer(ALICE, 0))
    await until(lambda: bool(told))
    assert [(entry.client_hash, entry.refusal) for entry in told] == [
        (client_hash(transfer(ALICE, 0)), reasons.SIGNER_REFUSED.but("no"))
    ]


async def test_what_was_in_doubt_and_is_accepted_is_not_told_as_refused(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes, sent again as they were to be, have been signed before that could be told."""
    one = await several.start("one", claims_seats=1)
    told: list[Any] = []
    one.service.lifecycle.on_refused = told.append
    assert one.service.sharing is not None
    one.service.sharing.when_back(lambda: None)
    await refused_while_away(one, monkeypatch, transfer(ALICE, 0))
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    one.service.cosigner.tell_doubted()
    await one.service.cosigner.close()
    assert not told
