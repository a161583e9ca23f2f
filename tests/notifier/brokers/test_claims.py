"""Two notifiers and one broker: who publishes, who passes over, who takes over, and what happens without Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from millrace.chain import outport
from millrace.notifier.brokers import claims
from millrace.notifier.brokers.claims import Claims
from millrace.notifier.brokers.item import Item, Verdict
from millrace.notifier.rules.dedup import Block, State
from millrace.notifier.rules.entry import now_ms
from millrace.notifier.settings import NotifierSettings
from millrace.runtime.settings import Secret
from servers.redis_server import RedisServer

from ..helpers import WAIT, block_hash, unique_name

HASH = block_hash("a block").hex()
PUBLISH, PASS, LATER = Verdict.PUBLISH, Verdict.PASS, Verdict.WAIT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for the module; a test may kill it, and it comes back empty."""
    made = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield made
    finally:
        made.kill()


class Side:
    """One notifier's claims, the state of its journal, and whether its broker can be reached."""

    def __init__(self, url: str, group: str, **settings: float) -> None:
        options: dict[str, Any] = {"claim_lease": 0.3, "claim_patience": 3600.0, **settings}
        self.blocks: dict[bytes, Block] = {}
        self.failures = 0
        self.connected = True
        self.idle = False
        self.claims = Claims(
            NotifierSettings(redis_url=Secret(url), claim_group=group, **options), "amqp", self._block, self._count
        )
        self.claims.start(lambda: self.connected, lambda: self.idle)

    async def _block(self, shard: int, hash_: bytes) -> Block | None:
        return self.blocks.get(hash_)

    def _count(self) -> None:
        self.failures += 1

    async def judge(self, *items: Item) -> tuple[Verdict, list[str]]:
        verdict, judged = await self.claims.judge(items)
        return verdict, [item.message_id for item in judged]

    async def until(self, verdict: Verdict, *items: Item) -> list[str]:
        """Ask again until the answer is this one; returns the ids it is for."""
        async with asyncio.timeout(WAIT):
            while True:
                answer, ids = await self.judge(*items)
                if answer is verdict:
                    return ids
                await asyncio.sleep(0.01)

    async def publish(self, *items: Item) -> None:
        """Lead, publish and see the marks written."""
        await self.until(PUBLISH, *items)
        self.claims.confirmed(items[-1].sequence)
        async with asyncio.timeout(WAIT):
            while self.claims._marks:
                await asyncio.sleep(0)
        await self.claims._turn(())  # behind the marks on the wire

    async def die(self) -> None:
        """As by kill -9: no mark, no release."""
        self.claims._stopping = True
        for task in self.claims._tasks:
            task.cancel()
        await asyncio.gather(*self.claims._tasks, return_exceptions=True)
        self.claims._tasks = []
        await self.claims._redis.aclose()


Sides = Callable[..., Side]


@pytest.fixture
async def sides(server: RedisServer) -> AsyncIterator[Sides]:
    """Makes notifiers of one group."""
    server.ensure()
    group = unique_name()
    async with AsyncExitStack() as stack:

        def made(**settings: float) -> Side:
            side = Side(server.url, group, **settings)
            stack.push_async_callback(side.claims.stop)
            return side

        yield made


def item(sequence: int, topic: str = outport.SAVE_BLOCK, generation: object = 1, hash_: str = HASH) -> Item:
    message_id = f"{topic}:0:{hash_}:{generation}"
    return Item(sequence, topic, 0, 0, message_id, b"payload", message_id, now_ms())


SAVE, REVERT = item(7), item(9, outport.REVERT_INDEXED_BLOCK)


async def test_one_leads(sides: Sides) -> None:
    """The first publishes; the second waits, and passes over what is confirmed, not before."""
    first, second = sides(), sides()
    assert await first.judge(SAVE) == (PUBLISH, [SAVE.message_id])
    assert await second.judge(SAVE) == (LATER, [SAVE.message_id])
    first.claims.confirmed(SAVE.sequence - 1)
    assert (await second.judge(SAVE))[0] is LATER
    await first.publish(SAVE)
    assert await second.judge(item(1007), item(1009, outport.REVERT_INDEXED_BLOCK)) == (PASS, [SAVE.message_id])


