"""Consumers of two notifiers that know nothing of each other: whoever dies, nothing is lost, and ids tell what is new.

Every node tells both. The notifiers are killed with SIGKILL at random moments, one at a time or both. One consumer
moves when its notifier dies, one is itself replaced again and again by another that knows its place only, and one is
the relayer's. `MILLRACE_FAILOVER_ROUNDS` sets the number of kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.chain import outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.app import Notifier
from millrace.relayer.events.hub_client import HubClient
from millrace.runtime.tasks import end_tasks
from millrace_client import Event, Hub, Missed
from millrace_client.places import Place

from .helpers import WAIT, Consumer, finalized, notifier, peers, save_block
from .test_torture import EXECUTED, SAVE, SEED, SHARDS, STRAIGHT, Torture, check_shard, executions_of, tale

ROUNDS = int(os.environ.get("MILLRACE_FAILOVER_ROUNDS", "10"))
Name = tuple[str, int, str]  # topic, shard, hash


def name_of(event_id: str) -> Name:
    topic, shard, subject, _ = event_id.split(":")
    return topic, int(shard), subject


def urls_of(*ports: int) -> list[str]:
    return [f"ws://127.0.0.1:{port}/hub/ws" for port in ports]


class Sink:
    """Takes what the relayer's client hands on."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.names: list[Name] = []
        self.gaps = 0

    def on_event(self, topic: str, payload: bytes, sequence: int, marks: int) -> tuple[str, ...]:
        self.numbers.append(sequence)
        if topic == outport.FINALIZED_BLOCK:
            mark = pb.FinalizedBlock.FromString(payload)
            self.names.append((topic, mark.shardID, mark.headerHash.hex()))
        elif topic == outport.REVERT_INDEXED_BLOCK:
            data = pb.BlockData.FromString(payload)
            self.names.append((topic, data.shardID, data.headerHash.hex()))
        else:
            block = pb.OutportBlock.FromString(payload)
            self.names.append((topic, block.shardID, block.blockData.headerHash.hex()))
        return ()

    def on_gap(self, first: int, last: int) -> None:
        """A notifier had heard of nothing of a shard yet."""
        self.gaps += 1


