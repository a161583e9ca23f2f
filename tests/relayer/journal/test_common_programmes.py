"""Programmes that several relayers pay together: never over budget or count, and what costs less is given back."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import Counter
from typing import Any

import msgspec
import pytest
from relayer_support import transfer, wallet

from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.journal import common_programmes
from millrace.relayer.journal import seats as seats_module
from millrace.relayer.journal.common_programmes import FORGET_DAYS, Charged, Limits, Total
from millrace.relayer.journal.programmes import User
from millrace.relayer.journal.progress import Progress
from millrace.relayer.journal.seats import Seats
from millrace.relayer.journal.submissions import Record
from millrace.runtime.postgres import Connection
from relayer.journal.test_seats import A, B, Open, sat
from relayer.journal.test_seats import opened as opened
from servers.postgres import Postgres

SEED = int(os.environ.get("MILLRACE_SEED") or secrets.randbelow(10**9))
FEE = 10
LIMITS = {"launch": Limits(23 * FEE, 4), "other": Limits(9 * FEE, 2)}
USERS = 5
STEPS = 120


def record(user: int, nonce: int) -> Record:
    tx = transfer(wallet(1, user), nonce)
    return Record(
        tx.sender, nonce, client_hash(tx), None, to_proto(tx),
        "relay", tx.relayer, FEE, None, "ip", 1000, "journalled", True,
    )  # fmt: skip


def _claim_of(seats: Seats, item: Record, position: int) -> tuple[Any, ...]:
    return seats_module._CLAIM, *seats._claim_values([item], position, (), None, 0)


def charge(item: Record, programme: str = "launch") -> Charged:
    return Charged(programme, item.sender, item.nonce, item.client_hash, item.fee)


async def paid(seats: Seats, position: int, item: Record, limits: dict[str, Limits] = LIMITS) -> bool:
    """Claim something for a programme; whether that pays."""
    made = await seats.claim_charged([item], position, charges=[charge(item)], limits=limits)
    return not made.refused


async def totals(seats: Seats, **progress: object) -> dict[str, tuple[int, int]]:
    """What is heard of all programmes with a renewal."""
    renewed = await seats.renew(Progress(programmes=tuple(LIMITS), **progress))  # type: ignore[arg-type]
    return {total.programme: (total.spent, total.users) for total in renewed.programmes}


class Books:
    """What is to be counted, of claims of two seats."""

    def __init__(self, seats: list[Seats], chance: random.Random) -> None:
        self.seats, self.chance = seats, chance
        self.position = [0, 0]
        self.open: list[dict[tuple[bytes, int], tuple[Record, str]]] = [{}, {}]
        self.spent: Counter[str] = Counter()
        self.users: Counter[tuple[str, bytes]] = Counter()
        self.nonces: Counter[int] = Counter()
        self.again: list[tuple[int, int]] = []
        """Nonces that were let go, by user."""

    def _next(self) -> Record:
        if self.again and self.chance.random() < 0.5:
            return record(*self.again.pop())
        user = self.chance.randrange(USERS)
        self.nonces[user] += 1
        return record(user, self.nonces[user])

    async def claim(self, who: int) -> None:
        """Some are told again, as if the answer was lost: they are there already."""
        items = list({(item.sender, item.nonce): item for item in (self._next() for _ in range(3))}.values())
        items += [item for item, _ in list(self.open[who].values())[:1]]
        names = {item.client_hash: self.chance.choice([*LIMITS, ""]) for item in items}
        charges = [charge(item, names[item.client_hash]) for item in items if names[item.client_hash]]
        made = await self.seats[who].claim_charged(items, self.position[who], charges=charges, limits=LIMITS)
        self.position[who] += 1
        for item in items:
            name, programme = (item.sender, item.nonce), names[item.client_hash]
            if name in self.open[who]:
                assert name not in made.refused
                continue
            limit = LIMITS.get(programme)
            fits = limit is None or (
                self.spent[programme] + FEE <= limit.budget and self.users[programme, item.sender] < limit.per_user
            )
            assert fits == (name not in made.refused), f"seed {SEED}"
            if fits:
                self.open[who][name] = item, programme
                if programme:
                    self.spent[programme] += FEE
                    self.users[programme, item.sender] += 1

    async def tell(self, who: int, *, ends: bool) -> None:
        """End some claims, or let some go, at a renewal."""
        mine, progress = self.open[who], Progress(programmes=tuple(LIMITS))
        for name in self.chance.sample(list(mine), min(4, len(mine))):
            item, programme = mine.pop(name)
            cost = self.chance.choice((0, 3, FEE, FEE + 5)) if ends else 0
            if ends:
                progress.ends.append((*name, item.client_hash, "finished", str(cost), 2000))
            else:
                progress.void.append((*name, item.client_hash))
                self.again.append((next(u for u in range(USERS) if wallet(1, u).public == name[0]), name[1]))
            if programme:
                self.spent[programme] -= FEE - min(cost, FEE)
                self.users[programme, name[0]] -= not cost
        for _ in range(2):  # told twice it is the same
            renewed = await self.seats[who].renew(progress)
        users = Counter(programme for (programme, _), count in self.users.items() if count)
        for total in renewed.programmes:
            assert total == Total(total.programme, self.spent[total.programme], users[total.programme]), f"seed {SEED}"


async def test_counts_are_those_of_a_book_whatever_happens(opened: Open) -> None:
    """Two seats claim, tell again, end and let go in any order: what is refused is what a book of all would refuse."""
    seats = [opened(), opened()]
    for each, folder in zip(seats, (A, B), strict=True):
        await sat(each, folder)
    books = Books(seats, random.Random(SEED))
    for _ in range(STEPS):
        who = books.chance.randrange(2)
        if books.chance.random() < 0.6:
            await books.claim(who)
        else:
            await books.tell(who, ends=books.chance.random() < 0.6)
    while books.open[0] or books.open[1]:
        for who in range(2):
            await books.tell(who, ends=True)


async def test_two_who_claim_at_the_same_moment_do_not_pay_twice(opened: Open) -> None:
    """Of ten pairs of claims one each is paid, by a count that has room for one."""
    one, two = opened(), opened()
    positions = [await sat(one, A), await sat(two, B)]
    for user in range(10):
        answers = await asyncio.gather(
            *(
                paid(each, positions[place] + user, record(user, place), {"launch": Limits(100 * FEE, 1)})
                for place, each in enumerate((one, two))
            )
        )
        assert sorted(answers) == [False, True]
    assert (await totals(one))["launch"] == (10 * FEE, 10)


async def test_who_lost_its_seat_charges_nothing(opened: Open, postgres: Postgres) -> None:
    """A claim that is not made is not charged."""
    one = opened()
    position = await sat(one, A)
    postgres.sql(f'UPDATE "{one._schema}".seats SET position = position + 1')
    item = record(0, 0)
    made = await one._insert([item], position, (), None, [charge(item)], LIMITS, 0)
    assert made is None and (await totals(one)).get("launch") == (0, 0)


async def test_what_another_has_claimed_meanwhile_is_not_charged(opened: Open) -> None:
    """Whoever was first pays for it, or its programme; a claim of ours for other bytes is not there."""
    one, two = opened(), opened()
    position, _ = await sat(one, A), await sat(two, B)
    item = record(0, 0)
    assert await one.claim([item], position) and await paid(two, 0, record(1, 0))
    theirs = [charge(item), charge(msgspec.structs.replace(item, sender=wallet(1, 1).public))]

    async def late(connection: Connection) -> None:
        async with connection.transaction():
            await common_programmes.charge(connection, two.number, theirs)

    await two._db.ask(late)
    assert (await totals(two))["launch"] == (FEE, 1)


async def test_what_another_lets_go_just_now_is_not_ours_for_nothing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sees a nonce taken charges nothing for it, and does not get it either: asked again it is both."""
    one, two, item = opened(), opened(), record(0, 0)
    position, _ = await sat(one, A), await sat(two, B)
    assert await two.claim([item], 0)
    admit = common_programmes.admit

    async def slowly(*values: Any) -> Any:
        answer = await admit(*values)
        await two.renew(Progress(void=[(item.sender, item.nonce, item.client_hash)]))
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(common_programmes, "admit", slowly)
        made = await one.claim_charged([item], position, charges=[charge(item)], limits=LIMITS)
    assert not made.are_all_new and not made.refused
    assert not await one.whose([(item.sender, item.nonce)]) and (await totals(one))["launch"] == (0, 0)
    assert (await one.claim_charged([item], position + 1, charges=[charge(item)], limits=LIMITS)).are_all_new
    assert (await totals(one))["launch"] == (FEE, 1)


