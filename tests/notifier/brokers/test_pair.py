"""Two notifiers behind one set of nodes, one RabbitMQ, one Redis: one stream of events, whoever is killed.

Every node tells both. The notifiers are killed with SIGKILL at random moments, one at a time or both, and so is
Redis. At the end a checker compares what was told, both journals and what the broker got.
`MILLRACE_PAIR_ROUNDS` sets the number of kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aio_pika.abc import AbstractQueue

from millrace.chain import outport
from millrace.notifier.app import Notifier
from millrace.runtime.settings import Secret
from servers.rabbitmq import Broker
from servers.redis_server import RedisServer
from waiting import until

from ..helpers import WAIT, event, notifier, peers, save_block, unique_name
from ..test_torture import EXECUTED, SAVE, SEED, SHARDS, Step, Torture, check_shard, executions_of, tale
from .test_rabbitmq import Row, journal, queue

ROUNDS = int(os.environ.get("MILLRACE_PAIR_ROUNDS", "20"))


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), durable=True)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def together(broker: Broker, redis: RedisServer, name: str, **more: Any) -> dict[str, Any]:
    """Settings of a notifier of the group `name`."""
    return {
        "amqp_url": Secret(broker.url),
        "amqp_exchange": name,
        "redis_url": Secret(redis.url),
        "claim_group": name,
        "claim_lease": 0.5,
        **more,
    }


async def take_until(source: AbstractQueue, enough: Callable[[list[str]], bool]) -> list[str]:
    """The ids of messages, in order, until there are enough, and of those that still wait behind."""
    ids: list[str] = []
    async with source.iterator(timeout=4 * WAIT) as messages:
        while not enough(ids):
            message = await anext(messages)
            await message.ack()
            ids.append(message.message_id or "")
    while (more := await source.get(fail=False, no_ack=True)) is not None:
        ids.append(more.message_id or "")
    return ids


def lag(running: Notifier) -> int:
    return sum(sink.lag for sink in running.sinks)


async def test_nobody_dies(broker: Broker, redis: RedisServer, tmp_path: Path) -> None:
    """While both live and nodes tell both, every event comes once, though both journals have all."""
    name = unique_name()
    options = together(broker, redis, name, claim_patience=3600.0)
    async with (
        queue(broker, name) as everything,
        notifier(tmp_path / "a", **options) as one,
        notifier(tmp_path / "b", **options) as two,
        peers(one) as to_one,
        peers(two) as to_two,
    ):
        nodes = [await connect.node() for connect in (to_one, to_two, to_one, to_two)]
        consumers = [await connect.consumer() for connect in (to_one, to_two)]
        for consumer in consumers:
            await consumer.subscribe(resume_after=0)

        async def tell(node: Any) -> None:
            for nonce in range(40):
                block = save_block(nonce % 3, nonce, events=[event(b"\1" * 32, "e")])
                await node.save(block)
                await node.finalise(block)
                if nonce % 7 == 0:
                    await node.revert(block)

        await asyncio.gather(*map(tell, nodes))
        await until(lambda: lag(one) == lag(two) == 0)
        ids = [row.message_id for row in journal(tmp_path / "a")]
        assert set(ids) == {row.message_id for row in journal(tmp_path / "b")} and len(ids) == 86
        assert sorted(await take_until(everything, lambda taken: len(taken) >= len(ids))) == sorted(ids)
        assert sorted(sink.leading for running in (one, two) for sink in running.sinks) == [False, True]
        for consumer in consumers:
            assert len(await consumer.events(86)) == 86, "consumers of the hub get all from the one they chose"


async def test_only_one_is_told(broker: Broker, redis: RedisServer, tmp_path: Path) -> None:
    """What only one of them knows is published once, whether it leads or not; an orderly stop repeats nothing."""
    name = unique_name()
    options = together(broker, redis, name, claim_patience=0.2)
    async with queue(broker, name) as everything:
        async with (
            notifier(tmp_path / "a", **options) as one,
            notifier(tmp_path / "b", **options) as two,
            peers(one) as to_one,
            peers(two) as to_two,
        ):
            for connect, shard in ((to_one, 0), (to_two, 1)):
                node = await connect.node()
                for nonce in range(10):
                    await node.save(save_block(shard, nonce))
            await until(lambda: lag(one) == lag(two) == 0)
        async with notifier(tmp_path / "a", **options) as one, notifier(tmp_path / "b", **options) as two:
            await until(lambda: lag(one) == lag(two) == 0)
        ids = [row.message_id for side in "ab" for row in journal(tmp_path / side)]
        assert sorted(await take_until(everything, lambda taken: len(taken) >= 20)) == sorted(ids) and len(ids) == 20


async def test_redis_forgets(broker: Broker, tmp_path: Path) -> None:
    """Redis dies three times and comes back empty: all comes in the journals' order, little of it twice."""
    name = unique_name()
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    server.start()
    options = together(broker, server, name, claim_patience=3600.0)
    try:
        async with (
            queue(broker, name) as everything,
            notifier(tmp_path / "a", **options) as one,
            notifier(tmp_path / "b", **options) as two,
            peers(one) as to_one,
            peers(two) as to_two,
        ):
            nodes = [await connect.node() for connect in (to_one, to_two)]
            for nonce in range(90):
                if nonce % 30 in (10, 20):
                    await until(lambda: lag(one) == lag(two) == 0)
                    server.kill() if nonce % 30 == 10 else await server.restart()
                for node in nodes:
                    await node.save(save_block(0, nonce))
            await until(lambda: lag(one) == lag(two) == 0)
            ids = [row.message_id for row in journal(tmp_path / "a")]
            taken = await take_until(everything, lambda taken: set(taken) == set(ids))
            assert list(dict.fromkeys(taken)) == ids
            told_late = 10  # a notifier that has not asked again yet takes Redis for away
            assert len(taken) <= 90 + 3 * (10 + told_late), "more came twice than was told while Redis was away"
    finally:
        server.kill()