class Deaths:
    """Two notifiers, killed by turns."""

    def __init__(self, directory: Path) -> None:
        self.rng = random.Random(SEED)
        self.sides = [Torture(directory / side) for side in "ab"]
        self.kill: list[Callable[[], None]] = []
        self.all_told = False

    @property
    def acked(self) -> int:
        return sum(side.acked for side in self.sides)

    async def progress(self, goal: int) -> None:
        """Until nodes were answered so often in all, or all nodes of those who live are done."""
        seen, quiet = self.acked, 0
        while self.acked < goal and quiet < 300 and not self.all_told:
            await asyncio.sleep(0.01)
            quiet = 0 if self.acked > seen else quiet + 1
            seen = self.acked

    def start(self) -> None:
        self.kill = [side.start() for side in self.sides]

    async def run(self, total: int, begun: Callable[[], object]) -> None:
        """Kill; but who was told nothing has no place yet, and would not hear what is told while it moves."""
        while not begun():
            await asyncio.sleep(0.01)
        for number in range(ROUNDS):
            await self.progress(total * (number + 1) // (ROUNDS + 1) + self.rng.randrange(4))
            victims = self.rng.choice([[0], [1], [0], [1], [0, 1]])
            for victim in victims:
                await asyncio.to_thread(self.kill[victim])
            if len(victims) == 1:
                await self.progress(self.acked + self.rng.randrange(40))
            for victim in victims:
                self.kill[victim] = self.sides[victim].start()

    def end(self) -> None:
        for kill in self.kill:
            with contextlib.suppress(ValueError):  # it was killed and not started again
                kill()


async def staying(urls: list[str], ids: list[str]) -> None:
    """A consumer that lives on."""
    async with Hub(urls, resume_after=0) as hub:
        async for item in hub:
            # Something else is the word of a notifier that had heard of nothing of a shard yet.
            ids += [item.id] if isinstance(item, Event) else []


async def replaced(urls: list[str], ids: list[str], rng: random.Random) -> None:
    """Consumers one after the other, each at the place of the one before, with the notifiers in another order.

    Each hears something new before it ends: one that ended within what is told again would not get on.
    """
    place, known = "", set[str]()
    while True:
        rng.shuffle(urls)
        async with Hub(urls, resume_after=None if place else 0, place=place) as hub:
            end = len(known) + rng.randrange(1, 60)
            while len(known) < end:
                item = await anext(hub)
                if isinstance(item, Event):
                    ids.append(item.id)
                    known.add(item.id)
            if rng.random() < 0.7:  # else it was killed before it said that it had handled the last one
                await hub.handled()
            place = hub.place or place


@pytest.mark.timeout(600 + 20 * ROUNDS)
async def test_consumers_move(tmp_path: Path) -> None:
    """Nothing is lost in any order of deaths; nothing comes twice to who knows ids; numbers of the relayer ascend."""
    deaths = Deaths(tmp_path)
    tales = {shard: tale(shard, random.Random(SEED + shard)) for shard in SHARDS}
    streams = [(side, shard, n) for side in deaths.sides for shard in SHARDS for n in range(2)]
    urls = urls_of(*(side.port for side in deaths.sides))
    stayed: list[str] = []
    shuffled: list[str] = []
    sink = Sink()
    client = HubClient(urls, sink, None)
    subscribed = asyncio.Event()
    client.on_connection = subscribed.set
    total = 2 * 2 * sum(map(len, tales.values()))
    deaths.start()
    killer = asyncio.create_task(deaths.run(total, lambda: sink.names))
    readers = [
        asyncio.create_task(staying(urls, stayed)),
        asyncio.create_task(replaced(list(urls), shuffled, random.Random(SEED))),
        asyncio.create_task(client.run()),
    ]
    wanted = {(topic, shard, name.hex()) for shard in SHARDS for topic, name, _ in tales[shard]}
    wanted |= {
        (EXECUTED, shard, name)
        for shard in SHARDS
        for topic, _, payload in tales[shard]
        if topic == SAVE
        for name in executions_of(payload)
    }
    try:
        await first_of(subscribed.wait(), readers)
        async with asyncio.timeout(20 * WAIT + 3 * ROUNDS):
            await asyncio.gather(
                *(side.tell(tales[shard], random.Random(f"{SEED}{shard}{n}{side.port}")) for side, shard, n in streams)
            )
            deaths.all_told = True
            await killer
            await has_all("who stayed", lambda: map(name_of, stayed), wanted, readers)
            await has_all("who was replaced", lambda: map(name_of, shuffled), wanted, readers)
            await has_all("the relayer", lambda: iter(sink.names), wanted, readers)
    finally:
        for task in (killer, *readers):
            task.cancel()
        await asyncio.gather(killer, *readers, return_exceptions=True)
        await asyncio.to_thread(deaths.end)
    assert max(Counter(stayed).values()) == 1, "it left out what it knew"
    once = list(dict.fromkeys(shuffled))
    for ids in (stayed, once):
        check(ids, wanted)
    straight = Counter(name for name in sink.names if name[1] == STRAIGHT)
    assert max(straight.values()) == 1 and set(sink.names) == wanted
    assert sink.numbers == sorted(set(sink.numbers))
    told = [tuple(name_of(id_)) for id_ in stayed if id_.split(":")[1] == str(STRAIGHT)]
    blocks = [(topic, hash_) for topic, _, hash_ in told if topic != EXECUTED]
    check_shard(STRAIGHT, [(topic, name.hex()) for topic, name, _ in tales[STRAIGHT]], blocks)


async def first_of(wanted: Coroutine[Any, Any, Any], readers: list[asyncio.Task[Any]]) -> None:
    """Wait for something, but not for ever, nor when a reader has failed."""
    task = asyncio.create_task(wanted)
    done, _ = await asyncio.wait({task, *readers}, timeout=3 * WAIT, return_when=asyncio.FIRST_COMPLETED)
    for reader in done & set(readers):
        reader.result()
    assert task in done, "nothing came"


async def has_all(
    who: str, mine: Callable[[], Iterator[Name]], wanted: set[Name], readers: list[asyncio.Task[Any]]
) -> None:
    end = asyncio.get_running_loop().time() + 2 * WAIT
    while missing := wanted - set(mine()):
        for reader in readers:
            if reader.done():
                reader.result()
        assert asyncio.get_running_loop().time() < end, f"{who} lost {len(missing)} of {len(wanted)}: {missing}"
        await asyncio.sleep(0.05)


def check(ids: list[str], wanted: set[Name]) -> None:
    """Each event came, and each of the shard without reverts once."""
    names = [name_of(id_) for id_ in ids]
    assert set(names) == wanted, "lost or invented"
    assert max(Counter(name for name in names if name[1] == STRAIGHT).values()) == 1


async def test_places(tmp_path: Path) -> None:
    """A place counts everywhere: by the sequence where that is the event's, else by ids, each shard by itself."""
    async with (
        notifier(tmp_path / "a") as one,
        notifier(tmp_path / "b") as two,
        peers(one) as to_one,
        peers(two) as to_two,
    ):
        first, second = await to_one.node(), await to_two.node()
        for nonce in range(300):
            await second.save(save_block(1, nonce))  # long before the other one hears of any
        for nonce in range(300):
            for node in (first, second):
                await node.save(save_block(0, nonce))
        consumer = await to_one.consumer()
        journal = (await consumer.subscribe(resume_after=0)).journal
        told = await consumer.events(300)
        names = [message.id for message in told]
        assert [outport_nonce(message) for message in told] == list(range(300))

        def handled_at(last: int) -> list[dict[str, Any]]:
            return [{"id": names[last - since], "since": since} for since in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)]

        handled = handled_at(-1)
        same = await to_one.consumer()
        await same.subscribe(resume_after=told[-3].counter, resume_id=told[-3].id, resume_journal=journal)
        assert [message.id for message in await same.events(2)] == names[-2:], "exactly behind it"

        async def rest(connect: Any, **wish: Any) -> list[pb.WsMessage]:
            other: Consumer = await connect.consumer()
            reply = await other.subscribe(**wish)
            assert reply.ok, reply.reason
            messages = []
            while not messages or messages[-1].counter < reply.head:
                messages.append(await other.event())
            return messages

        moved = await rest(
            to_two, resume_after=told[-1].counter, resume_id=names[-1], resume_journal=journal, handled=handled
        )
        assert [message.id for message in moved] == names[-129:], "with the overlap, and not shard 1 from afar"

        ahead = [{"id": names[-1][:-66] + "00" * 32 + ":1", "since": 0}]
        ahead += [{"id": names[-since], "since": since} for since in (64, 128, 256)]
        behind = await rest(to_two, resume_after=1, resume_id="x", handled=ahead)
        assert [message.id for message in behind] == names[-256:], "as far back again as it is behind, and more"

        unknown = await rest(to_two, resume_after=1, resume_id="x", handled=ahead[:1])
        assert (unknown[0].topic, len(unknown)) == ("gap", 601), "said, and then all there is"

        nothing = await rest(to_two, resume_after=1, resume_id="x")
        assert (nothing[0].topic, len(nothing)) == ("gap", 601), "so it is when nothing is named"

        odd = await to_two.consumer()
        for wrong in ("", "SaveBlock", "SaveBlock:0:zz:1", "SaveBlock:4294967296:00:1", "SaveBlock:-1:00:1"):
            reply = await odd.subscribe(handled=[{"id": wrong}])
            assert not reply.ok and reply.reason.startswith("handled: an id is")
        reply = await odd.subscribe(handled=[{"id": names[0]}] * 1025)
        assert reply.reason == "handled: at most 1024 ids"
        assert (await odd.subscribe()).ok
        reply = await odd.subscribe(subscription_id="another", handled=handled)
        assert "belongs to the first subscription" in reply.reason