async def test_what_another_seat_has_by_now_is_charged_there(opened: Open) -> None:
    """A folder brings what may still run once more, in another seat than the one that has its claims: that one pays."""
    one, two, item = opened(), opened(), record(0, 0)
    await sat(one, A)
    await sat(two, B)
    assert await one.claim([item], 0)
    await two.bring_programmes(A, [], [charge(item)])
    assert (await totals(two))["launch"] == (FEE, 1)
    end = (item.sender, item.nonce, item.client_hash, "finished", "0", 2000)
    assert (await totals(one, ends=[end]))["launch"] == (0, 0)


async def test_what_is_paid_just_now_is_not_forgotten(opened: Open, postgres: Postgres) -> None:
    """A programme comes back to a policy: the first that it pays keeps what it has paid before."""
    one, two, item = opened(), opened(), record(0, 0)
    position, _ = await sat(one, A), await sat(two, B)
    await one.bring_programmes(A, [User("launch", item.sender, 3, 7, 0)], [])
    postgres.sql(f"UPDATE \"{one._schema}\".programmes SET named_at = now() - interval '{FORGET_DAYS + 1} days'")
    forgetting: list[asyncio.Task[None]] = []

    async def late(connection: Connection) -> None:
        async with connection.transaction():
            new, _ = await common_programmes.admit(connection, [charge(item)], LIMITS)
            assert await connection.fetchval(*_claim_of(one, item, position))
            forgetting.append(asyncio.create_task(two.forget(0)))
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not await connection.fetchval(waits):
                await asyncio.sleep(0)
            await common_programmes.charge(connection, one.number, new)

    await one._db.ask(late)
    await asyncio.gather(*forgetting)
    assert (await totals(one))["launch"] == (FEE + 7, 1)


