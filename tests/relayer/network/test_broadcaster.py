"""Sending again and again, for as long as a transaction lives, whatever becomes of the wall clock; the ways it goes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator

import pytest
from relayer_support import NETWORK, transfer, wallet

from millrace.chain.gossip import MAX_BATCH, unwrap_transactions, wrap_transactions
from millrace.chain.network import profile
from millrace.chain.transaction import Transaction, client_hash, from_proto, to_proto
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.network import broadcaster
from millrace.relayer.network.broadcaster import Broadcaster
from millrace.relayer.network.chain_api import Taken


class Air:
    """A network that takes everything, and the two clocks."""

    def __init__(self) -> None:
        self.wall, self.steady = time.time(), 50.0
        self.wanted = True
        self.sent = 0
        self.submitted: list[tuple[bytes, int]] = []
        """What the chain API was given, …"""
        self.answers: dict[tuple[bytes, int], asyncio.Future[Taken]] = {}
        """… and what it is to answer."""
        self.expired: list[Entry] = []
        self.peers = 1
        self.late: asyncio.Future[None] | None = None
        """While it is there gossip answers nothing before it is done."""
        self.told: list[list[int]] = []
        """Nonces of each batch that was published."""
        self.defects: list[int] = []
        """Nonces whose batches cannot be published."""
        self.broadcaster = Broadcaster(
            NETWORK, self._publish, self._submit,
            is_wanted=lambda entry: self.wanted and entry not in self.expired,
            on_expired=self.expired.append,
            regossip=15.0, lifetime=600.0, clock=lambda: self.steady,
        )  # fmt: skip

    async def _publish(self, topic: str, data: bytes) -> int:
        self.sent += 1
        nonces = [from_proto(proto).nonce for proto in unwrap_transactions(data, int(self.wall))]
        if set(nonces) & set(self.defects):
            raise ValueError("a defect")
        self.told.append(nonces)
        if self.late is not None:
            await self.late
        return self.peers

    async def _submit(self, tx: Transaction) -> Taken:
        self.submitted.append((tx.sender, tx.nonce))
        answer = self.answers[tx.sender, tx.nonce] = asyncio.get_running_loop().create_future()
        return await answer

    def entry(self, age: float = 0.0, *, sender: int = 1, nonce: int = 0, data: bytes = b"") -> Entry:
        tx = transfer(wallet(sender), nonce=nonce, data=data)
        created = int((self.wall - age) * 1000)
        return Entry(tx, to_proto(tx), client_hash(tx), "relay", 1, 1, 100, created, state="signed")

    async def tick(self, seconds: float) -> None:
        """Some time later: what is due is sent."""
        self.steady += seconds
        self.wall += seconds
        self.broadcaster.gossip.look()
        self.broadcaster.send_due()
        for _ in range(20):  # its worker takes fewer steps than that, and waits for nothing
            await asyncio.sleep(0)


@pytest.fixture
async def air(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Air]:
    made = Air()
    monkeypatch.setattr(broadcaster, "LINGER_SECONDS", 0)
    monkeypatch.setattr(broadcaster, "BATCH_SECONDS", 0)
    monkeypatch.setattr(broadcaster, "BYTES_PER_SECOND", math.inf)
    monkeypatch.setattr(broadcaster.time, "time", lambda: made.wall)
    try:
        yield made
    finally:
        await made.broadcaster.stop()


@pytest.mark.parametrize("jump", [-86_400.0, -1.0, 0.0, 3_600.0, 86_400.0 * 365])
async def test_row_44_the_wall_clock_is_set(air: Air, jump: float) -> None:
    """A lifetime is as long as it is: setting the clock forward ends nothing early, backward keeps nothing longer."""
    air.broadcaster.send(air.entry())
    air.wall += jump
    for _ in range(29):
        await air.tick(20.0)
    assert air.sent >= 2 and not air.expired
    await air.tick(40.0)
    assert len(air.expired) == 1
    assert not air.broadcaster._until and not air.broadcaster._pauses and not air.broadcaster._due


async def test_row_44_what_was_taken_over_has_the_rest_of_its_lifetime(air: Air) -> None:
    """After a restart its age counts; one from the future is as old as it is now."""
    old, future = air.entry(age=500.0), air.entry(age=-3_600.0)
    for entry, before, after in ((old, 90.0, 20.0), (future, 590.0, 20.0)):
        air.expired.clear()
        air.broadcaster.send(entry)
        await air.tick(before)
        assert not air.expired
        await air.tick(after)
        assert air.expired == [entry]


async def test_what_is_not_wanted_is_forgotten(air: Air) -> None:
    """An entry that ended before it was sent, or between two sends, leaves nothing behind."""
    air.wanted = False
    air.broadcaster.send(air.entry())
    await air.tick(1.0)
    assert not air.broadcaster._until and not air.sent
    air.wanted = True
    air.broadcaster.send(air.entry())
    await air.tick(1.0)
    air.wanted = False
    await air.tick(20.0)
    assert not air.broadcaster._until and not air.broadcaster._due and not air.expired


async def test_what_was_given_up_and_begins_anew(air: Air) -> None:
    """A transaction sent anew after its sending was given up goes out at the usual pace, for a whole lifetime."""
    entry = air.entry()
    air.broadcaster.send(entry)
    await air.tick(1.0)
    for _ in range(3):  # given up and sent anew within a moment, several times
        air.wanted = False
        await air.tick(1.0)
        air.wanted, entry.created_ms = True, int(air.wall * 1000)
        air.broadcaster.send(entry)
        await air.tick(1.0)
    air.told.clear()
    for _ in range(10):
        await air.tick(15.0)
    assert air.told == [[0]] * 10, "not once for each beginning"
    for _ in range(29):
        await air.tick(15.0)
    assert air.expired == []
    for _ in range(2):
        await air.tick(15.0)
    assert air.expired == [entry]


async def test_a_slow_chain_api_is_asked_for_several_senders_at_once(air: Air) -> None:
    """Without a gossip peer no sender waits for another's answer, and later batches do not wait for earlier ones."""
    air.peers = 0
    entries = [air.entry(sender=sender, nonce=nonce) for sender in (1, 2) for nonce in (0, 1)]
    for entry in entries:
        air.broadcaster.send(entry)
    await air.tick(0.0)
    late = air.entry(sender=0)
    air.broadcaster.send(late)
    await air.tick(0.0)
    assert air.submitted == [(entry.tx.sender, entry.tx.nonce) for entry in (entries[0], entries[2], late)]
    assert air.broadcaster.queued == 2
    air.answers[air.submitted[0]].set_result("taken")
    await air.tick(0.0)
    assert air.submitted[3:] == [(entries[1].tx.sender, 1)] and air.broadcaster.sent_to_api == 1


