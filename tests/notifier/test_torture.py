"""Whatever is killed: what a node was acknowledged for is on disk and reaches every consumer, in order.

Two nodes per shard tell the tale of one chain with forks, reverts, early and late finality and blocks saved
again, each at its own pace. From `CHANGE` on its blocks are proposed first and executed later; reverts cross that
height. The notifier is killed with SIGKILL again and again, consumers and nodes lose their connections. At the end a
checker compares what was told, what is in the journal and what consumers hold.
`MILLRACE_TORTURE_ROUNDS` sets the number of kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from millrace.chain import outport
from millrace.chain.headers import read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier import app
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import websocket
from millrace.runtime.process import run_service
from millrace.system.ports import free_ports

from .helpers import WAIT, Consumer, Node, event, finalized, proposal, ran, save_block
from .journal_files import entries

ROUNDS = int(os.environ.get("MILLRACE_TORTURE_ROUNDS", "20"))
SEED = int(os.environ.get("MILLRACE_TORTURE_SEED", "1"))
SHARDS = (0, 1, 2)
STRAIGHT = 2  # this shard never reverts, so that each of its events must come exactly once
STEPS = 6 * ROUNDS
CHANGE = 5  # nonce of the first block of the present format
SAVE, FINAL, REVERT = outport.SAVE_BLOCK, outport.FINALIZED_BLOCK, outport.REVERT_INDEXED_BLOCK
EXECUTED = outport.EXECUTED_BLOCK

P = TypeVar("P", Node, Consumer)
Step = tuple[str, bytes, bytes]  # topic, header hash, payload


def tale(shard: int, rng: random.Random) -> list[Step]:
    """What a correct node tells of its shard."""
    steps: list[Step] = []
    stack: list[pb.OutportBlock] = []

    def final(block: pb.OutportBlock) -> None:
        hash_ = block.blockData.headerHash
        steps.append((FINAL, hash_, finalized(shard, hash_).SerializeToString()))

    while len(steps) < STEPS:
        if shard != STRAIGHT and stack and rng.random() < 0.2:
            block = stack.pop()
            steps.append((REVERT, block.blockData.headerHash, block.blockData.SerializeToString()))
            continue
        fork = rng.choice("aab") if shard != STRAIGHT else ""
        events = [event(b"\1" * 32, "swap", rng.randbytes(8)) for _ in range(rng.randrange(3))]
        nonce = len(stack)
        events = events_of(shard, nonce, fork, events)
        block = save_block(shard, nonce, fork, events=events) if nonce < CHANGE else proposed(shard, fork, stack)
        early = rng.random() < 0.3
        if early:
            final(block)
        steps.append((SAVE, block.blockData.headerHash, block.SerializeToString()))
        stack.append(block)
        if not early and rng.random() < 0.5:
            final(block)
    return steps


def proposed(shard: int, fork: str, stack: list[pb.OutportBlock]) -> pb.OutportBlock:
    """A block on top of these. Every fourth brings no execution, the one after it two; the first of all none."""
    nonce = len(stack)
    brings = {0: 0, 1: 2}.get(nonce % 4, 1)
    oldest = max(CHANGE, nonce - brings)
    executed = [ran(stack[n], *_EVENTS.get((shard, n, ""), ())) for n in range(oldest, nonce)]
    return proposal(shard, nonce, (fork, stack[-1].blockData.headerHash), ran=executed)


def executions_of(payload: bytes) -> list[str]:
    """The headers (hex) whose executions a saved block lists."""
    header = read_header(pb.OutportBlock.FromString(payload).blockData)
    assert header is not None
    return [execution.block_hash.hex() for execution in header.executions]


_EVENTS: dict[tuple[int, int, str], list[pb.Event]] = {}


def events_of(shard: int, nonce: int, fork: str, events: list[pb.Event]) -> list[pb.Event]:
    """A block saved again is the same block."""
    return _EVENTS.setdefault((shard, nonce, fork), events)


class Torture:
    """One run."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.options = options
        self.rng = random.Random(SEED)
        self.acked = 0
        self.kills = 0
        self.progress = asyncio.Event()
        self.finished = asyncio.Event()
        self.undisturbed = asyncio.Event()
        """Nobody is killed any more."""
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["millrace.notifier.app"])
        self.port = free_ports(1)[0]

    def start(self) -> Callable[[], None]:
        """Start a notifier; the result kills it as the kernel would."""
        settings = NotifierSettings(
            port=self.port,
            http_port=0,
            metrics_port=0,
            data_dir=self.directory,
            finalized_wait=3600.0,
            tail_bytes=20_000,
            window_frames=20,
            **self.options,
        )
        main = functools.partial(app.run, settings)
        process = self.context.Process(target=run_service, args=(main,), daemon=True)
        process.start()

        def kill() -> None:
            process.kill()
            process.join()
            process.close()

        return kill

    async def connect(self, kind: type[P], path: str) -> P:
        """A connection, after as many attempts as it takes, each with a session of its own."""
        while True:
            peer = kind()
            try:
                await websocket.connect(f"ws://127.0.0.1:{self.port}{path}", peer, timeout=1.0)
            except websocket.CONNECT_ERRORS:  # also when it was killed in the middle of the handshake
                await asyncio.sleep(0.01)
            else:
                return peer

    async def tell(self, steps: list[Step], rng: random.Random) -> None:
        """A node: each step is sent until it is acknowledged, over as many connections as it takes."""
        node: Node | None = None
        for topic, _, payload in steps:
            while True:
                if node is None:
                    node = await self.connect(Node, "/save")
                try:
                    counter = node.post(topic, payload)
                    if rng.random() < 0.05:
                        node.drop()
                    await node.acked(counter)
                    break
                except ConnectionError:
                    node = None
            self.acked += 1
            self.progress.set()
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.005)
        assert node is not None
        node.close()

    async def consume(self, rng: random.Random) -> dict[int, bytes]:
        """A consumer: keeps every event under its sequence, resumes after the last, until the journal's end."""
        kept: dict[int, bytes] = {}
        last = 0
        while True:
            consumer = await self.connect(Consumer, "/hub/ws")
            try:
                reply = await consumer.subscribe(resume_after=last)
                assert reply.ok, reply.reason
                while not (self.finished.is_set() and last >= reply.head and consumer.inbox.empty()):
                    message = await consumer.event()
                    assert message.topic != "gap"
                    assert message.counter == last + 1 or not kept, "an event was left out"
                    kept[message.counter] = message.SerializeToString()
                    last = message.counter
                    if rng.random() < 0.02:
                        forget = rng.randrange(3)  # killed before it stored its last ones
                        last = max(min(kept), last - forget) if kept else last
                        consumer.drop()
                        break
                else:
                    consumer.close()
                    return kept
            except ConnectionError:
                continue

    async def disturb(self) -> None:
        """What else happens before each kill."""

    async def kill_often(self, total: int) -> None:
        """Kill the notifier each time the nodes have made some progress."""
        kill = self.start()
        try:
            for number in range(1, ROUNDS + 1):
                goal = total * number // (ROUNDS + 1) + self.rng.randrange(4)
                while self.acked < goal:
                    self.progress.clear()
                    await asyncio.wait_for(self.progress.wait(), 3 * WAIT)
                await self.disturb()
                await asyncio.to_thread(kill)
                kill = self.start()
                self.kills += 1
            self.undisturbed.set()
            await self.finished.wait()
            await asyncio.sleep(3600)
        finally:
            kill()