async def test_takes_over(sides: Sides) -> None:
    """When the leader dies the second goes on behind what was confirmed, after the lease."""
    first, second = sides(), sides()
    await first.publish(SAVE)
    assert (await first.judge(REVERT))[0] is PUBLISH
    await first.die()
    assert (await second.judge(SAVE))[0] is PASS
    assert await second.until(PUBLISH, REVERT) == [REVERT.message_id]
    assert second.claims.leading


async def test_lease_follows_the_broker(sides: Sides) -> None:
    """A leader that cannot reach the broker gives the lease away and leads again only with its broker."""
    first, second = sides(), sides()
    await first.until(PUBLISH, SAVE)
    first.connected = False
    await second.until(PUBLISH, SAVE)
    async with asyncio.timeout(WAIT):
        while first.claims.leading:
            await asyncio.sleep(0.01)


async def test_orderly_stop(server: RedisServer, sides: Sides) -> None:
    """A notifier that stops leaves its marks and gives the lease away at once."""
    first, second = sides(claim_lease=3600.0), sides(claim_lease=3600.0)
    await first.until(PUBLISH, SAVE, REVERT)
    first.claims.confirmed(SAVE.sequence)
    await first.claims.stop()
    assert await second.judge(SAVE, REVERT) == (PASS, [SAVE.message_id])
    assert (await second.judge(REVERT))[0] is PUBLISH


async def test_what_the_leader_does_not_have(sides: Sides) -> None:
    """An event that only the second has is published by it, once the leader is well past it."""
    first, second = sides(), sides(claim_patience=0.01)
    await first.until(PUBLISH, SAVE)
    assert (await second.judge(REVERT))[0] is LATER
    await first.claims._turn(())
    assert (await second.judge(REVERT))[0] is LATER, "the leader has something under way that may be this"
    first.idle = True
    assert await second.until(PUBLISH, REVERT) == [REVERT.message_id]
    second.claims.confirmed(REVERT.sequence)
    await first.until(PASS, REVERT)
    assert first.claims.leading and not second.claims.leading


@pytest.mark.parametrize(
    ("state", "generation", "expected"),
    [
        (State.SAVED, 1, "publish"),  # our journal ends with the save, consumers heard of the revert
        (State.FINAL, 1, "publish"),
        (State.REVERTED, 1, "pass"),  # the revert follows in our journal too
        (State.SAVED, 2, "pass"),  # a later save follows
        (None, 0, "pass"),  # forgotten long ago
    ],
)
async def test_last_words(sides: Sides, state: State | None, generation: int, expected: str) -> None:
    """A notifier whose journal ends with the contrary of what was published last says so, under an id of its own."""
    first, second = sides(), sides(claim_patience=0.05)
    await first.publish(SAVE, REVERT)
    await first.die()
    if state is not None:
        second.blocks[bytes.fromhex(HASH)] = Block(generation, state)
    await second.until(PUBLISH, item(1, outport.SETTINGS))
    own = item(1007)
    if expected == "publish":
        assert (await second.judge(own))[0] is LATER, "perhaps the nodes are late"
        assert await second.until(PUBLISH, own) == [f"{own.message_id}~1007"]
        await second.publish(own)
    assert (await second.judge(own))[0] is PASS, "once"


async def test_contradicting_contents_have_no_last_word(sides: Sides) -> None:
    """The id of a second content of one block is marked like any other, and says nothing about the block."""
    first, second = sides(), sides()
    conflict = item(8, generation="1-00ff")
    await first.publish(SAVE, conflict, REVERT)
    assert (await second.judge(conflict))[0] is PASS


async def test_redis_away(server: RedisServer, sides: Sides) -> None:
    """Without Redis the leader goes on at once and the others after a lease; later the marks are made up for."""
    first, second = sides(), sides(claim_lease=1.0)
    await first.publish(SAVE)
    assert (await second.judge(SAVE))[0] is PASS
    server.kill()
    assert await first.judge(REVERT) == (PUBLISH, [REVERT.message_id])
    first.claims.confirmed(REVERT.sequence)
    assert (await second.judge(REVERT))[0] is LATER
    await second.until(PUBLISH, REVERT)
    assert first.claims.trouble and second.claims.trouble and second.failures
    await server.restart()
    late = sides()
    await late.until(PASS, item(1009, outport.REVERT_INDEXED_BLOCK))