async def test_a_programme_that_no_policy_names_is_forgotten(opened: Open, postgres: Postgres) -> None:
    """Not while a policy names it, nor while something may still run."""
    one, item = opened(), record(0, 0)
    assert await paid(one, await sat(one, A), item)
    long_ago = f"UPDATE \"{one._schema}\".programmes SET named_at = now() - interval '{FORGET_DAYS + 1} days'"
    postgres.sql(long_ago)
    await one.forget(0)
    assert (await totals(one))["launch"] == (FEE, 1), "it may still run"
    end = (item.sender, item.nonce, item.client_hash, "finished", str(FEE), 2000)
    assert (await totals(one, ends=[end]))["launch"] == (FEE, 1)
    await one.forget(0, ["launch"])
    assert (await totals(one))["launch"] == (FEE, 1), "a policy names it"
    postgres.sql(long_ago)
    await one.forget(0, ["other"])
    assert "launch" not in await totals(one)
    assert await paid(one, 1, record(0, 1), {"launch": Limits(FEE, 1)})


async def test_what_a_folder_paid_alone_is_added_once(opened: Open) -> None:
    """Asked again it is the same; another folder's is added to it."""
    one = opened()
    await sat(one, A)
    users = [User("launch", wallet(1, number).public, 2, 7, 0) for number in range(3)]
    for _ in range(2):
        await one.bring_programmes(A, users, [])
    assert (await totals(one))["launch"] == (21, 3)
    await one.bring_programmes(B, users[:1], [])
    assert (await totals(one))["launch"] == (28, 3)
    full = {"launch": Limits(10**6, 4)}
    assert not await paid(one, 0, record(0, 0), full) and await paid(one, 1, record(1, 0), full)
