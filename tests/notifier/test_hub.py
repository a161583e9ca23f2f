"""Delivery on /hub/ws: resume, gaps, the window, slow consumers, and what filters select."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from millrace.chain import address, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.hub_pb2 import Gap, SubscribeEvent
from millrace.notifier.journal.rows import JournalUnusable
from millrace.runtime import websocket

from .helpers import WAIT, Consumer, add_log, block_hash, event, notifier, peers, save_block
from .journal_files import damage
from .rules.test_filters import accepts  # the rule in its plainest form

ALICE, BOB = b"\x01" * 32, b"\x02" * 32


def gap_of(message: pb.WsMessage) -> tuple[int, int]:
    assert message.topic == "gap"
    gap = Gap.FromString(message.payload)
    return gap.first, gap.last


def counts(message: pb.WsMessage) -> bool:
    """Whether a gap's sequences are all that is missing."""
    return not Gap.FromString(message.payload).uncounted


async def test_gap_is_told(tmp_path: Path) -> None:
    """A consumer whose events have left the journal is told exactly which before the next one comes."""
    async with notifier(tmp_path, tail_bytes=1) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(10):
            await node.save(save_block(0, nonce))
        first = running.journal.oldest
    async with notifier(tmp_path, tail_bytes=1, retention_bytes=400) as running, peers(running) as connect:
        while running.journal.oldest == first:
            await asyncio.sleep(0.01)
        oldest = running.journal.oldest
        assert first < oldest <= running.journal.head
        for resume_after, gap in ((first, (first + 1, oldest - 1)), (0, (first, oldest - 1)), (5, (6, oldest - 1))):
            consumer = await connect.consumer()
            await consumer.subscribe(resume_after=resume_after)
            told = await consumer.event()
            assert gap_of(told) == gap
            assert counts(told) == (resume_after != 5), (
                "another journal had that sequence, and how many more nobody knows"
            )
            assert (await consumer.event()).counter == oldest


async def test_gap_when_the_whole_journal_is_gone(tmp_path: Path) -> None:
    """A consumer of a lost journal learns from the new one that everything between is gone."""
    async with notifier(tmp_path / "old") as running, peers(running) as connect:
        await (await connect.node()).save(save_block(0, 1))
        seen = running.journal.head
    async with notifier(tmp_path / "new") as running, peers(running) as connect:
        consumer = await connect.consumer()
        assert (await consumer.subscribe(resume_after=seen)).ok
        told = await consumer.event()
        assert gap_of(told) == (seen + 1, running.journal.head) and not counts(told)
        await (await connect.node()).save(save_block(0, 2))
        assert (await consumer.event()).counter == running.journal.head


async def test_window_holds_back_and_goes_on(tmp_path: Path) -> None:
    """At most a window of events is unacknowledged; a cumulative acknowledgement brings the next, in order."""
    async with notifier(tmp_path, window_frames=3) as running, peers(running) as connect:
        consumer, free = await connect.consumer(), await connect.consumer()
        consumer.auto_ack = False
        await consumer.subscribe()
        await free.subscribe()
        node = await connect.node()
        for nonce in range(8):
            await node.save(save_block(0, nonce))
        everything = await free.events(8)
        received = [await consumer.event() for _ in range(3)]
        assert consumer.inbox.empty()
        for acked in (2, 5, 8):
            consumer.ack(received[acked - 1].counter if acked <= len(received) else received[-1].counter)
            while len(received) < min(acked + 3, 8):
                received.append(await consumer.event())
        assert received == everything


async def test_slow_consumer_is_cut_alone(tmp_path: Path) -> None:
    """A consumer that never acknowledges is cut with 4008 and can resume; another does not notice."""
    async with notifier(tmp_path, window_frames=2, consumer_timeout=0.2) as running, peers(running) as connect:
        slow, good = await connect.consumer(), await connect.consumer()
        slow.auto_ack = False
        await slow.subscribe()
        await good.subscribe()
        node = await connect.node()
        for nonce in range(6):
            await node.save(save_block(0, nonce))
        everything = await good.events(6)
        kept = [await slow.event(), await slow.event()]
        await asyncio.wait_for(slow.ended.wait(), WAIT)
        assert slow.close_code == websocket.SLOW_READER
        again = await connect.consumer()
        await again.subscribe(resume_after=kept[-1].counter)
        assert kept + await again.events(4) == everything