async def test_what_waits_for_the_chain_api_goes_to_a_peer_that_is_found(air: Air) -> None:
    """As soon as a peer takes something, everything that still waits is gossiped."""
    air.peers = 0
    for nonce in range(3):
        air.broadcaster.send(air.entry(nonce=nonce))
    await air.tick(0.0)
    assert len(air.submitted) == 1 and air.broadcaster.queued == 2
    air.peers = 1
    air.broadcaster.send(air.entry(sender=2))
    await air.tick(0.0)
    assert air.broadcaster.sent == 3 and air.broadcaster.queued == 0 and len(air.submitted) == 1


async def test_what_ends_while_it_waits_is_not_given_to_the_chain_api(air: Air) -> None:
    """An entry that is over when its turn comes is forgotten."""
    air.peers = 0
    for nonce in range(2):
        air.broadcaster.send(air.entry(nonce=nonce))
    await air.tick(0.0)
    air.wanted = False
    air.answers[air.submitted[0]].set_result("taken")
    await air.tick(0.0)
    await air.tick(20.0)
    assert len(air.submitted) == 1 and not air.broadcaster._until and not air.broadcaster._due


async def test_what_the_chain_api_takes_later_is_tried_again_with_what_follows(air: Air) -> None:
    """A nonce that was not taken is offered again a second later, its sender's next one behind it."""
    air.peers = 0
    for nonce in range(2):
        air.broadcaster.send(air.entry(nonce=nonce))
    await air.tick(0.0)
    air.answers.popitem()[1].set_result("later")
    await air.tick(0.0)
    assert air.broadcaster.untaken == 2 and len(air.submitted) == 1
    await air.tick(1.0)
    air.answers.popitem()[1].set_result("taken")
    await air.tick(0.0)
    assert [nonce for _, nonce in air.submitted] == [0, 0, 1]


