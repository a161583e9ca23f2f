"""Nodes on /save: acknowledgements, bounds, secrets, and nodes we connect to ourselves."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import ALL_SHARDS, METACHAIN
from millrace.notifier.app import Notifier
from millrace.notifier.journal.dead_letter_list import listed
from millrace.notifier.journal.file_store import Store
from millrace.runtime import websocket
from millrace.runtime.settings import Secret
from waiting import until

from .helpers import WAIT, event, notifier, peers, save_block

SAVE = outport.SAVE_BLOCK


async def test_ack_carries_nothing_but_the_counter(tmp_path: Path) -> None:
    """The acknowledgement of counter 42 is the five bytes that nodes expect."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        node.counter = 41
        raw: list[bytes] = []
        node.on_message = lambda kind, data: raw.append(data) or node.inbox.put_nowait(None)  # type: ignore
        node.post(SAVE, save_block(0, 1).SerializeToString())
        await asyncio.wait_for(node.inbox.get(), WAIT)
        assert raw == [bytes.fromhex("102a1801")]


async def test_no_ack_unless_wanted(tmp_path: Path) -> None:
    """Acknowledgements and messages that want none are not answered; what they carry is processed."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        node.send_binary(outport.ack_envelope(7))
        node.send_binary(b"\x18\x09")
        node.post(SAVE, save_block(0, 1).SerializeToString(), with_acknowledge=False)
        last = node.post(SAVE, save_block(0, 2).SerializeToString())
        await node.acked(last)
        assert running.journal.head - running.journal.oldest == 1


async def test_pipelined_messages_are_answered_in_order(tmp_path: Path) -> None:
    """A node that does not wait gets every acknowledgement, in order, and is read only as fast as is written."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        counters = [node.post(SAVE, save_block(0, n).SerializeToString()) for n in range(300)]
        for counter in counters:
            await node.acked(counter)
        assert running.journal.head - running.journal.oldest == 299
        (session,) = running.ingest.nodes
        assert not session.paused_at


async def test_resend_under_a_new_counter_after_reconnect(tmp_path: Path) -> None:
    """A block sent again, by the same or a new connection, is acknowledged and not delivered again."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        block = save_block(1, 8)
        for _ in range(3):
            node = await connect.node()
            await node.save(block)
            await node.save(block)
            node.drop()
        assert running.journal.head == running.journal.oldest


async def test_largest_frame(tmp_path: Path) -> None:
    """A frame as large as allowed goes through whole; a larger one closes that connection with 1009."""
    async with notifier(tmp_path, max_frame_bytes=1_000_000) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        await consumer.subscribe()
        block = save_block(0, 1, events=[event(b"\1" * 32, "big", data=b"x" * 999_000)])
        await node.save(block)
        assert (await consumer.event()).payload == block.SerializeToString()
        node.post(SAVE, b"x" * 1_100_000)
        await asyncio.wait_for(node.ended.wait(), WAIT)
        assert node.close_code == websocket.MESSAGE_TOO_BIG


async def test_frames_that_are_no_envelope(tmp_path: Path) -> None:
    """Text and garbage close that connection and tell what to set; others go on."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        good = await connect.node()
        for send, data, code in (("send_text", b'{"counter":1}', 1003), ("send_binary", b"\xff", 1007)):
            bad = await connect.node()
            getattr(bad, send)(data)
            await asyncio.wait_for(bad.ended.wait(), WAIT)
            assert bad.close_code == code
        await good.save(save_block(0, 1))


async def test_secrets(tmp_path: Path) -> None:
    """With secrets set, only a node that shows one may connect; consumers are not concerned."""
    async with (
        notifier(tmp_path, node_secrets={"n1": Secret("s1"), "n2": Secret("s2")}) as running,
        peers(running) as connect,
    ):
        for headers in (None, {"Authorization": "Bearer s3"}, {"Authorization": "s1x"}):
            with pytest.raises(websocket.CONNECT_ERRORS):
                await connect.node(headers=headers)
        node = await connect.node(headers={"Authorization": "Bearer s2"})
        await node.save(save_block(0, 1))
        assert (await (await connect.consumer()).subscribe()).ok


async def test_node_limit(tmp_path: Path) -> None:
    """More nodes than allowed are refused; a place becomes free when one leaves."""
    async with notifier(tmp_path, max_nodes=1) as running, peers(running) as connect:
        node = await connect.node()
        with pytest.raises(websocket.CONNECT_ERRORS):
            await connect.node()
        node.close()
        await asyncio.wait_for(node.ended.wait(), WAIT)
        while running.ingest.nodes:
            await asyncio.sleep(0)
        await connect.node()