async def test_consumer_that_does_not_read(tmp_path: Path) -> None:
    """A peer that reads nothing holds at most a socket's worth of frames, and is cut; the node never waits."""
    async with notifier(tmp_path, consumer_timeout=0.3, tail_bytes=4_000_000) as running, peers(running) as connect:
        deaf, good = await connect.consumer(), await connect.consumer()
        await deaf.subscribe()
        await good.subscribe()
        assert deaf._raw is not None
        deaf._raw.pause_reading()
        node = await connect.node()
        big = event(ALICE, "big", data=b"x" * 500_000)
        for nonce in range(30):
            await node.save(save_block(0, nonce, events=[big]))
            assert (await good.event()).counter == running.journal.head
            assert max(session.buffered for session in running.hub.sessions) < 2_000_000
        while len(running.hub.sessions) > 1:
            await asyncio.sleep(0.01)
        assert not good.ended.is_set()


async def test_answers_that_nobody_reads(tmp_path: Path) -> None:
    """A consumer that asks on and reads no answer is cut before they fill the memory, and counted; others go on."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        deaf = await connect.consumer()
        (session,) = running.hub.sessions
        assert deaf._raw is not None
        deaf._raw.pause_reading()
        wish = SubscribeEvent(subscription_id="i" * 200_000).SerializeToString()
        asked = pb.WsMessage(type=outport.PAYLOAD, topic="subscribe", payload=wish).SerializeToString()
        for _ in range(200):
            deaf.send_binary(asked)
        async with asyncio.timeout(WAIT):
            while running.hub.sessions:
                assert session.buffered < 3_000_000
                await asyncio.sleep(0.001)
        assert running.metrics.consumers_cut._value.get() == 1
        deaf._raw.resume_reading()
        assert (await (await connect.consumer()).subscribe()).ok


async def test_catching_up_while_events_flow(tmp_path: Path) -> None:
    """A consumer far behind gets every event once and in order while new ones keep coming."""
    async with notifier(tmp_path, tail_bytes=3000, window_frames=5) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(60):
            await node.save(save_block(0, nonce))
        consumer = await connect.consumer()
        await consumer.subscribe(resume_after=0)

        async def more() -> None:
            for nonce in range(60, 120):
                await node.save(save_block(0, nonce))

        flow = asyncio.create_task(more())
        received = await consumer.events(120)
        await flow
        first = running.journal.oldest
        assert [m.counter for m in received] == list(range(first, first + 120))
        await node.save(save_block(0, 120))
        assert (await consumer.event()).counter == first + 120


async def test_committed_but_not_yet_announced(tmp_path: Path) -> None:
    """An event that a late consumer could read from disk before it is announced to the hub comes once."""
    async with notifier(tmp_path, tail_bytes=1) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(3):
            await node.save(save_block(0, nonce))
        announce, held = running.hub.publish, []
        running.journal._on_committed = held.append
        await node.save(save_block(0, 3))
        consumer = await connect.consumer()
        await consumer.subscribe(resume_after=0)
        received = await consumer.events(3)
        running.journal._on_committed = announce
        announce(held[0])
        await node.save(save_block(0, 4))
        received += await consumer.events(2)
        first = running.journal.oldest
        assert [m.counter for m in received] == list(range(first, first + 5))


async def test_damaged_event_is_a_gap(tmp_path: Path) -> None:
    """An event of the journal that fails its checksum is told as a gap, and the ones around it are delivered."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(300):
            await node.save(save_block(0, nonce))
        first = running.journal.oldest
    damage(tmp_path, first + 1)
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe(resume_after=first - 1)
        before, gap, after = await consumer.events(3)
        assert (before.counter, gap_of(gap), after.counter) == (first, (first + 1, first + 1), first + 2)