async def test_a_batch_that_cannot_be_sent_stops_no_other(air: Air) -> None:
    """Entries of a batch that fails are tried again, those of other batches are sent; each belongs to its own batch."""
    large = b"x" * (MAX_BATCH // 2)
    entries = [air.entry(nonce=nonce, data=large if nonce % 2 else b"") for nonce in range(6)]
    air.defects = [3]
    for entry in entries:
        air.broadcaster.send(entry)
    await air.tick(0.0)
    good = [nonce for batch in air.told for nonce in batch]
    failed = sorted({0, 1, 2, 3, 4, 5} - set(good))
    assert len(air.told) >= 2 and 3 in failed and air.broadcaster.sent == len(good)
    air.defects = []
    air.told.clear()
    await air.tick(1.0)
    assert sorted(nonce for batch in air.told for nonce in batch) == failed
    await air.tick(14.0)
    assert air.broadcaster.sent == 6 + len(good), "what was taken is sent again after its pause, not before"


async def test_what_nobody_takes_is_tried_after_growing_pauses(air: Air, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody takes it: again after 1, 2, 4, 8 and then every 15 s; once somebody took it the pauses begin anew."""
    alone = Broadcaster(
        NETWORK, air._publish, None, is_wanted=lambda entry: True, on_expired=air.expired.append,
        regossip=15.0, lifetime=600.0, clock=lambda: air.steady,
    )  # fmt: skip
    air.broadcaster, given = alone, air.broadcaster
    air.peers = 0
    alone.send(air.entry())
    await air.tick(0.0)
    for pause in (1.0, 2.0, 4.0, 8.0, 15.0, 15.0):
        before = air.sent
        await air.tick(pause - 0.5)
        assert air.sent == before
        await air.tick(0.5)
        assert air.sent == before + 1
    assert alone.untaken == 7 and alone.sent == 0
    air.peers = 1
    await air.tick(15.0)
    air.peers = 0
    await air.tick(15.0)
    before = air.sent
    await air.tick(1.0)
    assert air.sent == before + 1 and alone.sent == 1 and not caplog.records
    await alone.stop()
    air.broadcaster = given


async def test_batches_of_a_topic_leave_in_their_time(air: Air, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause a batch lingers for a moment, and whatever comes in the next 250 ms leaves together after them."""
    monkeypatch.setattr(broadcaster, "LINGER_SECONDS", 0.004)
    monkeypatch.setattr(broadcaster, "BATCH_SECONDS", 0.25)
    timers = Timers()
    monkeypatch.setattr(broadcaster.asyncio, "sleep", timers.sleep)
    for nonce in range(2):
        air.broadcaster.send(air.entry(nonce=nonce))
    assert await timers.next() == 0.004
    air.broadcaster.send(air.entry(nonce=2))
    timers.fire()
    assert await timers.next() == 0.25 and air.told == [[0, 1, 2]]
    for nonce in range(3, 5):
        air.broadcaster.send(air.entry(nonce=nonce))
    timers.fire()
    assert await timers.next() == 0.004 and len(air.told) == 1
    timers.fire()
    await timers.next()
    assert air.told == [[0, 1, 2], [3, 4]]


async def test_batches_of_several_topics_follow_each_other(air: Air, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch waits until a peer would be through with that of another topic: their work is not done at once."""
    monkeypatch.setattr(broadcaster, "BYTES_PER_SECOND", 1000)
    timers = Timers()
    monkeypatch.setattr(broadcaster.asyncio, "sleep", timers.sleep)
    first, second = air.entry(nonce=0, data=bytes(3000)), air.entry(nonce=1)
    second.receiver_shard = 2
    air.broadcaster.send(first)
    air.broadcaster.send(second)
    assert [await timers.next() for _ in range(2)] == [0, 0]
    timers.fire()
    through = len(wrap_transactions([first.proto], int(air.wall))) / 1000
    assert sorted([await timers.next() for _ in range(2)]) == [0, pytest.approx(through)] and air.told == [[0]]
    air.steady += 2.0
    timers.fire()
    assert await timers.next() == pytest.approx(through - 2.0) and air.told == [[0]]
    air.steady += through
    timers.fire()
    await timers.next()
    assert air.told == [[0], [1]]


async def test_what_the_chain_api_never_takes_is_not_pressed_on_it(air: Air) -> None:
    """It counts as untaken, the sender's next one follows, and it is sent again no earlier than what was taken."""
    air.peers = 0
    for nonce in range(2):
        air.broadcaster.send(air.entry(nonce=nonce))
    await air.tick(0.0)
    air.answers.popitem()[1].set_result("never")
    await air.tick(0.0)
    assert [nonce for _, nonce in air.submitted] == [0, 1]
    assert air.broadcaster.untaken == 1 and air.broadcaster.sent_to_api == 0
    air.answers.popitem()[1].set_result("taken")
    await air.tick(0.0)
    await air.tick(14.0)
    assert len(air.submitted) == 2 and air.broadcaster.untaken == 1 and air.broadcaster.sent_to_api == 1
    air.peers = 1
    await air.tick(1.0)
    assert air.told[-1] == [0, 1]


@pytest.mark.parametrize(("name", "batches"), [("devnet", [[0, 1, 2], [3]]), ("documented", [[0], [1], [2], [3]])])
async def test_what_shares_a_topic_shares_a_batch(air: Air, name: str, batches: list[list[int]]) -> None:
    """Transactions of one topic leave together wherever they go; those of two sender shards never do."""
    there = Broadcaster(
        profile(name), air._publish, None, is_wanted=lambda entry: True, on_expired=air.expired.append,
        regossip=15.0, lifetime=600.0, clock=lambda: air.steady,
    )  # fmt: skip
    for nonce, (sender, receiver) in enumerate([(1, 0), (1, 1), (1, 2), (2, 1)]):
        entry = air.entry(nonce=nonce)
        entry.sender_shard, entry.receiver_shard = sender, receiver
        there.send(entry)
    await air.tick(0.0)
    assert sorted(air.told) == batches
    await there.stop()


async def test_after_its_end_nothing_is_handed_over(air: Air) -> None:
    """To stop ends what is under way to the chain API as well, and what waits there stays where it is."""
    air.peers = 0
    for nonce in range(2):
        air.broadcaster.send(air.entry(nonce=nonce))
    await air.tick(0.0)
    await air.broadcaster.stop()
    assert [answer.cancelled() for answer in air.answers.values()] == [True] and len(air.submitted) == 1


class Timers:
    """In place of `asyncio.sleep`: pauses last until they are told to end."""

    def __init__(self) -> None:
        self._pauses: asyncio.Queue[float] = asyncio.Queue()
        self._end = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self._pauses.put_nowait(seconds)
        await self._end.wait()
        self._end.clear()

    async def next(self) -> float:
        """The next pause somebody takes."""
        async with asyncio.timeout(5):
            return await self._pauses.get()

    def fire(self) -> None:
        self._end.set()


async def test_a_silent_gossip_process_stops_nothing(air: Air) -> None:
    """Gossip that answers nothing for 2 s is not waited for: all goes to the chain API in the order of nonces."""
    air.late = asyncio.get_running_loop().create_future()
    first, second, third = (air.entry(nonce=nonce) for nonce in range(3))
    second.receiver_shard = 2  # a topic of its own
    air.broadcaster.send(second)
    await air.tick(0.0)
    air.broadcaster.send(first)
    await air.tick(1.9)
    assert air.told == [[1], [0]] and air.submitted == []
    await air.tick(0.1)
    sender = first.tx.sender
    assert air.submitted == [(sender, 0)], "the lower nonce first, whichever was published first"
    air.broadcaster.send(third)
    air.answers[sender, 0].set_result("taken")
    await air.tick(1.0)
    air.answers[sender, 1].set_result("taken")
    await air.tick(1.0)
    assert air.submitted == [(sender, 0), (sender, 1), (sender, 2)]
    assert air.told == [[1], [0]], "it is asked for nothing more"
    assert air.broadcaster.gossip.silences == 1


async def test_gossip_that_answers_again_takes_what_still_waits(air: Air) -> None:
    """Any answer ends the silence: what waits for the chain API goes out by gossip, and so does what follows."""
    air.late = asyncio.get_running_loop().create_future()
    entries = [air.entry(nonce=nonce) for nonce in range(4)]
    for entry in entries[:3]:
        air.broadcaster.send(entry)
    await air.tick(0.0)
    await air.tick(2.0)
    assert air.broadcaster.gossip.is_silent and len(air.submitted) == 1
    air.late.set_result(None)
    await air.tick(0.0)
    assert not air.broadcaster.gossip.is_silent
    assert air.told == [[0, 1, 2], [1, 2]], "but for what the chain API is being given"
    air.broadcaster.send(entries[3])
    await air.tick(0.0)
    assert air.told[-1] == [3]
    await air.tick(100.0)
    assert air.broadcaster.gossip.silences == 1, "with nothing under way there is nothing to wait for"


async def test_gossip_that_answers_slowly_is_not_silent(air: Air) -> None:
    """While one publish after the other is answered, however late each is, nothing goes another way."""
    for nonce in range(3):
        air.late = asyncio.get_running_loop().create_future()
        air.broadcaster.send(air.entry(nonce=nonce))
        await air.tick(0.0)
        await air.tick(1.5)
        air.late.set_result(None)
        await air.tick(0.4)
    assert air.submitted == [] and air.told == [[0], [1], [2]]


async def test_the_end_of_a_silent_process_is_an_answer(air: Air) -> None:
    """A process that is replaced has taken nothing: the chain API goes on, and the new process is asked."""
    air.late = asyncio.get_running_loop().create_future()
    air.broadcaster.send(air.entry(nonce=0))
    await air.tick(0.0)
    await air.tick(2.0)
    air.peers = 0
    air.late.set_result(None)
    await air.tick(0.0)
    assert len(air.submitted) == 1 and not air.broadcaster.gossip.is_silent
    air.peers = 1
    air.broadcaster.send(air.entry(sender=2, nonce=7))
    await air.tick(0.0)
    assert air.told == [[0], [7]]