class ServingNode(websocket.Session):
    """A node in server mode, as the notifier's client meets it."""

    def __init__(self, blocks: list[bytes], acked: asyncio.Queue[int]) -> None:
        super().__init__()
        self.blocks, self.acked = blocks, acked

    def on_open(self) -> None:
        for counter, payload in enumerate(self.blocks, 1):
            self.send_binary(outport.payload_envelope(SAVE, payload, counter))

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        counter = outport.decode_envelope(data).counter
        self.acked.put_nowait(counter)
        if counter == len(self.blocks):
            self.close()


async def test_node_in_server_mode(tmp_path: Path) -> None:
    """The notifier connects to nodes in server mode, and again when they close."""
    acked: asyncio.Queue[int] = asyncio.Queue()
    connections: list[str] = []
    blocks = [save_block(2, nonce).SerializeToString() for nonce in range(3)]

    def factory(request: websocket.Request) -> websocket.Session:
        connections.append(request.path)
        return ServingNode(blocks if len(connections) == 1 else [], acked)

    server = await websocket.serve(factory, "127.0.0.1", 0)
    stop = asyncio.Event()
    async with notifier(tmp_path, node_urls=(f"ws://127.0.0.1:{server.port}",)) as running:
        work = asyncio.create_task(running.work(stop))
        assert [await asyncio.wait_for(acked.get(), WAIT) for _ in blocks] == [1, 2, 3]
        while len(connections) < 2:
            await asyncio.sleep(0.01)
        stop.set()
        await work
        assert set(connections) == {"/save"}
        assert running.journal.head - running.journal.oldest == 2
    await server.close()