@pytest.mark.parametrize(
    "error", [JournalUnusable("event 2 fails its checksum"), sqlite3.OperationalError("I/O error")]
)
@pytest.mark.parametrize("comes_from_elsewhere", [True, False])
async def test_what_cannot_be_read_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, comes_from_elsewhere: bool
) -> None:
    """A consumer whose events cannot be read is closed, may ask another notifier, and has all when it comes again."""
    async with notifier(tmp_path, tail_bytes=1) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(3):
            await node.save(save_block(0, nonce))
        first = running.journal.oldest
        place: dict[str, Any] = {"resume_after": first - 1}
        if comes_from_elsewhere:
            place |= {"resume_id": "0-none", "resume_journal": "another"}

        async def fails(*_: Any) -> Any:
            raise error

        consumer = await connect.consumer()
        with monkeypatch.context() as patch:
            patch.setattr(running.journal, "first_heard" if comes_from_elsewhere else "read", fails)
            await consumer.subscribe(**place)
            with pytest.raises(ConnectionError, match="1011"):
                await consumer.event()
        again = await connect.consumer()
        await again.subscribe(resume_after=first - 1)
        assert [message.counter for message in await again.events(3)] == [first, first + 1, first + 2]


async def test_filters_select_what_a_scan_selects(tmp_path: Path) -> None:
    """Consumers with random filters, live and resuming, get exactly the matching events of each block, in order."""
    rng = random.Random(3)
    people, names, topics = [ALICE, BOB], ["swap", "mint", "burn"], [b"", b"A", b"B"]

    def random_block(nonce: int) -> pb.OutportBlock:
        block = save_block(0, nonce)
        for log in range(rng.randrange(4)):
            events = [
                event(rng.choice(people), rng.choice(names), *rng.choices(topics, k=rng.randrange(3)))
                for _ in range(rng.randrange(1, 4))
            ]
            add_log(block, block_hash((nonce, log)).hex(), events)
        return block

    wishes: list[dict[str, object]] = [
        {"event_type": "Address", "address": address.encode(ALICE)},
        {"event_type": "AddressIdentifier", "address": address.encode(BOB), "identifier": "mint"},
        {"event_type": "Identifier", "identifier": "burn"},
        {"event_type": "Topics", "topics": ["", "B"]},
        {"event_type": "Topics", "address": address.encode(ALICE), "identifier": "swap", "topics": ["A"]},
    ]
    blocks = [random_block(nonce) for nonce in range(25)]
    async with notifier(tmp_path, tail_bytes=2000) as running, peers(running) as connect:
        node = await connect.node()
        live = [(await connect.consumer(), rng.sample(wishes, rng.randrange(1, 4))) for _ in range(6)]
        for consumer, mine in live:
            for number, wish in enumerate(mine):
                assert (await consumer.subscribe(subscription_id=str(number), **wish)).ok  # type: ignore[arg-type]
        for block in blocks:
            await node.save(block)
        for consumer, mine in live:
            expected = [wanted for block in blocks if (wanted := select(block, mine))]
            assert [logs_of(m) for m in await consumer.events(len(expected))] == expected
        for wish in wishes:
            late: Consumer = await connect.consumer()
            await late.subscribe(resume_after=0, **wish)  # type: ignore[arg-type]
            expected = [wanted for block in blocks if (wanted := select(block, [wish]))]
            assert [logs_of(m) for m in await late.events(len(expected))] == expected


Logs = list[tuple[str, list[bytes]]]


def select(block: pb.OutportBlock, wishes: list[dict[str, object]]) -> Logs:
    """The logs with an event that one of the wishes accepts, reduced to those events."""
    from millrace.notifier.rules.filters import EventKey, parse

    filters = [parse(SubscribeEvent(**wish)) for wish in wishes]  # type: ignore[arg-type]
    result = []
    for log in block.transactionPool.logs:
        kept = [
            e.SerializeToString()
            for e in log.log.events
            if any(accepts(f, EventKey(e.address, e.identifier, list(e.topics))) for f in filters)
        ]
        if kept:
            result.append((log.txHash, kept))
    return result