@pytest.mark.timeout(900 + 10 * ROUNDS)
async def test_torture(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, order holds per shard, and what comes twice is the same."""
    tales, kept = await torment(Torture(tmp_path))
    check(rows_of(tmp_path), tales, kept)


async def torment(run: Torture) -> tuple[dict[int, list[Step]], list[dict[int, bytes]]]:
    """Let nodes tell, consumers listen and the notifier die; returns what was told, and what each consumer holds."""
    tales = {shard: tale(shard, random.Random(SEED + shard)) for shard in SHARDS}
    total = 2 * sum(map(len, tales.values()))
    killer = asyncio.create_task(run.kill_often(total))
    consumers = [asyncio.create_task(run.consume(random.Random(SEED + n))) for n in range(3)]
    nodes = [run.tell(tales[shard], random.Random(10 * SEED + n)) for shard in SHARDS for n in range(2)]
    try:
        await asyncio.gather(*nodes)
        await asyncio.wait_for(run.undisturbed.wait(), 3 * WAIT)
        run.finished.set()
        last_word = await run.connect(Node, "/save")  # wakes the consumers, who wait for one more event
        await last_word.tell(outport.SETTINGS, pb.OutportConfig(shardID=1))
        for consumer in consumers:
            consumer.add_done_callback(lambda _: None)
        kept = [await asyncio.wait_for(consumer, 3 * WAIT) for consumer in consumers]
        last_word.close()
    finally:
        killer.cancel()
        for task in consumers:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killer
    assert run.kills == ROUNDS
    return tales, kept


def rows_of(directory: Path) -> list[tuple[Any, ...]]:
    """Sequence, topic, shard, message id and payload of every event in the files."""
    return [(e.sequence, e.topic, e.shard, e.message_id, e.payload) for e in entries(directory)]


def check(rows: list[tuple[Any, ...]], tales: dict[int, list[Step]], kept: list[dict[int, bytes]]) -> None:
    """Compare the journal with what nodes told and with what consumers hold."""
    ids = [row[3] for row in rows]
    assert len(set(ids)) == len(ids), "two events with one message id"
    sequences = [row[0] for row in rows]
    assert sequences == list(range(sequences[0], sequences[0] + len(rows)))
    for mine in kept:
        assert sorted(mine) == sequences[: len(mine)] and len(mine) >= len(rows) - 1
        for sequence, topic, _, _, payload in rows[: len(mine)]:
            message = pb.WsMessage.FromString(mine[sequence])
            assert (message.topic, message.payload) == (topic, payload)
    for shard, steps in tales.items():
        mine = [row for row in rows if row[2] == shard and row[1] != outport.SETTINGS]
        told = [(row[1], row[3].split(":")[2]) for row in mine if row[1] != EXECUTED]
        check_shard(shard, [(topic, hash_.hex()) for topic, hash_, _ in steps], told)
        check_executions(shard, steps, mine)


def check_executions(shard: int, steps: list[Step], rows: list[tuple[Any, ...]]) -> None:
    """Every execution that some block lists is told, behind such a block, and once for each life of its header."""
    listed = {name for topic, _, payload in steps if topic == SAVE for name in executions_of(payload)}
    lives: dict[str, int] = {}
    times: dict[str, int] = {}
    brought: set[str] = set()
    for _, topic, _, message_id, payload in rows:
        name = message_id.split(":")[2]
        if topic == SAVE:
            lives[name] = lives.get(name, 0) + 1
            brought.update(executions_of(payload))
        elif topic == EXECUTED:
            assert name in brought, "executed before a block said so"
            assert "-" not in message_id, "two contents of one execution"
            times[name] = times.get(name, 0) + 1
    assert set(times) == listed, "an execution lost or invented"
    assert all(count <= lives[name] for name, count in times.items()), "an execution told twice"
    if shard == STRAIGHT:
        assert set(times.values()) == {1}


def check_shard(shard: int, steps: list[tuple[str, str]], told: list[tuple[str, str]]) -> None:
    """`steps` is what the nodes of a shard told, `told` what the journal tells of it."""
    assert set(told) == set(steps), "lost or invented"
    first_saves = [hash_ for topic, hash_ in dict.fromkeys(steps) if topic == SAVE]
    assert [hash_ for topic, hash_ in dict.fromkeys(told) if topic == SAVE] == first_saves, "order of blocks"
    last: dict[str, str] = {}
    for topic, hash_ in told:
        if topic == FINAL:
            assert last.get(hash_) is not None, "final before it was saved"
        else:
            last[hash_] = topic
    assert last == {hash_: topic for topic, hash_ in steps if topic != FINAL}, "the last word on a block"
    if shard == STRAIGHT:
        assert len(told) == len(set(told)), "delivered twice"
