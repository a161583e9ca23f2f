"""Senders take turns with the chain API, each one's transactions go in the order of their nonces."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relayer_support import transfer, wallet

from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.network import api_queue
from millrace.relayer.network.api_queue import ApiQueue


def entry(sender: int, nonce: int) -> Entry:
    tx = msgspec.structs.replace(transfer(wallet(1)), sender=bytes([sender]) * 32, nonce=nonce)
    return Entry(tx, to_proto(tx), client_hash(tx), "relay", 1, 1, 100, 0, state="signed")


class Api:
    """A chain API whose answers come when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Entry] = []
        self.answers: dict[bytes, asyncio.Future[bool]] = {}
        self.postponed: list[Entry] = []
        self.queue = ApiQueue(self._submit, self.postponed.append)

    async def _submit(self, item: Entry) -> bool:
        self.asked.append(item)
        answer = self.answers[item.client_hash] = asyncio.get_running_loop().create_future()
        return await answer

    async def answer(self, item: Entry, *, may_follow: bool = True) -> None:
        self.answers.pop(item.client_hash).set_result(may_follow)
        await settle()

    def nonces(self, sender: int) -> list[int]:
        return [item.tx.nonce for item in self.asked if item.tx.sender[0] == sender]


async def settle() -> None:
    """Let every task do what it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made = Api()
    yield made
    await made.queue.stop()


async def test_one_of_a_sender_several_senders_at_once(api: Api) -> None:
    """While one sender's answer is awaited others' transactions go, its own next one does not."""
    first, second, other = entry(1, 0), entry(1, 1), entry(2, 7)
    api.queue.put([first, second, other])
    await settle()
    assert api.asked == [first, other] and len(api.queue) == 1
    await api.answer(other)
    assert api.asked == [first, other]
    await api.answer(first)
    assert api.asked == [first, other, second] and len(api.queue) == 0


async def test_at_most_so_many_at_once(api: Api) -> None:
    """The bound holds however many senders wait, and whoever waited first goes first when there is room."""
    items = [entry(sender, 0) for sender in range(api_queue.SENDERS_AT_ONCE + 3)]
    api.queue.put(items)
    await settle()
    assert api.asked == items[: api_queue.SENDERS_AT_ONCE] and len(api.queue) == 3
    await api.answer(items[5])
    assert api.asked == items[: api_queue.SENDERS_AT_ONCE + 1] and len(api.answers) == api_queue.SENDERS_AT_ONCE


async def test_a_sender_with_much_waits_for_its_turn(api: Api) -> None:
    """After each transaction a sender goes to the end of the line."""
    many = [entry(1, nonce) for nonce in range(3)]
    others = [entry(sender, 0) for sender in range(2, api_queue.SENDERS_AT_ONCE + 2)]
    api.queue.put([*many, *others])
    await settle()
    await api.answer(many[0])
    assert api.asked[-1] is others[-1] and api.nonces(1) == [0]
    await api.answer(others[0])
    assert api.nonces(1) == [0, 1]


async def test_what_comes_late_still_goes_in_the_order_of_nonces(api: Api) -> None:
    """A lower nonce that is tried again passes higher ones that wait."""
    api.queue.put([entry(1, 3), entry(1, 6), entry(1, 5)])
    await settle()
    api.queue.put([entry(1, 4)])
    while api.answers:
        await api.answer(api.asked[-1])
    assert api.nonces(1) == [3, 4, 5, 6]


async def test_what_was_not_taken_holds_up_the_later_nonces(api: Api) -> None:
    """They are put off with it rather than asked for one by one; other senders are not."""
    first, second, third, other = entry(1, 0), entry(1, 1), entry(1, 2), entry(2, 0)
    api.queue.put([first, third, second, other])
    await settle()
    await api.answer(first, may_follow=False)
    assert api.postponed == [second, third] and api.asked == [first, other] and len(api.queue) == 0
    api.queue.put([first])
    await settle()
    assert api.asked == [first, other, first]


async def test_a_defect_with_one_stops_no_other() -> None:
    """An exception puts off the sender's transactions, and the next sender has its turn."""
    postponed: list[Entry] = []
    asked: list[Entry] = []

    async def submit(item: Entry) -> bool:
        asked.append(item)
        if item.tx.sender[0] == 1:
            raise RuntimeError("a defect")
        return True

    queue = ApiQueue(submit, postponed.append)
    items = [entry(1, 0), entry(1, 1), entry(2, 0)]
    queue.put(items)
    await settle()
    assert asked == [items[0], items[2]] and postponed == items[:2] and len(queue) == 0


async def test_what_waits_can_be_taken_back(api: Api) -> None:
    """Everything but what is being handed over; the queue works on as before."""
    items = [entry(1, 1), entry(1, 0), entry(1, 2)]
    api.queue.put(items)
    await settle()
    assert api.asked == [items[1]]
    assert api.queue.take_back() == [items[0], items[2]] and len(api.queue) == 0
    await api.answer(items[1])
    api.queue.put([items[2]])
    await settle()
    assert api.asked == [items[1], items[2]]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=20), max_size=6), st.integers(0, 2**32)
)
def test_everything_is_asked_once_whatever_comes_when(groups: list[list[tuple[int, int]]], seed: int) -> None:
    """Whatever comes while whatever is answered: each is handed over or put off once, and nothing stays behind."""
    groups = [list(dict.fromkeys(group)) for group in groups]

    async def run() -> None:
        api, chance = Api(), random.Random(seed)
        put: list[Entry] = []
        for group in groups:
            items = [entry(*pair) for pair in group]
            put += items
            api.queue.put(items)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            for item in list(api.asked):
                if item.client_hash in api.answers and chance.random() < 0.5:
                    api.answers.pop(item.client_hash).set_result(chance.random() < 0.8)
        while True:
            await settle()
            if not api.answers:
                break
            api.answers.popitem()[1].set_result(True)
        assert sorted(map(id, [*api.asked, *api.postponed])) == sorted(map(id, put))
        assert len(api.queue) == 0 and not api.queue._lanes and not api.queue._turns and not api.queue._busy

    asyncio.run(run())