def logs_of(message: pb.WsMessage) -> Logs:
    block = pb.OutportBlock.FromString(message.payload)
    return [(log.txHash, [e.SerializeToString() for e in log.log.events]) for log in block.transactionPool.logs]


async def test_filters_hear_of_what_was_never_told(tmp_path: Path) -> None:
    """A block before which others are missing comes to each consumer with filters, live and late, with its mark."""
    wish = {"event_type": "Identifier", "identifier": "swap"}
    swap, other = [event(ALICE, "swap")], [event(ALICE, "burn"), event(BOB, "burn")]
    blocks = [save_block(0, nonce, events=events) for nonce, events in ((1, swap), (9, other), (10, other), (12, swap))]
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, live, late = await connect.node(), await connect.consumer(), await connect.consumer()
        await live.subscribe(**wish)
        for block in blocks:
            await node.save(block)
        await node.finalise(blocks[1])
        await late.subscribe(resume_after=0, **wish)  # type: ignore[arg-type]
        for consumer in (live, late):
            messages = await consumer.events(4)
            told = [pb.OutportBlock.FromString(m.payload) for m in messages[:3]]
            assert [block.blockData.headerHash for block in told] == [
                blocks[at].blockData.headerHash for at in (0, 1, 3)
            ]
            assert [m.marks for m in messages] == [0, 8, 8, 0]
            assert [len(logs_of(m)) for m in messages[:3]] == [1, 0, 1]
            assert messages[3].topic == outport.FINALIZED_BLOCK, "it was given this block"


async def test_finality_of_blocks_seen_before(tmp_path: Path) -> None:
    """A consumer with filters that resumes behind a block is told its end, since it may have had it."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        block = save_block(0, 1, events=[event(ALICE, "swap")])
        await node.save(block)
        consumer = await connect.consumer()
        await consumer.subscribe("Identifier", identifier="swap", resume_after=running.journal.head)
        await node.revert(block)
        assert (await consumer.event()).topic == outport.REVERT_INDEXED_BLOCK


@pytest.mark.parametrize(
    ("frame", "code"), [(b"\xff\xff", 1007), (b"\x18\x02\x2a\x04Nope", 1008), (b"x" * 300_000, 1009)]
)
async def test_violations_close_one_connection(tmp_path: Path, frame: bytes, code: int) -> None:
    """What is no part of the conversation closes that connection with its code; others go on."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        good, bad = await connect.consumer(), await connect.consumer()
        bad.send_binary(frame)
        await asyncio.wait_for(bad.ended.wait(), WAIT)
        assert bad.close_code == code
        assert (await good.subscribe()).ok


async def test_text_is_refused(tmp_path: Path) -> None:
    """A text frame closes with 1003."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        consumer.send_text(b"{}")
        await asyncio.wait_for(consumer.ended.wait(), WAIT)
        assert consumer.close_code == websocket.UNSUPPORTED_DATA


async def test_everything_settles(tmp_path: Path) -> None:
    """After all consumers have left, nothing of them is kept."""
    async with notifier(tmp_path) as running:
        async with peers(running) as connect:
            node = await connect.node()
            for number in range(10):
                consumer = await connect.consumer()
                await consumer.subscribe(
                    *(("All",) if number % 2 else ("Identifier",)),
                    **({} if number % 2 else {"identifier": f"x{number}"}),
                )
            await node.save(save_block(0, 1, events=[event(ALICE, "x2")]))
        while running.hub.sessions or running.ingest.nodes:
            await asyncio.sleep(0)
        hub = running.hub
        assert (len(hub._filters), hub._live_all, hub._live_filtered) == (0, {}, {})
        assert asyncio.all_tasks() - {asyncio.current_task()} == {running_pinger(asyncio.all_tasks())}


def running_pinger(tasks: set[asyncio.Task[object]]) -> asyncio.Task[object]:
    """The one task of the WebSocket server itself."""
    (pinger,) = [task for task in tasks if "ping" in repr(task.get_coro())]
    return pinger