async def test_same_sequence_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That another journal has the same event under the same sequence says nothing of what came before it."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)  # both begin at the same sequence
    async with notifier(tmp_path / "a") as one, notifier(tmp_path / "b") as two:
        monkeypatch.undo()
        async with peers(one) as to_one, peers(two) as to_two:
            first, second = await to_one.node(), await to_two.node()
            blocks = [save_block(0, nonce) for nonce in range(9)]
            for block in (blocks[0], save_block(1, 0), save_block(1, 1), save_block(2, 0)):
                await first.save(block)
            for block in (*blocks[:3], save_block(2, 0), *blocks[3:], save_block(1, 0), save_block(1, 1)):
                await second.save(block)
            async with Hub(urls_of(one.port, two.port), resume_after=0) as hub:
                told = [await asyncio.wait_for(anext(hub), WAIT) for _ in range(4)]
                for session in list(one.hub.sessions):
                    session.close()
                told += [await asyncio.wait_for(anext(hub), WAIT) for _ in range(8)]
    names = [name_of(item.id) for item in told if isinstance(item, Event)]
    assert [name for name in names if name[1] == 0] == [
        ("SaveBlock", 0, block.blockData.headerHash.hex()) for block in blocks
    ]


async def heard_of(running: Notifier, place: str = "") -> tuple[list[str], str]:
    """What a consumer at a place hears of a notifier, of a gap why, and where it is then."""
    heard: list[str] = []
    async with Hub(urls_of(running.port), resume_after=None if place else 0, place=place) as hub:
        while hub.last != running.journal.head:
            item = await asyncio.wait_for(anext(hub), WAIT)
            heard.append(item.id if isinstance(item, Event) else item.why)
            await hub.handled()
        return heard, hub.place