class Pair:
    """One run."""

    def __init__(self, directory: Path, redis: RedisServer, options: dict[str, Any]) -> None:
        self.rng = random.Random(SEED)
        self.redis = redis
        self.sides = [Torture(directory / side, **options) for side in "ab"]
        self.kill: list[Callable[[], None]] = []
        self.kills = 0

    async def kill_often(self, total: int) -> None:
        """Each time the nodes have made some progress kill somebody, and start it again after some more."""
        self.kill = [side.start() for side in self.sides]
        for number in range(ROUNDS):
            await self.progress(total * (number + 1) // (ROUNDS + 1) + self.rng.randrange(4))
            if number % 5 == 4:
                self.redis.kill()
                await self.progress(self.acked + self.rng.randrange(12))
                await self.redis.restart()
            else:
                victims = self.rng.choice([[0], [1], [0], [1], [0, 1]])
                for victim in victims:
                    await asyncio.to_thread(self.kill[victim])
                if len(victims) == 1:
                    await self.progress(self.acked + self.rng.randrange(12))
                for victim in victims:
                    self.kill[victim] = self.sides[victim].start()
            self.kills += 1

    @property
    def acked(self) -> int:
        return sum(side.acked for side in self.sides)

    async def progress(self, goal: int) -> None:
        """Until nodes were answered so often in all, or all nodes of those who live are done."""
        seen, quiet = self.acked, 0
        while self.acked < goal and quiet < 300:
            await asyncio.sleep(0.01)
            quiet = 0 if self.acked > seen else quiet + 1
            seen = self.acked

    def end(self) -> None:
        for kill in self.kill:
            with contextlib.suppress(ValueError):  # it was killed and not started again
                kill()


@pytest.mark.timeout(900 + 10 * ROUNDS)
async def test_pair_torture(broker: Broker, redis: RedisServer, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, order holds per shard, and what comes twice has the same message id."""
    name = unique_name()
    redis.ensure()
    options = together(broker, redis, name, claim_patience=1.0, amqp_window=8)
    pair = Pair(tmp_path, redis, options)
    tales = {shard: tale(shard, random.Random(SEED + shard)) for shard in SHARDS}
    streams = [(side, shard, n) for side in pair.sides for shard in SHARDS for n in range(2)]
    total = 2 * 2 * sum(map(len, tales.values()))
    async with queue(broker, name) as everything:
        killer = asyncio.create_task(pair.kill_often(total))
        try:
            async with asyncio.timeout(20 * WAIT + 3 * ROUNDS):
                await asyncio.gather(
                    *(
                        side.tell(tales[shard], random.Random(f"{SEED}{shard}{n}{side.port}"))
                        for side, shard, n in streams
                    )
                )
                await killer
                rows = [journal(side.directory) for side in pair.sides]
                wanted = {row.message_id for side in rows for row in side}
                ids = await take_until(everything, lambda taken: wanted <= {plain(id_) for id_ in taken})
        finally:
            killer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await killer
            await asyncio.to_thread(pair.end)
            redis.ensure()
    assert pair.kills == ROUNDS
    check(tales, rows, ids)


def plain(message_id: str) -> str:
    """The id without the mark of a word said again."""
    return message_id.partition("~")[0]


def check(tales: dict[int, list[Step]], rows: list[list[Row]], ids: list[str]) -> None:
    """Compare what the broker got with what nodes told and with both journals."""
    assert {plain(id_) for id_ in ids} == {row.message_id for side in rows for row in side}, "lost or invented"
    once = list(dict.fromkeys(ids))  # as a consumer who knows the ids sees it
    assert len(ids) - len(once) < 20 * ROUNDS, "more came twice than deaths explain: the claims do nothing"
    for shard, steps in tales.items():
        told = [tuple(id_.split(":")[:3]) for id_ in once]
        mine = [(topic, hash_) for topic, of, hash_ in told if of == str(shard) and topic != outport.SETTINGS]
        blocks = [(topic, hash_) for topic, hash_ in mine if topic != EXECUTED]
        check_shard(shard, [(topic, hash_.hex()) for topic, hash_, _ in steps], blocks)
        listed = {name for topic, _, payload in steps if topic == SAVE for name in executions_of(payload)}
        assert {hash_ for topic, hash_ in mine if topic == EXECUTED} == listed, "an execution lost or invented"