@asynccontextmanager
async def refusing_disk(running: Notifier, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Commits fail inside this block, as when the disk is full."""

    def full(self: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", full)
        yield


async def test_full_disk_withholds_acks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk refuses, no node is answered and nothing is delivered; afterwards everything is, once."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        await consumer.subscribe()
        async with refusing_disk(running, monkeypatch):
            counter = node.post(SAVE, save_block(0, 1).SerializeToString())
            while not running.journal.failing:
                await asyncio.sleep(0.005)
            assert "full" in running.journal.failing
            assert node.inbox.empty() and consumer.inbox.empty()
        await node.acked(counter)
        assert (await consumer.event()).counter == running.journal.head
        assert not running.journal.failing
        assert running.metrics.events.labels(SAVE, "0")._value.get() == 1, "attempts do not count"


async def test_shards_that_the_network_cannot_have(tmp_path: Path) -> None:
    """What a node tells of a shard beyond the network's is a dead letter, on any topic, and makes no shard known."""
    async with notifier(tmp_path, shards=2) as running, peers(running) as connect:
        node = await connect.node()
        for shard in (0, 1, METACHAIN, 2, ALL_SHARDS):
            await node.save(save_block(shard, 1))
        await node.tell(outport.SAVE_ROUNDS_INFO, pb.RoundsInfo(shardID=5000))
        assert running.journal.head - running.journal.oldest == 2
        assert set(running.journal.last_block_ms) == {0, 1, METACHAIN}
        assert running.metrics.dead_letters._value.get() == 3
    letters = listed(tmp_path)
    assert {letter.reason for letter in letters} == {
        f"shard {shard}: the network has 2, and the metachain (setting shards)" for shard in (2, ALL_SHARDS, 5000)
    }


@pytest.mark.parametrize("rotates", [False, True])
async def test_a_dead_letter_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotates: bool) -> None:
    """However often a commit is tried, what it buries is in the file once, and pushes out no other letter."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    bound = 1 if rotates else 10_000
    async with notifier(tmp_path, dead_letter_bytes=bound) as running, peers(running) as connect:
        node = await connect.node()
        await node.tell(SAVE, b"\xff first")
        async with refusing_disk(running, monkeypatch):
            counter = node.post(SAVE, b"\xff second")
            while running.metrics.commit_failures._value.get() < 4:
                await asyncio.sleep(0.005)
        await node.acked(counter)
        kept = [letter.bytes for letter in listed(tmp_path)]
        assert kept == [len(b"\xff second"), len(b"\xff first")]
        assert running.metrics.dead_letters._value.get() == 2


async def test_a_dead_letter_stays_when_only_the_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that failed and is on disk after all is not done again, nor are its letters taken back."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    commit = Store.commit

    def answers_in_vain(self: Any) -> None:
        commit(self)
        raise OSError("the answer was lost")

    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        with monkeypatch.context() as patch:
            patch.setattr(Store, "commit", answers_in_vain)
            patch.setattr(Store, "landed", lambda self: True)
            await node.tell(SAVE, b"\xff first")
        await node.tell(SAVE, b"\xff other")
        assert len(listed(tmp_path)) == 2


async def test_flood_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that sends on without answers is read no further than its bound; another one is."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    async with notifier(tmp_path) as running, peers(running) as connect:
        flooding, other = await connect.node(), await connect.node()
        filler = [event(b"\1" * 32, "big", data=b"x" * 100_000)]
        async with refusing_disk(running, monkeypatch):
            counters = [flooding.post(SAVE, save_block(0, n, events=filler).SerializeToString()) for n in range(200)]
            await until(lambda: any(node.paused_at for node in running.ingest.nodes))
            await asyncio.sleep(0.05)
            queued = running.metrics.queued_bytes._value.get()
            assert queued < 60 * 100_000, "sixteen, and what was in the buffer already"
            counter = other.post(SAVE, save_block(1, 1).SerializeToString())
        await other.acked(counter)
        for counter in counters:
            await flooding.acked(counter)
        assert running.metrics.queued_bytes._value.get() == 0


async def test_one_owner(tmp_path: Path) -> None:
    """A second notifier on the same directory refuses to start and says why."""
    async with notifier(tmp_path):
        with pytest.raises(OSError, match="in use by another notifier"):
            async with notifier(tmp_path):
                pass
    async with notifier(tmp_path):
        pass


async def test_held_mark_survives_restart(tmp_path: Path) -> None:
    """A finalised mark acknowledged before its block came is not lost by a restart: it follows the block."""
    block = save_block(0, 4)
    async with notifier(tmp_path) as running, peers(running) as connect:
        await (await connect.node()).finalise(block)
        assert running.journal.head < running.journal.oldest
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        await (await connect.node()).save(block)
        assert [m.topic for m in await consumer.events(2)] == [SAVE, outport.FINALIZED_BLOCK]


async def test_held_mark_is_released_in_time(tmp_path: Path) -> None:
    """A finalised mark whose block does not come is delivered alone, with the mark that says so."""
    async with notifier(tmp_path, finalized_wait=0.05) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        await (await connect.node()).finalise(save_block(0, 4))
        message = await consumer.event()
        assert message.topic == outport.FINALIZED_BLOCK
        assert pb.WsMessage(marks=message.marks).SerializeToString() == b"\x38\x02"


async def test_defect_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload our own code fails on is kept as a dead letter and acknowledged; its neighbours pass."""
    from millrace.notifier.journal import processor

    real = processor.normalise

    def failing(pool: Any, facts: Any, memory: Any) -> None:
        if facts.shard == 7:
            raise KeyError("defect")
        real(pool, facts, memory)

    monkeypatch.setattr(processor, "normalise", failing)
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        for shard in (0, 7, 1):
            await node.save(save_block(shard, 1))
        assert running.journal.head - running.journal.oldest == 1
        assert "defect" in (tmp_path / "dead-letters.jsonl").read_text()
    monkeypatch.setattr(processor, "normalise", real)
    async with notifier(tmp_path) as running, peers(running) as connect:
        await (await connect.node()).save(save_block(7, 1))
        assert running.journal.head - running.journal.oldest == 2, "it was never marked as seen"


async def test_node_that_stops_mid_frame(tmp_path: Path) -> None:
    """A node that stops in the middle of a frame is closed after a ping and a wait; others do not notice."""
    async with notifier(tmp_path, ping_interval=0.1, pong_timeout=0.1) as running, peers(running) as connect:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(
            b"GET /save HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x82\xff" + (60_000_000).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 100)
        healthy = await connect.node()
        await healthy.save(save_block(0, 1))
        await asyncio.wait_for(reader.read(), WAIT)  # until the notifier ends it
        writer.close()
        await healthy.save(save_block(0, 2))
        assert len(running.ingest.nodes) == 1


async def test_frame_of_64_megabytes(tmp_path: Path) -> None:
    """The largest frame of the default settings goes from node to consumer unchanged."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        await consumer.subscribe()
        filler = [event(b"\1" * 32, "big", data=b"x" * 4_000_000) for _ in range(16)]
        block = save_block(0, 1, events=filler)
        payload = block.SerializeToString()
        assert 63_000_000 < len(payload) < 64 * 1024 * 1024
        await node.tell(SAVE, payload)
        assert (await consumer.event()).payload == payload