async def gone_on(running: Notifier) -> str:
    """The place of a consumer of a notifier that is told two more blocks."""
    async with peers(running) as connect:
        node = await connect.node()
        await node.save(save_block(1, 0))
        await node.save(save_block(0, 1))
        return (await heard_of(running))[1]


@pytest.mark.parametrize("is_running", [False, True])
async def test_put_back(tmp_path: Path, is_running: bool) -> None:
    """A journal that was put back is another from there on, though it begins as the same one. In one start it is known
    how far, and that it has lost something: a gap."""
    home, backup, new = tmp_path / "a", tmp_path / "backup", save_block(2, 0)
    async with notifier(home) as running, peers(running) as connect:
        node = await connect.node()
        await node.save(save_block(0, 0))
        shutil.copytree(home, backup)  # quiet at the moment
        place = await gone_on(running) if is_running else ""
    if not is_running:
        async with notifier(home) as running:
            place = await gone_on(running)
    shutil.rmtree(home)
    shutil.copytree(backup, home)
    async with notifier(home) as running, peers(running) as connect:
        node = await connect.node()
        for block in (new, save_block(0, 1), save_block(1, 0)):
            await node.save(block)
        heard, _ = await heard_of(running, place)
    begins = "gone from the journal" if is_running else f"SaveBlock:0:{save_block(0, 0).blockData.headerHash.hex()}:1"
    assert heard[0] == begins, "the gap, or the newest event that is known, or before"
    assert ("SaveBlock", 2, new.blockData.headerHash.hex()) in map(name_of, heard[1:])


@pytest.mark.parametrize("keeps", [True, False])
async def test_the_first_place(tmp_path: Path, keeps: bool) -> None:
    """Who was told no event yet when the journal was replaced hears of it, though others have its sequence by then."""
    home, other = tmp_path / "a", tmp_path / "b"
    blocks = [save_block(0, nonce) for nonce in range(9)]
    async with notifier(home) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        await node.save(save_block(1, 0))
        if keeps:
            shutil.copytree(home, other)  # quiet at the moment
        for nonce in range(3):
            await node.save(save_block(1, 1 + nonce))
        reply = await consumer.subscribe()
        same = await connect.consumer()
        assert (await same.subscribe(resume_after=reply.head, resume_journal=reply.journal)).ok
        await node.save(blocks[0])
        assert (await same.event()).counter == reply.head + 1, "of the same journal there is no gap"
    async with notifier(other) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        for block in blocks:
            await node.save(block)
        assert (await consumer.subscribe(resume_after=reply.head, resume_journal=reply.journal)).ok
        gap = await consumer.event()
        assert gap.topic == "gap"
        assert hub_pb2.Gap.FromString(gap.payload).HasField("resumes_after") == keeps, "where it was put back to"
        assert [message.id for message in await consumer.events(9)] == [
            f"SaveBlock:0:{block.blockData.headerHash.hex()}:1" for block in blocks
        ]