async def test_marks_are_written_as_soon_as_redis_answers(
    server: RedisServer, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment without Redis leaves no stretch of unmarked events behind, which a death would publish twice."""
    monkeypatch.setattr(claims, "_RETRY_SECONDS", 3600.0)
    first = sides()
    await first.until(PUBLISH, SAVE)
    server.kill()
    first.claims.confirmed(SAVE.sequence)
    async with asyncio.timeout(WAIT):
        while not first.failures:
            await asyncio.sleep(0.01)
    assert first.claims._marks
    await server.restart()
    await first.publish(REVERT)
    assert (await sides().judge(SAVE, REVERT))[0] is PASS


async def test_what_was_judged_alone_is_little(server: RedisServer, sides: Sides) -> None:
    """A Redis that comes back is asked again after 16 events: those that were judged without it go out in any case."""
    first = sides()
    await first.until(PUBLISH, SAVE)
    server.kill()
    verdict, judged = await first.judge(*(item(number) for number in range(10, 1000)))
    assert verdict is PUBLISH and len(judged) == 16


async def test_a_silent_redis_is_not_waited_for_every_few_events(
    server: RedisServer, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a call ends without an answer the leader publishes as many events as it ever asks about, and asks again."""
    first = sides()
    await first.until(PUBLISH, SAVE)
    monkeypatch.setattr(claims, "CALL_SECONDS", 0.2)
    server.pause()
    try:
        verdict, judged = await first.judge(*(item(number) for number in range(10, 1000)))
    finally:
        server.resume()
    assert verdict is PUBLISH and len(judged) == 256
    assert (await first.until(PUBLISH, REVERT)) and not first.claims.trouble


async def test_redis_forgets(server: RedisServer, sides: Sides) -> None:
    """A Redis that comes back empty is told again what was published of late, with the last word on each block."""
    first, second = sides(), sides()
    await first.publish(SAVE, REVERT)
    await second.until(PASS, item(1007), item(1009, outport.REVERT_INDEXED_BLOCK))
    await first.die()
    server.kill()
    await server.restart()
    third = sides()
    await third.until(PASS, item(2007))
    third.blocks[bytes.fromhex(HASH)] = Block(1, State.SAVED)
    assert await third.claims._contradicts(item(2007), b"R")
    assert (await third.claims._turn([item(2007)])).words == [b"R"]


async def test_marks_are_bounded(server: RedisServer, sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Redis is away only so many marks wait for it; the oldest are given up."""
    first = sides()
    await first.until(PUBLISH, item(1))
    server.kill()
    bound = first.claims._marks.maxlen
    assert bound == 65_536
    for start in range(0, bound + 1000, 250):
        events = [item(100 + start + number) for number in range(250)]
        first.claims._send(events)
        first.claims.confirmed(events[-1].sequence)
    assert not any(kept.payload for kept in first.claims._marks), "payloads would be gigabytes"
    assert len(first.claims._marks) == bound and first.claims._marks[-1].sequence == events[-1].sequence
    first.claims._marks.clear()


async def test_at_most_so_many_at_once(sides: Sides) -> None:
    """One question is about 256 events at most."""
    first = sides()
    verdict, judged = await first.judge(*(item(number) for number in range(1, 1000)))
    assert verdict is PUBLISH and len(judged) == 256


@pytest.mark.parametrize("url", ["http://:pass-1@host", "redis://:pass-1@host:port/0"])
async def test_words_for_operators(url: str) -> None:
    """A URL that is none of Redis refuses the start and says how to write it; the password is not shown."""
    with pytest.raises(OSError, match="write it as redis://") as refusal:
        Side(url, "group")
    assert "pass-1" not in repr(refusal.value) and refusal.value.__suppress_context__


async def test_an_execution_under_the_name_of_blocks_is_no_word_on_a_block(sides: Sides) -> None:
    """Its block was taken back since: to a standby that has not heard of that, the execution is published, no more."""
    leader, standby = sides(), sides(claim_patience=0.01)
    told = f"ExecutedBlock:0:{HASH}:1"
    execution = Item(8, outport.SAVE_BLOCK, 0, 0, told, b"payload", told, now_ms())
    await leader.publish(SAVE)
    await leader.publish(execution)
    await leader.publish(REVERT)
    await leader.die()
    standby.blocks[bytes.fromhex(HASH)] = Block(generation=1, state=State.SAVED)
    for _ in range(3):
        assert (await standby.judge(execution))[0] is PASS