async def test_filters_move(tmp_path: Path) -> None:
    """Finality is told of each block that a consumer with filters may have been given by another notifier."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        event = pb.Event(address=bytes(32), identifier=b"swap")
        blocks = [save_block(0, nonce, events=[event]) for nonce in range(4)]
        await consumer.subscribe(resume_after=0)
        for block in (save_block(1, 0, events=[event]), *blocks):
            await node.save(block)
        far, *told = await consumer.events(5)
        handled = [{"id": far.id, "since": 0}]
        handled += [{"id": told[at].id, "since": since} for at, since in ((3, 0), (2, 1), (1, 128))]
        moved = await connect.consumer()
        await moved.subscribe("Identifier", identifier="swap", resume_after=1, resume_id="x", handled=handled)
        assert [message.id for message in await moved.events(4)] == [far.id, *(message.id for message in told[1:])]
        mark = finalized(0, blocks[0].blockData.headerHash)
        await node.tell(outport.FINALIZED_BLOCK, mark)
        assert (await moved.event()).payload == mark.SerializeToString()


@pytest.mark.parametrize("both_lost", [False, True])
async def test_a_lost_journal(tmp_path: Path, both_lost: bool) -> None:
    """Who comes to a notifier whose journal was lost asks the others before what is missing counts as a gap."""
    blocks = [save_block(0, nonce) for nonce in range(300)]
    names = [("SaveBlock", 0, block.blockData.headerHash.hex()) for block in blocks]
    async with notifier(tmp_path / "a") as running, peers(running) as connect:
        node = await connect.node()
        for block in blocks[:3]:
            await node.save(block)
        _, place = await heard_of(running)
    had = blocks[200:] if both_lost else blocks
    async with notifier(tmp_path / "b") as lost, notifier(tmp_path / "c") as other:
        for running, told in ((lost, blocks[200:]), (other, had)):
            async with peers(running) as connect:
                node = await connect.node()
                for block in told:
                    await node.save(block)
        urls, sink = urls_of(lost.port, other.port), Sink()
        relayer = HubClient(urls, sink, Place.of_text(place))
        task = asyncio.create_task(relayer.run())
        found: list[Event | Missed] = []
        async with Hub(urls, place=place) as hub, asyncio.timeout(WAIT):
            while not found or not isinstance(found[-1], Event) or name_of(found[-1].id) != names[-1]:
                found.append(await anext(hub))
            while names[-1] not in sink.names:
                await asyncio.sleep(0.01)
        await end_tasks([task])
    gaps = [item for item in found if isinstance(item, Missed)]
    assert [gap.count for gap in gaps] == [None] * both_lost
    assert sink.gaps == len(gaps)
    wanted = names[200:] if both_lost else names[3:]
    assert [name_of(item.id) for item in found if isinstance(item, Event)][-len(wanted) :] == wanted
    assert sink.names[-len(wanted) :] == wanted


def outport_nonce(message: pb.WsMessage) -> int:
    block = pb.OutportBlock.FromString(message.payload)
    return (block.blockData.timestampMs - 1_700_000_000_000) // 600


async def test_no_event_yet(tmp_path: Path) -> None:
    """A consumer that moves before any event told it where it is hears of it, and goes on with what is new."""
    async with notifier(tmp_path / "a") as one, notifier(tmp_path / "b") as two, peers(two) as to_two:
        async with Hub(urls_of(one.port, two.port)) as hub:
            async with asyncio.timeout(WAIT):
                while not one.hub.sessions:
                    await asyncio.sleep(0.01)
                while not hub.head:
                    await asyncio.sleep(0.01)
            for session in list(one.hub.sessions):
                session.close()
            item = await asyncio.wait_for(anext(hub), WAIT)
            assert isinstance(item, Missed) and item.why == "connection lost"
            async with asyncio.timeout(WAIT):
                while not any(session.live for session in two.hub.sessions):
                    await asyncio.sleep(0.01)
            node = await to_two.node()
            await node.save(save_block(0, 1))
            event = await asyncio.wait_for(anext(hub), WAIT)
            assert isinstance(event, Event) and name_of(event.id)[:2] == ("SaveBlock", 0)
